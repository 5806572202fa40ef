//! Collects consecutive GETs of one table and looks them up together.

use std::ops::Range;

use forebay_engine::live::{Expiry, LiveTable};
use forebay_engine::{Source, TableName};

use crate::command::{
    CommandError, KEYS_AT_ONCE, KeyGuard, Reading, find_source, reply_values, split,
};
use crate::config::HIGH_WATER;
use crate::execute::{Outcome, View, settle};
use crate::permits::ReadPermits;
use crate::resp::{Args, OwnedArgs, Reply};

/// The place of GET in the command table.
pub const GET: usize = 0;

/// GETs of one table, as ranges of the input.
#[derive(Debug, Default)]
pub struct CollectedGets {
    table: Range<usize>,
    /// The range of each key without its table. The command ends two bytes after it.
    keys: Vec<Range<usize>>,
}

/// GETs of one table for a thread that may wait.
#[derive(Debug)]
pub struct OwnedGets {
    table: Vec<u8>,
    keys: OwnedArgs,
}

/// The outcome of GETs. Those after the first `answered` have to wait, or found the replies full.
#[derive(Debug, Default)]
pub struct AnsweredGets<'t> {
    pub answered: usize,
    pub failed: usize,
    pub table: Option<&'t TableName>,
    /// Whether the first unanswered GET goes to another node.
    pub not_here: bool,
}

impl CollectedGets {
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    pub fn is_full(&self) -> bool {
        self.keys.len() == KEYS_AT_ONCE
    }

    pub fn clear(&mut self) {
        self.keys.clear();
    }

    /// Adds a GET of the wire key at this range of the input, if its table is that of the others.
    #[inline(always)]
    pub fn push(&mut self, input: &[u8], wire: Range<usize>) -> bool {
        let bytes = &input[wire.clone()];
        let key = if self.keys.is_empty() {
            let Ok((table, _)) = split(bytes) else {
                return false;
            };
            self.table = wire.start..wire.start + table.len();
            self.table.end + 1
        } else {
            let prefix = &input[self.table.start..=self.table.end];
            if !bytes.starts_with(prefix) {
                return false;
            }
            wire.start + prefix.len()
        };
        self.keys.push(key..wire.end);
        true
    }

    /// Returns where the command at `index` ends: an array ends with its last argument and a line
    /// end.
    pub fn end(&self, index: usize) -> usize {
        self.keys[index].end + 2
    }

    /// Answers the GETs that need not wait.
    #[inline]
    pub fn answer<'t>(&self, input: &[u8], view: &View<'t>, reply: &mut Reply) -> AnsweredGets<'t> {
        let mut keys: [&[u8]; KEYS_AT_ONCE] = [&[]; KEYS_AT_ONCE];
        for (key, place) in keys.iter_mut().zip(&self.keys) {
            *key = &input[place.clone()];
        }
        view.gets(&input[self.table.clone()], &keys[..self.keys.len()], reply)
    }

    /// Returns the table of the GETs.
    pub fn table<'i>(&self, input: &'i [u8]) -> &'i [u8] {
        &input[self.table.clone()]
    }

    /// Returns copies of the GETs from `index` on.
    pub fn owned(&self, input: &[u8], index: usize) -> OwnedGets {
        let keys = self.keys[index..].iter();
        OwnedGets {
            table: input[self.table.clone()].to_vec(),
            keys: keys.map(|place| &input[place.clone()]).collect(),
        }
    }
}

impl OwnedGets {
    pub fn new(table: &[u8], keys: OwnedArgs) -> Self {
        let table = table.to_vec();
        Self { table, keys }
    }

    pub fn table(&self) -> &[u8] {
        &self.table
    }

    pub fn keys(&self) -> Args<'_> {
        self.keys.borrow()
    }

    /// Answers the GET at `index` if possible.
    pub fn answer_one(&self, view: &View<'_>, index: usize, reply: &mut Reply) -> bool {
        let key = self.keys.borrow().get(index);
        view.gets(&self.table, &[key], reply).answered == 1
    }

    /// Answers some of the GETs, always including the first.
    pub fn answer<'t>(&self, view: &View<'t>, reply: &mut Reply) -> AnsweredGets<'t> {
        let mut all = AnsweredGets::default();
        for key in self.keys.borrow().iter() {
            if reply.len() >= HIGH_WATER {
                break;
            }
            let one = view.gets(&self.table, &[key], reply);
            all.answered += one.answered;
            all.failed += one.failed;
            all.table = all.table.or(one.table);
            all.not_here = one.not_here;
            if one.not_here {
                break;
            }
        }
        all
    }
}

