//! The memory that all live tables of a node may use together.
//!
//! Three eighths of a [`Budget`] are for generations that take writes, of all tables together, with
//! the buffers of their partitions. When these reach the limit, the largest ones are frozen and
//! written to the disk, until the others use a quarter less. Another three eighths are for
//! generations that are being written. When both together use their six eighths, writes wait. The
//! rest is for the filters and indexes of runs. Running flushes and merges need some 2 MiB a run on
//! top of this. At most as many tables flush at once, and as many merge, as there are processors.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use forebay_io::start_thread;
use parking_lot::{Condvar, Mutex};
use tracing::warn;

use crate::live::basics::promised_files::PromisedFiles;
use crate::live::basics::turns::Turns;

/// The smallest useful amount of memory.
const MIN_BYTES: usize = 1 << 20;
/// A table with less in memory is not asked to flush in order to free memory for others.
const LEAST_ASKED_BYTES: usize = 256 << 10;

/// A limit for the memory of several live tables. It decides which table flushes next.
#[derive(Debug)]
pub struct Budget {
    limit_bytes: usize,
    mapped_limit_bytes: Option<usize>,
    /// The sums over all members.
    memtable_bytes: AtomicUsize,
    frozen_bytes: AtomicUsize,
    run_bytes: AtomicUsize,
    members: Mutex<Vec<Weak<Usage>>>,
    is_by_hand: bool,
    ticking: Mutex<Option<Arc<Ticking>>>,
    flush_turns: Turns,
    merge_turns: Turns,
    promised_files: PromisedFiles,
}

/// Whether the thread that runs the tables' periodic tasks is to end.
#[derive(Debug, Default)]
struct Ticking {
    ends: Mutex<bool>,
    ended: Condvar,
}

/// A task that the budget runs for a table. Its lock is held while it runs, so that a table that
/// removes the task knows that it is not running.
type TableTask = Box<dyn Fn() + Send>;

/// The interval of the tables' periodic tasks.
const SECOND: Duration = Duration::from_secs(1);

/// The memory that one table uses.
#[derive(Default)]
struct Usage {
    memtable_bytes: AtomicUsize,
    frozen_bytes: AtomicUsize,
    run_bytes: AtomicUsize,
    /// The reason why its generations cannot be written, while they cannot.
    stuck: Mutex<Option<String>>,
    /// Whether its generation is to be frozen soon.
    is_asked: AtomicBool,
    /// Makes the table freeze its generation soon, on a thread of its own.
    ask: Mutex<Option<TableTask>>,
    /// The table's task for every second.
    second: Mutex<Option<TableTask>>,
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
    /// Creates a budget of the given bytes, but of at least 1 MiB.
    pub fn new(limit_bytes: usize) -> Arc<Self> {
        Self::with_mapped_limit(limit_bytes, None)
    }

    /// [`Budget::new`] that also limits the pages of files that count as memory of this process.
    /// When there are more, runs give theirs back within a second or so. The system keeps them in
    /// its cache, so the next look-up of each page costs a fault, not a read.
    pub fn with_mapped_limit(limit_bytes: usize, mapped_limit_bytes: Option<usize>) -> Arc<Self> {
        Self::of(limit_bytes, mapped_limit_bytes, false)
    }

    /// [`Budget::new`] whose tables start no threads. The caller does their work by
    /// [`LiveTable::step`](crate::live::LiveTable::step), or while it waits for it. This gives
    /// tests the same order of events each time, with tables that have no log of their own.
    pub fn by_hand(limit_bytes: usize) -> Arc<Self> {
        Self::of(limit_bytes, None, true)
    }

    fn of(limit_bytes: usize, mapped_limit_bytes: Option<usize>, is_by_hand: bool) -> Arc<Self> {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        // With two, a table that waits for the device does not block all others.
        let at_once = processors.max(2);
        Arc::new(Self {
            limit_bytes: limit_bytes.max(MIN_BYTES),
            mapped_limit_bytes,
            memtable_bytes: AtomicUsize::new(0),
            frozen_bytes: AtomicUsize::new(0),
            run_bytes: AtomicUsize::new(0),
            members: Mutex::default(),
            is_by_hand,
            ticking: Mutex::default(),
            flush_turns: Turns::new(at_once),
            merge_turns: Turns::new(at_once),
            promised_files: PromisedFiles::default(),
        })
    }

