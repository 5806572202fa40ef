//! The memory that the live tables of a node may take together.
//!
//! Three eighths of a [`Budget`] are for generations that take writes, of all tables together: when
//! they reach that, the greatest one is frozen and written to the disk. As much again is for
//! generations that are being written; when both together take their six eighths, writes wait. The
//! rest is for the filters and indexes of runs. The buffers of partitions, at most some 300 KiB
//! each, come on top, and so does what flushes and merges need while they run, some 2 MiB a run.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;

/// The least memory that makes sense.
const MIN_BYTES: usize = 1 << 20;

/// See the module's text.
#[derive(Debug)]
pub struct Budget {
    limit_bytes: usize,
    mapped_limit_bytes: Option<usize>,
    /// The sums over all members.
    memtable_bytes: AtomicUsize,
    frozen_bytes: AtomicUsize,
    run_bytes: AtomicUsize,
    members: Mutex<Vec<Weak<Usage>>>,
}

/// What one table takes.
#[derive(Default)]
struct Usage {
    memtable_bytes: AtomicUsize,
    frozen_bytes: AtomicUsize,
    run_bytes: AtomicUsize,
    /// Why its generations cannot be written, while that is so.
    stuck: Mutex<Option<String>>,
    /// Has the table freeze its generation soon, from a thread of its own.
    ask: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl std::fmt::Debug for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let memtable_bytes = self.memtable_bytes.load(Ordering::Relaxed);
        f.debug_struct("Usage")
            .field("memtable_bytes", &memtable_bytes)
            .finish_non_exhaustive()
    }
}

impl Budget {
    /// A budget of so many bytes, but at least one MiB.
    pub fn new(limit_bytes: usize) -> Arc<Self> {
        Self::with_mapped_limit(limit_bytes, None)
    }

    /// [`Budget::new`] that also limits the pages of files that count as memory of this process:
    /// when they are more, runs give theirs back, within a second or so. The system keeps them in
    /// its cache, so that this costs the next look-up of each page a fault, not a read.
    pub fn with_mapped_limit(limit_bytes: usize, mapped_limit_bytes: Option<usize>) -> Arc<Self> {
        Arc::new(Self {
            limit_bytes: limit_bytes.max(MIN_BYTES),
            mapped_limit_bytes,
            memtable_bytes: AtomicUsize::new(0),
            frozen_bytes: AtomicUsize::new(0),
            run_bytes: AtomicUsize::new(0),
            members: Mutex::default(),
        })
    }

    pub fn limit_bytes(&self) -> usize {
        self.limit_bytes
    }

    pub(crate) fn mapped_limit_bytes(&self) -> Option<usize> {
        self.mapped_limit_bytes
    }

    /// What is taken now, for all purposes.
    pub fn used_bytes(&self) -> usize {
        self.write_bytes() + self.run_bytes.load(Ordering::Relaxed)
    }

    fn write_bytes(&self) -> usize {
        self.memtable_bytes.load(Ordering::Relaxed) + self.frozen_bytes.load(Ordering::Relaxed)
    }

    /// What generations that take writes may take together.
    pub(crate) fn memtable_share(&self) -> usize {
        self.limit_bytes / 8 * 3
    }

    /// How much of the memory for writes is taken: 1 and above means that writes must wait.
    pub(crate) fn write_pressure(&self) -> f64 {
        self.write_bytes() as f64 / (2 * self.memtable_share()) as f64
    }

    /// What is left for the filters and indexes of runs to come.
    pub(crate) fn run_room(&self) -> usize {
        let share = self.limit_bytes / 4;
        share.saturating_sub(self.run_bytes.load(Ordering::Relaxed))
    }

    pub(crate) fn join(self: &Arc<Self>) -> Member {
        let usage = Arc::new(Usage::default());
        let mut members = self.members.lock();
        members.retain(|member| member.strong_count() > 0);
        members.push(Arc::downgrade(&usage));
        Member {
            budget: Arc::clone(self),
            usage,
        }
    }

    /// Sees to it that memory for writes comes back: that some is being written, or has its table
    /// asked for it. An error is why none will.
    pub(crate) fn make_room(&self) -> Result<(), String> {
        let members: Vec<_> = self
            .members
            .lock()
            .iter()
            .filter_map(Weak::upgrade)
            .collect();
        let (stuck, moving): (Vec<_>, Vec<_>) = members
            .into_iter()
            .partition(|usage| usage.stuck.lock().is_some());
        let frozen = |usage: &Arc<Usage>| usage.frozen_bytes.load(Ordering::Relaxed);
        let in_memory = |usage: &Arc<Usage>| usage.memtable_bytes.load(Ordering::Relaxed);
        if moving.iter().any(|usage| frozen(usage) > 0) {
            return Ok(());
        }
        if let Some(usage) = moving.iter().max_by_key(|usage| in_memory(usage))
            && in_memory(usage) > 0
        {
            if let Some(ask) = usage.ask.get() {
                ask();
            }
            return Ok(());
        }
        let why = stuck.into_iter().max_by_key(frozen);
        match why.and_then(|usage| usage.stuck.lock().clone()) {
            Some(why) => Err(why),
            None => Ok(()),
        }
    }

