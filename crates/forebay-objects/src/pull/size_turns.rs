//! Limits how many versions are fetched at once, so that small ones never wait for large ones.
//!
//! There are queues by size, each with its own slots, and each queue is first in, first out. So a
//! version waits only for those of its own size, and none waits for ever.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::PullError;

/// The greatest version of each queue, in bytes, and the queue's slots.
const LINES: [(u64, usize); 3] = [(64 << 20, 2), (4 << 30, 1), (u64::MAX, 1)];
/// How often a waiting thread checks whether its version is still wanted.
const LOOK: Duration = Duration::from_millis(100);

#[derive(Debug, Default)]
pub struct SizeTurns {
    lines: Mutex<[Line; LINES.len()]>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Line {
    next: u64,
    waiting: VecDeque<u64>,
    active: usize,
}

/// A slot of a queue; dropping it releases the slot.
#[derive(Debug)]
pub struct SizeTurn<'a> {
    turns: &'a SizeTurns,
    line: usize,
}

impl SizeTurns {
    /// Waits for a slot for this many bytes; [`PullError::Superseded`] if the version is no
    /// longer wanted.
    pub fn wait(&self, bytes: u64, cancelled: &AtomicBool) -> Result<SizeTurn<'_>, PullError> {
        let line = LINES.iter().position(|(most, _)| bytes <= *most);
        let line = line.unwrap_or(LINES.len() - 1);
        let mut lines = self.lines.lock();
        let ticket = lines[line].next;
        lines[line].next += 1;
        lines[line].waiting.push_back(ticket);
        loop {
            let mine = &mut lines[line];
            if cancelled.load(Ordering::Relaxed) {
                mine.waiting.retain(|waits| *waits != ticket);
                self.changed.notify_all();
                return Err(PullError::Superseded);
            }
            if mine.active < LINES[line].1 && mine.waiting.front() == Some(&ticket) {
                mine.waiting.pop_front();
                mine.active += 1;
                self.changed.notify_all();
                return Ok(SizeTurn { turns: self, line });
            }
            self.changed.wait_for(&mut lines, LOOK);
        }
    }
}

impl Drop for SizeTurn<'_> {
    fn drop(&mut self) {
        self.turns.lines.lock()[self.line].active -= 1;
        self.turns.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn small_files_pass_large_ones_and_wait_for_their_own_size() {
        let (turns, wanted) = (SizeTurns::default(), AtomicBool::new(false));
        let large = turns.wait(1 << 40, &wanted).unwrap();
        let middle = turns.wait(1 << 30, &wanted).unwrap();
        let small = [1, 64 << 20].map(|bytes| turns.wait(bytes, &wanted).unwrap());
        let (began, begun) = channel();
        std::thread::scope(|scope| {
            for bytes in [1u64 << 41, 1 << 31, 5] {
                let (turns, wanted, began) = (&turns, &wanted, began.clone());
                scope.spawn(move || {
                    let turn = turns.wait(bytes, wanted).unwrap();
                    began.send(bytes).unwrap();
                    drop(turn);
                });
            }
            assert!(begun.try_recv().is_err());
            drop(small);
            assert_eq!(begun.recv().unwrap(), 5);
            drop(middle);
            assert_eq!(begun.recv().unwrap(), 1 << 31);
            drop(large);
            assert_eq!(begun.recv().unwrap(), 1 << 41);
        });
    }

    #[test]
    fn a_stopped_fetch_leaves_the_queue() {
        let (turns, wanted) = (SizeTurns::default(), AtomicBool::new(false));
        let first = turns.wait(1 << 40, &wanted).unwrap();
        let gone = AtomicBool::new(true);
        assert!(matches!(
            turns.wait(1 << 40, &gone),
            Err(PullError::Superseded)
        ));
        drop(first);
        turns.wait(1 << 40, &wanted).unwrap();
    }
}