    pub(crate) fn is_by_hand(&self) -> bool {
        self.is_by_hand
    }

    pub fn limit_bytes(&self) -> usize {
        self.limit_bytes
    }

    /// Returns how many tables share the budget.
    pub(crate) fn tables(&self) -> usize {
        let members = self.members.lock();
        members
            .iter()
            .filter(|table| table.strong_count() > 0)
            .count()
    }

    pub(crate) fn flush_turns(&self) -> &Turns {
        &self.flush_turns
    }

    pub(crate) fn merge_turns(&self) -> &Turns {
        &self.merge_turns
    }

    pub(crate) fn promised_files(&self) -> &PromisedFiles {
        &self.promised_files
    }

    pub(crate) fn mapped_limit_bytes(&self) -> Option<usize> {
        self.mapped_limit_bytes
    }

    /// Returns the memory in use, for all purposes.
    pub fn used_bytes(&self) -> usize {
        self.write_bytes() + self.run_bytes.load(Ordering::Relaxed)
    }

    /// Returns the memory of all generations, including those that wait to be written.
    pub(crate) fn write_bytes(&self) -> usize {
        self.memtable_bytes.load(Ordering::Relaxed) + self.frozen_bytes.load(Ordering::Relaxed)
    }

    /// Returns the limit for generations that take writes, of all tables together.
    pub(crate) fn memtable_share(&self) -> usize {
        self.limit_bytes / 8 * 3
    }

    /// Returns the used share of the memory for writes. At 1 and above, writes must wait.
    pub(crate) fn write_pressure(&self) -> f64 {
        self.write_bytes() as f64 / (2 * self.memtable_share()) as f64
    }

    /// Returns the memory that is left for the filters and indexes of new runs.
    pub(crate) fn run_room(&self) -> usize {
        let share = self.limit_bytes / 4;
        share.saturating_sub(self.run_bytes.load(Ordering::Relaxed))
    }

    pub(crate) fn join(self: &Arc<Self>) -> Member {
        let usage = Arc::new(Usage::default());
        let mut members = self.members.lock();
        members.retain(|member| member.strong_count() > 0);
        members.push(Arc::downgrade(&usage));
        drop(members);
        self.tick();
        Member {
            budget: Arc::clone(self),
            usage,
        }
    }

    /// Starts the thread for the tables' periodic tasks, if it does not run.
    fn tick(self: &Arc<Self>) {
        let mut ticking = self.ticking.lock();
        if ticking.is_some() || self.is_by_hand {
            return;
        }
        let (shared, budget) = (Arc::new(Ticking::default()), Arc::downgrade(self));
        let inside = Arc::clone(&shared);
        match start_thread("live tables", move || run_ticks(&inside, &budget)) {
            Ok(_) => *ticking = Some(shared),
            Err(error) => warn!(%error, "no thread to look after live tables: tried again soon"),
        }
    }

    fn upgraded(&self) -> Vec<Arc<Usage>> {
        let members = self.members.lock();
        members.iter().filter_map(Weak::upgrade).collect()
    }

