//! Decides when a node requests what from the store.
//!
//! While nothing happens, a node requests the document of all tables once in each interval. In each
//! fifth interval it requests one more object, in turn, to check the document: the list of tables,
//! and each table's pointer.
//!
//! If there is no document, and none can be created, each interval has one of those.

use std::time::Duration;

use forebay_engine::TableName;

/// Intervals between two objects that are checked in turn.
const CHECK_EVERY: u32 = 5;
/// The pause after a failure, if the interval is longer.
const RETRY: Duration = Duration::from_secs(2);
/// Hints that are followed at once, and the time until one more is.
const HINTS: u32 = 10;
const HINT: Duration = Duration::from_secs(1);

/// The object to request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Turn {
    Document,
    List,
    Pointer(TableName),
}

/// The schedule of a node's requests to the store.
#[derive(Debug)]
pub struct Turns {
    poll: Duration,
    document_at: Duration,
    check_at: Duration,
    /// The table whose pointer was checked last.
    last: Option<TableName>,
    /// The time until which hints have been paid for.
    hinted: Duration,
    /// A hint waits until it may be followed, at the document's next turn.
    owed: bool,
}

impl Turns {
    pub fn new(poll: Duration, now: Duration) -> Self {
        Self {
            poll,
            document_at: now + poll,
            check_at: now + poll * CHECK_EVERY,
            last: None,
            hinted: Duration::ZERO,
            owed: false,
        }
    }

    /// Returns what is due, for a store with a document or without. Tables are in ascending order.
    pub fn next(
        &mut self,
        now: Duration,
        has_document: bool,
        mut tables: impl Iterator<Item = TableName>,
    ) -> Option<Turn> {
        if now >= self.document_at {
            self.asked(now);
            if has_document {
                return Some(Turn::Document);
            }
            self.check_at = now;
        }
        if now < self.check_at {
            return None;
        }
        self.check_at = now + self.poll * CHECK_EVERY;
        let next = match &self.last {
            None => tables.next(),
            Some(last) => tables.find(|table| table > last),
        };
        self.last.clone_from(&next);
        Some(next.map_or(Turn::List, Turn::Pointer))
    }

    /// Records that the document is being requested, for any reason.
    pub fn asked(&mut self, now: Duration) {
        (self.document_at, self.owed) = (now + self.poll, false);
    }

    /// Records two other requests, a read and a write. As many checks in turn are skipped, but at
    /// most three, however often this happens: otherwise a wrong document would stay.
    pub fn spend(&mut self, now: Duration) {
        let later = self.check_at.max(now) + self.poll * CHECK_EVERY * 2;
        self.check_at = later.min(now + self.poll * CHECK_EVERY * 3);
    }

    /// Records that the store did not answer.
    pub fn failed(&mut self, now: Duration) {
        let again = now + self.poll.min(RETRY);
        self.document_at = self.document_at.min(again);
    }

    /// Returns whether a hint is followed now; otherwise it is a little later. Any client may send
    /// hints, and requests cost money.
    pub fn follows_hint(&mut self, now: Duration) -> bool {
        let paid = self.hinted.max(now) + HINT;
        if paid <= now + HINT * HINTS {
            self.hinted = paid;
            return true;
        }
        if !self.owed {
            (self.owed, self.hinted) = (true, paid);
            let then = paid.saturating_sub(HINT * HINTS);
            self.document_at = self.document_at.min(then);
        }
        false
    }

    /// Returns when something is due next.
    pub fn due(&self) -> Duration {
        self.document_at.min(self.check_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn names() -> Vec<TableName> {
        ["a", "b"].map(|name| TableName::new(name).unwrap()).into()
    }

    fn asked(turns: &mut Turns, has_document: bool, until: u64) -> Vec<(u64, Turn)> {
        let mut all = Vec::new();
        for now in 1..=until {
            while let Some(turn) = turns.next(seconds(now), has_document, names().into_iter()) {
                all.push((now, turn));
            }
        }
        all
    }

    #[test]
    fn an_interval_has_one_request_and_a_fifth_for_any_number_of_tables() {
        let mut turns = Turns::new(seconds(6), Duration::ZERO);
        let all = asked(&mut turns, true, 600);
        assert_eq!(all.len(), 120, "0.2 a second");
        let checks = all.iter().filter(|(_, turn)| *turn != Turn::Document);
        let checks: Vec<(u64, Turn)> = checks.take(4).cloned().collect();
        let [a, b] = &names()[..] else { panic!() };
        let pointer = |name: &TableName| Turn::Pointer(name.clone());
        let expected = [pointer(a), pointer(b), Turn::List, pointer(a)];
        let expected: Vec<(u64, Turn)> = (1..).map(|n| n * 30).zip(expected).collect();
        assert_eq!(checks, expected);
    }

    #[test]
    fn other_requests_delay_regular_looks_only_briefly() {
        let mut turns = Turns::new(seconds(6), Duration::ZERO);
        for now in 1..=20 {
            turns.spend(seconds(now));
        }
        let all = asked(&mut turns, true, 120);
        let first = all.iter().find(|(_, turn)| *turn != Turn::Document);
        assert_eq!(first.unwrap().0, 20 + 90);
    }

    #[test]
    fn without_a_document_each_interval_has_one_of_the_others() {
        let mut turns = Turns::new(seconds(6), Duration::ZERO);
        let all = asked(&mut turns, false, 600);
        assert_eq!(all.len(), 100);
        assert!(all.iter().all(|(_, turn)| *turn != Turn::Document));
    }

    #[test]
    fn hints_are_followed_at_once_at_a_limited_rate_and_none_is_lost() {
        let mut turns = Turns::new(seconds(3600), Duration::ZERO);
        let begin = seconds(100);
        let followed = (0..1000).filter(|_| turns.follows_hint(begin)).count();
        assert_eq!(followed, 10);
        // The eleventh waits for a second.
        let next = |turns: &mut Turns, now| turns.next(now, true, names().into_iter());
        assert_eq!(next(&mut turns, begin), None);
        assert_eq!(turns.due(), begin + HINT);
        assert_eq!(next(&mut turns, begin + HINT), Some(Turn::Document));
        // However many hints there are, one a second is followed.
        let mut asked = 0;
        for tick in 1..=600 {
            let now = begin + HINT + Duration::from_millis(tick * 100);
            asked += usize::from(turns.follows_hint(now));
            asked += usize::from(next(&mut turns, now).is_some());
        }
        assert!((58..=61).contains(&asked), "{asked}");
    }
}
