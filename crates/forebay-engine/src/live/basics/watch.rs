//! Watches of keys: whether a key was written to since a moment.
//!
//! Writers notify the watchers of their key under the partition's lock. A thread that finds, under
//! that lock, that its keys are unchanged knows that no write came between.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use crate::live::basics::removed::KeyRange;

/// A watch that reports whether a key was written to since it began, with any value; see
/// [`LiveTable::watch`](crate::live::LiveTable::watch). A load into the partition counts as a
/// write, whichever keys it has. The expiry of a value does not.
#[derive(Debug, Clone)]
pub struct KeyWatch(Arc<AtomicBool>);

impl KeyWatch {
    pub fn is_written(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// The watchers of a partition's keys.
#[derive(Debug, Default)]
pub(crate) struct Watchers {
    by_key: HashMap<Box<[u8]>, Vec<Weak<AtomicBool>>>,
    /// When there are this many keys, the next `add` removes keys that nobody watches any more.
    clean_at: usize,
}

/// The first value of [`Watchers::clean_at`].
const FIRST_CLEAN_AT: usize = 64;

impl Watchers {
    pub fn add(&mut self, key: &[u8]) -> KeyWatch {
        if self.by_key.len() >= self.clean_at {
            self.clean();
        }
        let flag = Arc::default();
        let watchers = self.by_key.entry(key.into()).or_default();
        watchers.retain(|watcher| watcher.strong_count() > 0);
        watchers.push(Arc::downgrade(&flag));
        KeyWatch(flag)
    }

    fn clean(&mut self) {
        self.by_key
            .retain(|_, watchers| watchers.iter().any(|watcher| watcher.strong_count() > 0));
        self.clean_at = (2 * self.by_key.len()).max(FIRST_CLEAN_AT);
    }

    /// Notifies the watchers of a key that is written to.
    #[inline]
    pub fn written(&mut self, key: &[u8]) {
        if !self.by_key.is_empty()
            && let Some(watchers) = self.by_key.remove(key)
        {
            notify(watchers);
        }
    }

    /// Notifies the watchers of a range's keys that exist, as they are deleted.
    pub fn removed(&mut self, range: &KeyRange, is_there: impl Fn(&[u8]) -> bool) {
        let of_range = self
            .by_key
            .extract_if(|key, _| range.covers(key) && is_there(key));
        of_range.for_each(|(_, watchers)| notify(watchers));
    }

    /// Takes out the watchers of some keys, for the partition that has these from now on.
    pub fn take(&mut self, is_of: impl Fn(&[u8]) -> bool) -> Self {
        Self {
            by_key: self.by_key.extract_if(|key, _| is_of(key)).collect(),
            clean_at: self.clean_at,
        }
    }

    /// Notifies all watchers: any key may be written to.
    pub fn all_written(&mut self) {
        std::mem::take(&mut self.by_key)
            .into_values()
            .for_each(notify);
    }
}

/// A watcher of a table that is closed learns of no more writes.
impl Drop for Watchers {
    fn drop(&mut self) {
        self.all_written();
    }
}

fn notify(watchers: Vec<Weak<AtomicBool>>) {
    for watcher in watchers.iter().filter_map(Weak::upgrade) {
        watcher.store(true, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Bound;

    use super::*;

    #[test]
    fn a_watched_key_reports_only_writes_to_itself() {
        let mut watchers = Watchers::default();
        let (a, also_a, b) = (watchers.add(b"a"), watchers.add(b"a"), watchers.add(b"b"));
        watchers.written(b"c");
        assert!(!a.is_written() && !b.is_written());
        watchers.written(b"a");
        assert!(a.is_written() && also_a.is_written() && !b.is_written());
        let [c, d, e] = [b"c", b"d", b"e"].map(|key| watchers.add(key));
        let after_c = KeyRange::between(Bound::Excluded(b"c"), Bound::Unbounded);
        watchers.removed(&after_c, |key| key != b"e");
        assert!(d.is_written() && !c.is_written() && !e.is_written());
        let again = watchers.add(b"a");
        watchers.all_written();
        assert!(again.is_written() && b.is_written());
    }

    #[test]
    fn keys_without_watchers_take_no_memory() {
        let mut watchers = Watchers::default();
        for number in 0..10_000u32 {
            watchers.add(&number.to_le_bytes());
        }
        assert!(watchers.by_key.len() <= FIRST_CLEAN_AT + 1);
        let kept: Vec<_> = (0..1000u32)
            .map(|n| watchers.add(&n.to_le_bytes()))
            .collect();
        watchers.written(&7u32.to_le_bytes());
        assert_eq!(kept.iter().filter(|watch| watch.is_written()).count(), 1);
    }
}
