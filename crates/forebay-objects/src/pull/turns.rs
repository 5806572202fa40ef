//! When a node asks the store for what. While nothing happens, that is all that it asks: the
//! document of all tables once in each interval, and in each fifth one object more, in turn, that
//! tells whether the document is right: the list of tables, and each table's pointer.
//!
//! Where there is no document, and none can be made, each interval has one of those.

use std::time::Duration;

use forebay_engine::TableName;

/// Intervals between two objects that are looked at in turn.
const CHECK_EVERY: u32 = 5;
/// After a failure, should the interval be longer.
const RETRY: Duration = Duration::from_secs(2);
/// Hints that are followed at once, and how long it takes until one more is.
const HINTS: u32 = 10;
const HINT: Duration = Duration::from_secs(1);

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Turn {
    Document,
    List,
    Pointer(TableName),
}

/// See the module's text.
#[derive(Debug)]
pub struct Turns {
    poll: Duration,
    document_at: Duration,
    check_at: Duration,
    /// The table whose pointer was looked at last.
    last: Option<TableName>,
    /// Until then hints have been paid for.
    hinted: Duration,
    /// A hint waits until it may be followed: the document's next turn is then.
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

    /// What is due, of a store with a document or without, and tables in rising order.
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

    /// The document is asked for now, for whatever reason.
    pub fn asked(&mut self, now: Duration) {
        (self.document_at, self.owed) = (now + self.poll, false);
    }

    /// Something else took two requests, a read and a write: as many looks in turn are left out,
    /// and three at most, however often that is, or what is wrong would stay.
    pub fn spend(&mut self, now: Duration) {
        let later = self.check_at.max(now) + self.poll * CHECK_EVERY * 2;
        self.check_at = later.min(now + self.poll * CHECK_EVERY * 3);
    }

    /// The store did not answer.
    pub fn failed(&mut self, now: Duration) {
        let again = now + self.poll.min(RETRY);
        self.document_at = self.document_at.min(again);
    }

    /// Whether a hint is followed now, else it is a little later. Anybody may give hints, and
    /// requests cost money.
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

    /// When something is due next.
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
    fn whatever_the_number_of_tables_an_interval_has_one_request_and_a_fifth() {
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
    fn what_else_is_asked_puts_looks_in_turn_off_but_not_for_long() {
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
    fn hints_are_followed_at_once_but_not_for_ever_and_none_is_lost() {
        let mut turns = Turns::new(seconds(3600), Duration::ZERO);
        let begin = seconds(100);
        let followed = (0..1000).filter(|_| turns.follows_hint(begin)).count();
        assert_eq!(followed, 10);
        // The eleventh waits for a second.
        let next = |turns: &mut Turns, now| turns.next(now, true, names().into_iter());
        assert_eq!(next(&mut turns, begin), None);
        assert_eq!(turns.due(), begin + HINT);
        assert_eq!(next(&mut turns, begin + HINT), Some(Turn::Document));
        // However many come, it is one a second.
        let mut asked = 0;
        for tick in 1..=600 {
            let now = begin + HINT + Duration::from_millis(tick * 100);
            asked += usize::from(turns.follows_hint(now));
            asked += usize::from(next(&mut turns, now).is_some());
        }
        assert!((58..=61).contains(&asked), "{asked}");
    }
}
