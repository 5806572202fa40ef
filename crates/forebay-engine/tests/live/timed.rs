//! Tables whose records expire, against a map with expiry times: random operations, with a clock
//! that only the test moves.

use forebay_engine::{PartitionId, PartitionRange};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use forebay_engine::Store;
use forebay_engine::live::{Batch, Expiry, IngestRun, LiveDraft, LiveOptions, LiveTable, Snapshot};
use forebay_io::sim::{HandClock, Rng, SimDisk};
use forebay_io::{Clock, Disk};
use forebay_run::format::MAX_KEY_BYTES;
use forebay_run::operation::Operation;
use forebay_run::times::Times;
use forebay_run::{Order, RunWriter};

use crate::common::{name, random, root};
use crate::live::history::{Map, Op, add};
use crate::live::life::{KINDS, budget, collect, keys, op, options};
use crate::live::{for_seeds, one_of};

const STEPS: u64 = 150;
const LIFETIME_MS: u64 = 50;

/// Values and their expiry times; expired values stay until they are written again.
type TimedValues = BTreeMap<Vec<u8>, (Vec<u8>, u64)>;

struct TimedLife {
    disk: SimDisk,
    clock: Arc<HandClock>,
    table: LiveTable,
    options: LiveOptions,
    state: TimedValues,
}

fn store(disk: &SimDisk, clock: &Arc<HandClock>, seed: u64) -> Store {
    let (disk, clock) = (Arc::new(disk.clone()), Arc::clone(clock));
    Store::open_or_create(disk, clock, random(seed), root()).unwrap()
}

impl TimedLife {
    fn new(draft: LiveDraft) -> Self {
        let (disk, clock) = (SimDisk::new(), Arc::new(HandClock::of_dates(1_000_000)));
        let store = store(&disk, &clock, 7);
        let table = store.create_live(&name("t"), draft.clone(), &budget());
        Self {
            disk,
            clock,
            table: table.unwrap(),
            options: draft.options,
            state: TimedValues::new(),
        }
    }

    fn now_ms(&self) -> u64 {
        self.clock.unix_ms()
    }

    /// Returns the operation's own expiry time, if any; sometimes one in the past.
    fn moment(&self, rng: &mut Rng) -> Option<u64> {
        match rng.below(3) {
            0 => Some(self.now_ms() + rng.below(60) - 5),
            _ => None,
        }
    }

    /// Applies an operation with such an expiry time to a key.
    fn apply(&mut self, op: &Op, moment: Option<u64>) {
        let now_ms = self.now_ms();
        let expires_ms = moment.unwrap_or(match self.options.expiry {
            Expiry::AfterMs(ms) => now_ms + ms,
            _ => u64::MAX,
        });
        let found = self.state.get(op.key());
        let alive = found.filter(|(_, until_ms)| now_ms < *until_ms);
        let value = match (op.clone(), alive) {
            (Op::Insert(..), Some(_)) => return,
            (Op::Delete(key), _) => {
                self.state.remove(&key);
                return;
            }
            (Op::Delta(_, delta), Some((value, _))) => {
                add(self.options.delta.unwrap(), value, &delta)
            }
            (Op::Insert(_, value) | Op::Update(_, value) | Op::Delta(_, value), _) => value,
        };
        self.state.insert(op.key().to_vec(), (value, expires_ms));
    }

    fn delete_all(&mut self) {
        self.table.delete_all().unwrap().wait().unwrap();
        self.state.clear();
    }

    fn write(&mut self, rng: &mut Rng) {
        let mut batch = Batch::new();
        let first = op(rng, self.options.delta);
        let partition = self.table.partition_of(first.key());
        let more = (0..rng.below(4)).map(|_| op(rng, self.options.delta));
        let ops: Vec<Op> = std::iter::once(first).chain(more).collect();
        for op in ops {
            if self.table.partition_of(op.key()) == partition {
                let moment = self.moment(rng);
                let times = Times::until(moment.unwrap_or(u64::MAX));
                batch.push(op.key(), op.operation().with_times(times));
                self.apply(&op, moment);
            }
        }
        self.table.write(&batch).unwrap().wait().unwrap();
    }

    /// Adds a run of updates, deletes and deltas that were made just now.
    fn ingest(&mut self, rng: &mut Rng) {
        let hasher = self.table.hasher().clone();
        let order = self.options.order;
        let hash = |key: &[u8]| match order {
            Order::Hashed => hasher.hash64(key),
            Order::Ordered => 0,
        };
        let mut ops: Vec<Op> = (0..10).map(|_| op(rng, self.options.delta)).collect();
        ops.retain(|op| {
            !matches!(op, Op::Insert(..))
                && self.table.partition_of(op.key()) == Some(PartitionId(0))
        });
        ops.sort_by_key(|op| (hash(op.key()), op.key().to_vec()));
        ops.dedup_by_key(|op| op.key().to_vec());
        if ops.is_empty() {
            return;
        }
        let new = self.table.new_run();
        let disk: Arc<dyn Disk> = Arc::new(self.disk.clone());
        let options = self.table.run_options(ops.len() as u64, 1000);
        let options = options.for_keys_of(MAX_KEY_BYTES);
        let mut writer = RunWriter::create(&disk, &new.path, options).unwrap();
        for op in &ops {
            let moment = self.now_ms() + rng.below(60);
            let times = Times {
                written_ms: self.now_ms(),
                expires_ms: moment,
            };
            let operation: Operation<'_> = op.operation().with_times(times);
            writer.push(hash(op.key()), op.key(), operation).unwrap();
            self.apply(op, Some(moment));
        }
        writer.finish().unwrap();
        let run = IngestRun {
            partition: PartitionId(0),
            id: new.id,
        };
        self.table.ingest(&[run]).unwrap();
    }