    /// The member whose generation is the greatest.
    fn greatest(&self) -> Option<Arc<Usage>> {
        let members = self.members.lock();
        let members = members.iter().filter_map(Weak::upgrade);
        members.max_by_key(|usage| usage.memtable_bytes.load(Ordering::Relaxed))
    }
}

/// A table's part in a [`Budget`]; what it takes is given back when this is dropped.
#[derive(Debug)]
pub(crate) struct Member {
    budget: Arc<Budget>,
    usage: Arc<Usage>,
}

impl Member {
    pub fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// Sets what is called, from any thread, when this table is to freeze its generation.
    pub fn on_asked(&self, ask: impl Fn() + Send + Sync + 'static) {
        // Called once; a second call would change nothing.
        let _ = self.usage.ask.set(Box::new(ask));
    }

    pub fn memtable_bytes(&self) -> usize {
        self.usage.memtable_bytes.load(Ordering::Relaxed)
    }

    pub fn frozen_bytes(&self) -> usize {
        self.usage.frozen_bytes.load(Ordering::Relaxed)
    }

    /// Says why the table's generations cannot be written, or that they can.
    pub fn set_stuck(&self, why: Option<String>) {
        *self.usage.stuck.lock() = why;
    }

    pub fn run_bytes(&self) -> usize {
        self.usage.run_bytes.load(Ordering::Relaxed)
    }

    /// Takes note of memory that filled. Returns whether this table's generation is to be frozen
    /// now; when it is another one's turn, that table is asked to.
    pub fn grow(&self, bytes: usize) -> bool {
        self.usage
            .memtable_bytes
            .fetch_add(bytes, Ordering::Relaxed);
        let sum = self
            .budget
            .memtable_bytes
            .fetch_add(bytes, Ordering::Relaxed)
            + bytes;
        if sum < self.budget.memtable_share() {
            return false;
        }
        match self.budget.greatest() {
            Some(usage) if !Arc::ptr_eq(&usage, &self.usage) => {
                if let Some(ask) = usage.ask.get() {
                    ask();
                }
                false
            }
            _ => true,
        }
    }

    /// Runs in memory were merged: they took `old` bytes and take `new` now.
    pub fn regrow(&self, old: usize, new: usize) {
        for sum in [&self.usage.memtable_bytes, &self.budget.memtable_bytes] {
            sum.fetch_add(new, Ordering::Relaxed);
            sum.fetch_sub(old, Ordering::Relaxed);
        }
    }

    /// The generation was frozen; returns what it takes. REQUIRES: nothing grows meanwhile.
    pub fn freeze(&self) -> usize {
        // Counted twice for a moment rather than not at all.
        let bytes = self.memtable_bytes();
        for sum in [&self.budget.frozen_bytes, &self.usage.frozen_bytes] {
            sum.fetch_add(bytes, Ordering::Relaxed);
        }
        for sum in [&self.budget.memtable_bytes, &self.usage.memtable_bytes] {
            sum.fetch_sub(bytes, Ordering::Relaxed);
        }
        bytes
    }

    /// A frozen generation was written.
    pub fn thaw(&self, bytes: usize) {
        for sum in [&self.budget.frozen_bytes, &self.usage.frozen_bytes] {
            sum.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    /// Filters and indexes of the runs take so much now.
    pub fn set_run_bytes(&self, bytes: usize) {
        let before = self.usage.run_bytes.swap(bytes, Ordering::Relaxed);
        self.budget.run_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.budget.run_bytes.fetch_sub(before, Ordering::Relaxed);
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.set_run_bytes(0);
        self.freeze();
        self.thaw(self.frozen_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn the_greatest_table_is_the_one_to_freeze() {
        let budget = Budget::new(8 << 20);
        let (small, great) = (budget.join(), budget.join());
        let asked = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&asked);
        great.on_asked(move || flag.store(true, Ordering::Relaxed));
        assert!(!great.grow(2 << 20));
        assert!(!small.grow(900 << 10));
        assert!(!asked.load(Ordering::Relaxed));
        assert!(!small.grow(200 << 10));
        assert!(asked.load(Ordering::Relaxed));
        assert_eq!(great.freeze(), 2 << 20);
        assert!(!small.grow(1 << 20));
        assert!(small.grow(2 << 20));
    }

    #[test]
    fn what_a_table_took_is_given_back_when_it_goes() {
        let budget = Budget::new(8 << 20);
        let member = budget.join();
        member.grow(1 << 20);
        member.freeze();
        member.grow(1 << 20);
        member.set_run_bytes(5);
        assert_eq!(budget.used_bytes(), (2 << 20) + 5);
        assert!(budget.write_pressure() > 0.3);
        drop(member);
        assert_eq!(budget.used_bytes(), 0);
    }
}
