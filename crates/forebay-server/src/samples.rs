//! Samples which keys clients ask for most, while an observer watches.
//!
//! Without an observer nothing is kept, and a command only checks a flag. A window first samples
//! every key. As more keys arrive, it samples fewer of them, each with a greater weight. So a
//! window of any traffic costs little time and at most some megabytes.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use forebay_engine::TableName;
use forebay_io::Random;
use parking_lot::{Mutex, RwLock};

/// The most windows at a time.
const MOST_WINDOWS: usize = 4;
/// After this many samples of one worker the weight of each doubles.
const SAMPLES_A_STEP: u64 = 1024;
/// The bytes that are kept of a key.
const MOST_KEY_BYTES: usize = 256;

/// The windows in which commands are sampled now.
#[derive(Debug, Default)]
pub struct Sampler {
    is_watched: AtomicBool,
    windows: RwLock<Vec<Arc<Window>>>,
}

/// A period in which commands are sampled.
#[derive(Debug)]
pub struct Window {
    workers: Box<[Mutex<Samples>]>,
}

/// An observer of a window, which ends the window when it is dropped.
#[derive(Debug)]
pub struct Watch {
    sampler: Arc<Sampler>,
    window: Arc<Window>,
}

/// The samples of one worker.
#[derive(Debug, Default)]
pub struct Samples {
    interval: SampleInterval,
    counts: SampleCounts,
}

/// Selects the keys that are sampled.
#[derive(Debug)]
struct SampleInterval {
    /// Keys that pass before the next one is sampled.
    left: u64,
    /// The number of keys that a sample represents.
    weight: u64,
    taken: u64,
}

/// Estimates of how many keys there were.
#[derive(Debug, Default)]
pub struct SampleCounts {
    /// The number of sampled keys.
    pub samples: u64,
    /// Whether some samples represent more than one key.
    pub is_estimate: bool,
    /// Keys by user; a command without keys counts as one.
    pub users: HashMap<Box<str>, u64>,
    pub keys: HashMap<SampledKey, RequestCount>,
}

/// A key of a table.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SampledKey {
    pub table: TableName,
    /// Present if known on this node.
    pub partition: Option<u32>,
    /// The first bytes of the key.
    pub key: Box<[u8]>,
}

/// How often an item was asked for.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct RequestCount {
    pub reads: u64,
    pub writes: u64,
    pub samples: u64,
}

impl Sampler {
    #[inline]
    pub fn is_watched(&self) -> bool {
        self.is_watched.load(Ordering::Relaxed)
    }

    /// Begins a window. `None` if there are too many. Some windows are reserved for administrators.
    pub fn watch(self: &Arc<Self>, workers: usize, administers: bool) -> Option<Watch> {
        let mut windows = self.windows.write();
        if windows.len() >= MOST_WINDOWS * if administers { 2 } else { 1 } {
            return None;
        }
        let window = Arc::new(Window {
            workers: (0..workers).map(|_| Mutex::default()).collect(),
        });
        windows.push(Arc::clone(&window));
        self.is_watched.store(true, Ordering::Relaxed);
        Some(Watch {
            sampler: Arc::clone(self),
            window,
        })
    }

    /// Lets each window record a worker's commands.
    pub fn each(&self, worker: usize, mut note: impl FnMut(&mut Samples)) {
        for window in self.windows.read().iter() {
            note(&mut window.workers[worker].lock());
        }
    }
}

impl Watch {
    /// Returns the samples of all workers so far.
    pub fn counts(&self) -> SampleCounts {
        let mut sum = SampleCounts::default();
        for worker in &self.window.workers {
            sum.add(&worker.lock().counts);
        }
        sum
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut windows = self.sampler.windows.write();
        windows.retain(|window| !Arc::ptr_eq(window, &self.window));
        let is_watched = !windows.is_empty();
        self.sampler.is_watched.store(is_watched, Ordering::Relaxed);
    }
}

impl Samples {
    /// Returns whether none of the next `keys` keys is sampled. If so, it skips them.
    pub fn skip_if_unsampled(&mut self, keys: u64) -> bool {
        let is_unsampled = self.interval.left >= keys;
        if is_unsampled {
            self.interval.left -= keys;
        }
        is_unsampled
    }

    /// Records a command of this many keys. `key` returns the key at a place if it belongs to a
    /// table.
    pub fn note(
        &mut self,
        random: &dyn Random,
        (user, writes): (&str, bool),
        keys: u64,
        key: impl Fn(u64) -> Option<SampledKey>,
    ) {
        let mut from = 0;
        while let Some((at, weight)) = self.interval.next(keys.max(1) - from, random) {
            let at = from + at;
            from = at + 1;
            self.counts.samples += 1;
            self.counts.is_estimate |= weight > 1;
            match self.counts.users.get_mut(user) {
                Some(asked) => *asked += weight,
                None => drop(self.counts.users.insert(user.into(), weight)),
            }
            if at < keys
                && let Some(key) = key(at)
            {
                let asked = self.counts.keys.entry(key).or_default();
                match writes {
                    true => asked.writes += weight,
                    false => asked.reads += weight,
                }
                asked.samples += 1;
            }
            if from == keys.max(1) {
                return;
            }
        }
    }
}