    /// Makes sure that some memory for writes will be freed: that some is being written, or that a
    /// table is asked to write it. The error says why none will be.
    pub(crate) fn make_room(&self) -> Result<(), String> {
        let (stuck, moving): (Vec<_>, Vec<_>) = self
            .upgraded()
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
            do_it(&usage.ask);
            return Ok(());
        }
        let why = stuck.into_iter().max_by_key(frozen);
        match why.and_then(|usage| usage.stuck.lock().clone()) {
            Some(why) => Err(why),
            None => Ok(()),
        }
    }

    /// Asks tables with a large share of all memory to freeze their generations, unless these are
    /// being written.
    pub(crate) fn ask_great_ones(&self) {
        let share = (self.write_bytes() / 8).max(LEAST_ASKED_BYTES);
        for usage in self.upgraded() {
            let is_great = usage.memtable_bytes.load(Ordering::Relaxed) >= share;
            if is_great && usage.frozen_bytes.load(Ordering::Relaxed) == 0 {
                do_it(&usage.ask);
            }
        }
    }

    /// Asks the members with the largest generations to freeze them, as many as are needed. Returns
    /// whether `own` is one of them; it is not asked.
    #[cold]
    fn press(&self, own: &Arc<Usage>) -> bool {
        let bytes = |usage: &Arc<Usage>| usage.memtable_bytes.load(Ordering::Relaxed);
        let (asked, mut others): (Vec<_>, Vec<_>) = self
            .upgraded()
            .into_iter()
            .partition(|usage| usage.is_asked.load(Ordering::Relaxed));
        let going: usize = asked.iter().map(bytes).sum();
        let all = self.memtable_bytes.load(Ordering::Relaxed);
        let mut staying = all.saturating_sub(going);
        if staying < self.memtable_share() {
            return false;
        }
        others.sort_by_cached_key(|usage| std::cmp::Reverse(bytes(usage)));
        let mut is_own = false;
        for usage in others {
            if staying <= self.memtable_share() / 4 * 3 {
                break;
            }
            if Arc::ptr_eq(&usage, own) {
                is_own = true;
            } else if !do_it(&usage.ask) {
                // The table is being opened, or closed.
                continue;
            }
            usage.is_asked.store(true, Ordering::Relaxed);
            staying = staying.saturating_sub(bytes(&usage));
        }
        is_own
    }
}

impl Drop for Budget {
    fn drop(&mut self) {
        if let Some(ticking) = &*self.ticking.lock() {
            *ticking.ends.lock() = true;
            ticking.ended.notify_all();
        }
    }
}

/// Runs the task, if there is one. Returns whether there was.
fn do_it(act: &Mutex<Option<TableTask>>) -> bool {
    let act = act.lock();
    act.as_ref().map(|act| act()).is_some()
}

fn run_ticks(ticking: &Ticking, budget: &Weak<Budget>) {
    loop {
        let mut ends = ticking.ends.lock();
        if !*ends {
            ticking.ended.wait_for(&mut ends, SECOND);
        }
        if *ends {
            return;
        }
        drop(ends);
        let usages = match budget.upgrade() {
            Some(budget) => budget.upgraded(),
            None => return,
        };
        for usage in usages {
            do_it(&usage.second);
        }
    }
}

/// Subtracts bytes from a sum that includes them.
#[inline]
fn give_back(sum: &AtomicUsize, bytes: usize) {
    let before = sum.fetch_sub(bytes, Ordering::Relaxed);
    debug_assert!(
        before >= bytes,
        "{bytes} bytes are given back to a budget that counts {before}"
    );
}

/// A table's part in a [`Budget`]. Dropping it gives its memory back.
#[derive(Debug)]
pub(crate) struct Member {
    budget: Arc<Budget>,
    usage: Arc<Usage>,
}

impl Member {
    pub fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// Sets the task that is called, from any thread, when this table is to freeze its generation.
    pub fn on_asked(&self, ask: impl Fn() + Send + 'static) {
        *self.usage.ask.lock() = Some(Box::new(ask));
    }

    pub fn memtable_bytes(&self) -> usize {
        self.usage.memtable_bytes.load(Ordering::Relaxed)
    }

    pub fn frozen_bytes(&self) -> usize {
        self.usage.frozen_bytes.load(Ordering::Relaxed)
    }

    /// Sets the task that is called every second or so, from one thread for all tables of the
    /// budget.
    pub fn on_second(&self, act: impl Fn() + Send + 'static) {
        *self.usage.second.lock() = Some(Box::new(act));
    }

    /// Removes both tasks. After this returns, neither runs or will run.
    pub fn leave_alone(&self) {
        *self.usage.ask.lock() = None;
        *self.usage.second.lock() = None;
    }

    /// Sets the reason why the table's generations cannot be written, or clears it.
    pub fn set_stuck(&self, why: Option<String>) {
        *self.usage.stuck.lock() = why;
    }