    /// Closes or kills the table; all writes so far are durable.
    fn reopen(&mut self, rng: &mut Rng) {
        self.disk = match rng.below(2) {
            0 => self.disk.after_kill(),
            _ => self.disk.after_power_cut(rng.next_u64()),
        };
        let store = store(&self.disk, &self.clock, rng.next_u64());
        self.table = store.live_table(&name("t"), &budget()).unwrap();
    }

    fn alive(&self, state: &TimedValues) -> Map {
        let alive = state
            .iter()
            .filter(|(_, (_, until))| self.now_ms() < *until);
        alive
            .map(|(key, (value, _))| (key.clone(), value.clone()))
            .collect()
    }

    fn check(&self, words: &str) {
        let alive = self.alive(&self.state);
        assert!(collect(self.table.entries()) == alive, "{words}");
        for key in keys() {
            let found = self.table.get(&key).unwrap();
            assert_eq!(found.as_ref(), alive.get(&key), "{words}: {key:?}");
            let until = self.state.get(&key).map(|(_, until)| *until);
            let until = until.filter(|until| self.now_ms() < *until);
            assert_eq!(
                self.table.expires_ms(&key).unwrap(),
                until,
                "{words}: {key:?}"
            );
        }
    }

    fn check_snapshot(&self, snapshot: &Snapshot, then: &TimedValues, words: &str) {
        let alive = self.alive(then);
        let found = collect(snapshot.scan(forebay_run::scan::Direction::Backward));
        assert!(found == alive, "{words}");
        for key in keys() {
            assert_eq!(
                snapshot.get(&key).unwrap().as_ref(),
                alive.get(&key),
                "{words}"
            );
        }
    }
}

fn timed_life(seed: u64) {
    let mut rng = Rng(seed);
    let order = one_of(&mut rng, &[Order::Hashed, Order::Ordered]);
    let kind = one_of(&mut rng, &KINDS);
    let expiry = one_of(&mut rng, &[Expiry::PerRecord, Expiry::AfterMs(LIFETIME_MS)]);
    let durability = Some(forebay_engine::live::Durability::Sync);
    let mut life = TimedLife::new(options(order, kind, durability).expiry(expiry));
    let mut held = None;
    for at in 0..STEPS {
        let words = format!("seed {seed}, {order:?}, {kind:?}, {expiry:?}, step {at}");
        match rng.below(20) {
            0..10 => life.write(&mut rng),
            10..14 => life.clock.advance(Duration::from_millis(rng.below(30))),
            14 | 15 => life.table.flush().unwrap(),
            16 => life.ingest(&mut rng),
            17 => {
                let before = held.replace((life.table.snapshot(), life.state.clone()));
                if let Some((snapshot, then)) = before {
                    life.check_snapshot(&snapshot, &then, &words);
                }
            }
            18 if rng.below(4) == 0 => life.delete_all(),
            18 => life.check(&words),
            _ if rng.below(3) == 0 => life.reopen(&mut rng),
            _ => life.table.compact().unwrap(),
        }
    }
    let words = format!("seed {seed}, {order:?}, {kind:?}, {expiry:?}, at the end");
    life.check(&words);
    // After a merge of each whole partition, no expired record is left.
    life.clock.advance(Duration::from_secs(1));
    for key in keys() {
        life.table
            .update(&key, &8u64.to_le_bytes())
            .unwrap()
            .wait()
            .unwrap();
        life.apply(&Op::Update(key, 8u64.to_le_bytes().to_vec()), None);
    }
    life.table.flush().unwrap();
    // A running merge could leave a partition only the delete below, in a run of its own.
    while life.table.stats().is_merge_due {
        std::thread::yield_now();
    }
    life.clock.advance(Duration::from_secs(1));
    for PartitionRange { id: partition, .. } in life.table.partitions() {
        let key = keys()
            .into_iter()
            .find(|key| life.table.partition_of(key) == Some(partition));
        let gone = Op::Delete(key.unwrap());
        life.table.delete(gone.key()).unwrap().wait().unwrap();
        life.apply(&gone, None);
    }
    life.table.compact().unwrap();
    life.check(&words);
    let left = life.alive(&life.state).len() as u64;
    assert_eq!(life.table.stats().run_records, left, "{words}");
}

#[test]
fn records_expire_as_in_a_map_through_random_lives() {
    for_seeds(75, timed_life);
}