impl SampleInterval {
    /// Returns the first of these keys that is sampled, and its weight.
    fn next(&mut self, keys: u64, random: &dyn Random) -> Option<(u64, u64)> {
        if self.left >= keys {
            self.left -= keys;
            return None;
        }
        let (at, weight) = (self.left, self.weight);
        self.taken += 1;
        if self.taken.is_multiple_of(SAMPLES_A_STEP) {
            self.weight *= 2;
        }
        // On average one less than the weight, at random: a periodic workload does not bias the
        // samples.
        self.left = random.next_u64() % (2 * self.weight - 1);
        Some((at, weight))
    }
}

impl Default for SampleInterval {
    fn default() -> Self {
        Self {
            left: 0,
            weight: 1,
            taken: 0,
        }
    }
}

impl SampleCounts {
    fn add(&mut self, more: &SampleCounts) {
        self.samples += more.samples;
        self.is_estimate |= more.is_estimate;
        for (user, asked) in &more.users {
            *self.users.entry(user.clone()).or_default() += asked;
        }
        for (key, asked) in &more.keys {
            self.keys.entry(key.clone()).or_default().add(asked);
        }
    }
}

impl SampledKey {
    pub fn new(table: TableName, partition: Option<u32>, key: &[u8]) -> Self {
        let key = key[..key.len().min(MOST_KEY_BYTES)].into();
        Self {
            table,
            partition,
            key,
        }
    }
}

impl RequestCount {
    pub fn add(&mut self, more: &RequestCount) {
        self.reads += more.reads;
        self.writes += more.writes;
        self.samples += more.samples;
    }

    pub fn sum(&self) -> u64 {
        self.reads + self.writes
    }
}

#[cfg(test)]
mod tests {
    use forebay_io::SystemRandom;
    use forebay_io::sim::SeededRandom;

    use super::*;

    fn key(n: u64) -> Option<SampledKey> {
        let table = TableName::new("t").unwrap();
        Some(SampledKey::new(table, Some(7), n.to_string().as_bytes()))
    }

    #[test]
    fn few_keys_are_counted_one_by_one() {
        let (sampler, random) = (Arc::new(Sampler::default()), SystemRandom);
        assert!(!sampler.is_watched());
        let watch = sampler.watch(2, false).unwrap();
        assert!(sampler.is_watched());
        for (worker, writes) in [(0, false), (0, false), (1, true)] {
            sampler.each(worker, |samples| {
                samples.note(&random, ("ada", writes), 3, key)
            });
        }
        sampler.each(0, |samples| {
            samples.note(&random, ("bob", false), 0, |_| None)
        });
        let counts = watch.counts();
        assert_eq!((counts.samples, counts.is_estimate), (10, false));
        assert_eq!((counts.users["ada"], counts.users["bob"]), (9, 1));
        let asked = counts.keys[&key(2).unwrap()];
        assert_eq!((asked.reads, asked.writes, counts.keys.len()), (2, 1, 3));
        drop(watch);
        assert!(!sampler.is_watched());
    }

    #[test]
    fn many_keys_are_estimated_from_few() {
        let (random, mut samples) = (SeededRandom::new(7), Samples::default());
        let (commands, keys) = (200_000_u64, 10);
        for command in 0..commands {
            if command % 2 == 0 && samples.skip_if_unsampled(keys) {
                continue;
            }
            // One key of each command is the same.
            samples.note(&random, ("ada", false), keys, |at| {
                key(if at == 3 { 0 } else { at + command })
            });
        }
        let counts = samples.counts;
        assert!(counts.samples < 30_000, "{}", counts.samples);
        let near = |estimate: u64, real: u64, part: f64| {
            let off = (estimate as f64 - real as f64).abs() / real as f64;
            assert!(off < part, "{estimate} for {real}");
        };
        near(counts.users["ada"], commands * keys, 0.05);
        near(counts.keys[&key(0).unwrap()].reads, commands, 0.2);
    }

    #[test]
    fn the_number_of_windows_is_limited() {
        let sampler = Arc::new(Sampler::default());
        let mut all: Vec<_> = (0..MOST_WINDOWS)
            .map(|_| sampler.watch(1, false).unwrap())
            .collect();
        assert!(sampler.watch(1, false).is_none() && sampler.watch(1, true).is_some());
        all.pop();
        assert!(sampler.watch(1, false).is_some() && sampler.is_watched());
    }
}