impl<'t> View<'t> {
    /// Replies to GETs of keys of one table, up to the first that has to wait.
    #[inline]
    fn gets(&self, table: &[u8], keys: &[&[u8]], reply: &mut Reply) -> AnsweredGets<'t> {
        let source = match find_source(self.tables, self.user, table) {
            Ok(source) => source,
            Err(stop) => return self.refuse_gets(&stop, keys.len(), reply),
        };
        if let Source::Live(live) = source
            && self.tables.is_replica(live)
            && !self.has_permit
        {
            return self.replica_gets((table, live), keys, reply);
        }
        self.gets_of(source, keys, None, reply)
    }

    /// Replies to GETs of keys of replicas, as far as read permits are granted. It reads all
    /// together if one permit covers all, else one by one.
    fn replica_gets(
        &self,
        (table, live): (&[u8], &'t LiveTable),
        keys: &[&[u8]],
        reply: &mut Reply,
    ) -> AnsweredGets<'t> {
        match self.permits_of((table, live), keys) {
            Ok(permits) => self.gets_by_permit(&permits, live, keys, reply),
            Err(stop) if keys.len() == 1 => self.refuse_replica_get(stop, reply),
            Err(_) => self.each_replica_get((table, live), keys, reply),
        }
    }

    fn each_replica_get(
        &self,
        table: (&[u8], &'t LiveTable),
        keys: &[&[u8]],
        reply: &mut Reply,
    ) -> AnsweredGets<'t> {
        let mut all = AnsweredGets::default();
        for key in keys {
            let one = self.replica_gets(table, &[key], reply);
            all.table = all.table.or(one.table);
            (all.answered, all.failed) = (all.answered + one.answered, all.failed + one.failed);
            all.not_here = one.not_here;
            if one.answered == 0 {
                break;
            }
        }
        all
    }

    fn gets_by_permit(
        &self,
        permits: &ReadPermits<'_>,
        live: &'t LiveTable,
        keys: &[&[u8]],
        reply: &mut Reply,
    ) -> AnsweredGets<'t> {
        let before = reply.len();
        let expires = live.options().expiry != Expiry::Never;
        let clock_ms = expires.then(|| self.shared.store.clock().unix_ms());
        let all = self.gets_of(Source::Live(live), keys, clock_ms, reply);
        match permits.check(Outcome::Answered, before, reply) {
            Outcome::Replicas => AnsweredGets {
                not_here: true,
                ..AnsweredGets::default()
            },
            _ => all,
        }
    }

    fn refuse_replica_get(&self, stop: CommandError, reply: &mut Reply) -> AnsweredGets<'t> {
        let outcome = self.stop(stop, reply.len(), reply);
        let is_refused = usize::from(outcome == Outcome::Failed);
        AnsweredGets {
            answered: is_refused,
            failed: is_refused,
            not_here: matches!(outcome, Outcome::Replicas | Outcome::NotHere),
            ..AnsweredGets::default()
        }
    }

    /// Replies to GETs of keys of a table that may be read; see [`Reading::clock_ms`].
    #[inline]
    fn gets_of(
        &self,
        source: Source<'t>,
        keys: &[&[u8]],
        clock_ms: Option<u64>,
        reply: &mut Reply,
    ) -> AnsweredGets<'t> {
        let full_bytes = match self.may_wait {
            true => usize::MAX,
            false => HIGH_WATER,
        };
        let reading = Reading {
            may_wait: self.may_wait,
            held: KeyGuard::NOTHING,
            limit_bytes: self.shared.config.limits.reply_bytes,
            reply_start: None,
            full_bytes,
            clock_ms,
        };
        let (mut answered, mut failed, mut not_here) = (0, 0, false);
        while answered < keys.len() && reply.len() < full_bytes {
            let (more, answer) = reply_values(source, &keys[answered..], &reading, reply);
            answered += more;
            let start = reply.len();
            let outcome = settle(answer, start, reply);
            match self.lead_on(outcome, start, reply) {
                Outcome::Answered => {}
                Outcome::NotResident => break,
                Outcome::NotHere | Outcome::Replicas => {
                    not_here = true;
                    break;
                }
                Outcome::Failed | Outcome::Damaged => {
                    answered += 1;
                    failed += 1;
                }
            }
        }
        AnsweredGets {
            answered,
            failed,
            table: Some(source.table()),
            not_here,
        }
    }

    /// Replies to GETs of a table that cannot be read.
    #[cold]
    fn refuse_gets(
        &self,
        stop: &CommandError,
        count: usize,
        reply: &mut Reply,
    ) -> AnsweredGets<'t> {
        let mut gets = AnsweredGets::default();
        while gets.answered < count && !gets.not_here {
            let start = reply.len();
            let outcome = settle(Err(stop.clone()), start, reply);
            gets.not_here = self.lead_on(outcome, start, reply) == Outcome::NotHere;
            gets.answered += usize::from(!gets.not_here);
        }
        gets.failed = gets.answered;
        gets
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::COMMANDS;

    #[test]
    fn the_index_of_get_is_correct() {
        assert_eq!(COMMANDS[GET].name, "get");
    }

    #[test]
    fn only_keys_of_one_table_are_collected() {
        let input = b"a:1 a:22 ab:3 a b:4 :5";
        let mut gets = CollectedGets::default();
        assert!(!gets.push(input, 14..15));
        assert!(gets.push(input, 0..3));
        assert!(gets.push(input, 4..8));
        for other in [9..13, 14..15, 16..19, 20..22] {
            assert!(!gets.push(input, other));
        }
        let owned = gets.owned(input, 1);
        assert_eq!(
            (&owned.table[..], owned.keys),
            (&b"a"[..], [b"22"].into_iter().collect())
        );
        assert_eq!((gets.end(0), gets.end(1)), (5, 10));
        gets.clear();
        assert!(gets.push(input, 20..22));
        assert_eq!(gets.owned(input, 0).table, b"");
    }
}
