//! Runs the tasks of a version in the order in which they were requested.
//!
//! A late removal of a version would otherwise remove data that was fetched since.

use std::collections::BTreeMap;

use parking_lot::{Condvar, Mutex};

use crate::node::VersionPlace;

#[derive(Debug, Default)]
pub struct PlaceTurns {
    lines: Mutex<BTreeMap<VersionPlace, Line>>,
    done: Condvar,
}

#[derive(Debug, Default)]
struct Line {
    /// The number of the next task, and below, the number of the task whose turn it is.
    next: u64,
    now: u64,
}

/// A place in the queue of a version. It has to be used.
#[derive(Debug)]
#[must_use]
pub struct PlaceTurn {
    place: VersionPlace,
    number: u64,
}

impl PlaceTurns {
    pub fn line_up(&self, place: &VersionPlace) -> PlaceTurn {
        let mut lines = self.lines.lock();
        let line = lines.entry(place.clone()).or_default();
        let number = line.next;
        line.next += 1;
        PlaceTurn {
            place: place.clone(),
            number,
        }
    }

    /// Runs the work when all earlier tasks have ended.
    pub fn in_turn(&self, turn: &PlaceTurn, work: impl FnOnce()) {
        let mut lines = self.lines.lock();
        while lines
            .get(&turn.place)
            .is_some_and(|line| line.now != turn.number)
        {
            self.done.wait(&mut lines);
        }
        drop(lines);
        let _ends = TurnEnd { turns: self, turn };
        work();
    }
}

/// Ends the turn when dropped, also by a panic.
struct TurnEnd<'a> {
    turns: &'a PlaceTurns,
    turn: &'a PlaceTurn,
}

impl Drop for TurnEnd<'_> {
    fn drop(&mut self) {
        let mut lines = self.turns.lines.lock();
        if let Some(line) = lines.get_mut(&self.turn.place) {
            line.now += 1;
            if line.now == line.next {
                lines.remove(&self.turn.place);
            }
        }
        self.turns.done.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use forebay_engine::TableName;
    use forebay_io::{Clock, SystemClock};

    use super::*;

    #[test]
    fn work_at_a_place_runs_in_order_and_blocks_no_other_place() {
        let turns = Arc::new(PlaceTurns::default());
        let place = |version| (TableName::new("t").unwrap(), version);
        let (first, second, third) = (
            turns.line_up(&place(1)),
            turns.line_up(&place(1)),
            turns.line_up(&place(1)),
        );
        let done = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            scope.spawn(|| turns.in_turn(&third, || done.lock().push(3)));
            scope.spawn(|| turns.in_turn(&second, || done.lock().push(2)));
            let other = turns.line_up(&place(2));
            turns.in_turn(&other, || done.lock().push(0));
            SystemClock.sleep(Duration::from_millis(20));
            turns.in_turn(&first, || done.lock().push(1));
        });
        assert_eq!(*done.lock(), [0, 1, 2, 3]);
        assert!(turns.lines.lock().is_empty());
    }
}