    pub fn run_bytes(&self) -> usize {
        self.usage.run_bytes.load(Ordering::Relaxed)
    }

    /// Counts memory that was filled. Returns whether this table's generation is to be frozen now.
    /// If it is another table's turn, that table is asked to freeze.
    pub fn grow(&self, bytes: usize) -> bool {
        self.usage
            .memtable_bytes
            .fetch_add(bytes, Ordering::Relaxed);
        let sum = self
            .budget
            .memtable_bytes
            .fetch_add(bytes, Ordering::Relaxed)
            + bytes;
        sum >= self.budget.memtable_share() && self.budget.press(&self.usage)
    }

    /// Records that there was nothing to freeze.
    pub fn has_nothing(&self) {
        self.usage.is_asked.store(false, Ordering::Relaxed);
    }

    /// Replaces a count of `old` bytes by `new`.
    pub fn regrow(&self, old: usize, new: usize) {
        for sum in [&self.usage.memtable_bytes, &self.budget.memtable_bytes] {
            sum.fetch_add(new, Ordering::Relaxed);
            give_back(sum, old);
        }
    }

    /// Records that the generation was frozen; returns its bytes. REQUIRES: nothing grows
    /// meanwhile.
    pub fn freeze(&self) -> usize {
        self.has_nothing();
        self.freeze_some(self.memtable_bytes())
    }

    /// Records that a part of the generation with this many bytes was frozen; returns them.
    pub fn freeze_some(&self, bytes: usize) -> usize {
        // Counted twice for a moment rather than not at all.
        for sum in [&self.budget.frozen_bytes, &self.usage.frozen_bytes] {
            sum.fetch_add(bytes, Ordering::Relaxed);
        }
        for sum in [&self.budget.memtable_bytes, &self.usage.memtable_bytes] {
            give_back(sum, bytes);
        }
        bytes
    }

    /// Records that a frozen generation was written.
    pub fn thaw(&self, bytes: usize) {
        for sum in [&self.budget.frozen_bytes, &self.usage.frozen_bytes] {
            give_back(sum, bytes);
        }
    }

    /// Sets the memory of the runs' filters and indexes.
    pub fn set_run_bytes(&self, bytes: usize) {
        let before = self.usage.run_bytes.swap(bytes, Ordering::Relaxed);
        self.budget.run_bytes.fetch_add(bytes, Ordering::Relaxed);
        give_back(&self.budget.run_bytes, before);
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
    fn the_largest_table_is_frozen_first() {
        let budget = Budget::new(8 << 20);
        let (small, great) = (budget.join(), budget.join());
        let asked = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&asked);
        great.on_asked(move || flag.store(true, Ordering::Relaxed));
        assert!(!great.grow(2 << 20));
        assert!(!small.grow(900 << 10));
        assert!(!asked.load(Ordering::Relaxed));
        assert!(!small.grow(200 << 10));
        assert!(asked.swap(false, Ordering::Relaxed));
        // The freeze is under way; no table is asked twice.
        assert!(!small.grow(500 << 10));
        assert!(!asked.load(Ordering::Relaxed));
        assert_eq!(great.freeze(), 2 << 20);
        assert!(!small.grow(500 << 10));
        assert!(small.grow(2 << 20));
    }

    #[test]
    fn as_many_small_tables_are_asked_as_are_needed() {
        let budget = Budget::new(8 << 20);
        let members: Vec<_> = (0..32).map(|_| budget.join()).collect();
        let asked = Arc::new(AtomicUsize::new(0));
        for member in &members {
            let asked = Arc::clone(&asked);
            member.on_asked(move || {
                asked.fetch_add(1, Ordering::Relaxed);
            });
        }
        let own = members.iter().map(|member| member.grow(96 << 10));
        let own = own.filter(|freeze| *freeze).count();
        // A quarter of 3 MiB, in pieces of 96 KiB.
        assert_eq!(asked.load(Ordering::Relaxed) + own, 8);
    }

    #[test]
    fn a_dropped_table_returns_its_memory() {
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
