//! Partitions that are not here, that are given up and taken in.

use std::ops::Bound as RangeBound;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering as Memory};
use std::time::Duration;

use forebay_io::Clock;
use forebay_io::sim::Dice;
use forebay_run::operation::Operation;
use forebay_run::scan::Direction;
use forebay_run::{Order, RunWriter};

use super::*;
use crate::live::{Batch, LiveLookup};
use crate::name::RunId;
use crate::partition::{Held, PartitionId, PartitionRange};

const KEYS: u64 = 300;

fn is_not_here<T>(outcome: Result<T, LiveError>) -> bool {
    matches!(outcome, Err(LiveError::NotHere { .. }))
}

fn id_in(ranges: &[PartitionRange], table: &LiveTable, key: &[u8]) -> PartitionId {
    let at = match table.order() {
        Order::Hashed => crate::bound::Bound::Slot(table.hasher().slot(key)),
        Order::Ordered => crate::bound::Bound::Key(key.to_vec()),
    };
    let holds = |range: &&PartitionRange| {
        let bounds = &range.bounds;
        bounds.lower <= at && bounds.upper.as_ref().is_none_or(|upper| at < *upper)
    };
    ranges.iter().find(holds).unwrap().id
}

/// A table, what its partitions were at first, and what it should hold.
struct Divided {
    disk: SimDisk,
    table: LiveTable,
    ranges: Vec<PartitionRange>,
    model: Model,
}

impl Divided {
    fn new(draft: LiveDraft) -> Self {
        let ranges = draft.partitions.clone();
        let (disk, table) = create(draft);
        let model = Model::new();
        Self {
            disk,
            table,
            ranges,
            model,
        }
    }

    fn id_of(&self, key: &[u8]) -> PartitionId {
        id_in(&self.ranges, &self.table, key)
    }

    fn is_here(&self, key: &[u8]) -> bool {
        let id = self.id_of(key);
        self.table.partitions().iter().any(|range| range.id == id)
    }

    /// Writes a key, if it is here; else sees that it cannot be written.
    fn write(&mut self, key: &[u8], value: &[u8]) {
        let mut batch = Batch::new();
        batch.push(key, Operation::Update(value));
        if self.is_here(key) {
            self.table.update(key, value).unwrap().wait().unwrap();
            self.model.insert(key.to_vec(), value.to_vec());
        } else {
            assert!(is_not_here(self.table.update(key, value)));
            assert!(is_not_here(self.table.write(&batch)));
            assert!(is_not_here(self.table.try_write(&batch)));
            assert!(is_not_here(self.table.modify(key, |_| (None, ()))));
        }
    }

    fn check(&self) {
        for number in 0..KEYS {
            let key = key(number);
            if self.is_here(&key) {
                let wanted = self.model.get(&key);
                assert_eq!(self.table.get(&key).unwrap().as_ref(), wanted);
                match self.table.try_get(&key).unwrap() {
                    LiveLookup::Found(value) => assert_eq!(Some(&value), wanted),
                    LiveLookup::Absent => assert_eq!(wanted, None),
                    LiveLookup::NotResident => (),
                }
                assert_eq!(self.table.partition_of(&key), Some(self.id_of(&key)));
            } else {
                assert!(is_not_here(self.table.get(&key)));
                assert!(is_not_here(self.table.try_get(&key)));
                assert!(is_not_here(self.table.get_many(&[&key])));
                assert!(is_not_here(self.table.expires_ms(&key)));
                assert!(is_not_here(self.table.snapshot().get(&key)));
                assert_eq!(self.table.partition_of(&key), None);
            }
        }
        let mut found = collect(self.table.entries());
        found.sort();
        let wanted: Vec<_> = self.model.clone().into_iter().collect();
        assert_eq!(found, wanted);
        if self.table.order() == Order::Ordered && self.table.partitions().len() < self.ranges.len()
        {
            let (from, to) = (RangeBound::Unbounded, RangeBound::Unbounded);
            assert!(is_not_here(self.table.scan(from, to, Direction::Forward)));
        }
    }

    fn release(&mut self, id: PartitionId) {
        let snapshot = self.table.snapshot();
        let before = collect(self.table.entries());
        self.table.release(id).unwrap();
        assert_eq!(collect(snapshot.scan(Direction::Forward)), before);
        let (ranges, table) = (&self.ranges, &self.table);
        self.model.retain(|key, _| id_in(ranges, table, key) != id);
    }

    /// Takes a partition in, with a run of some records, if any fall into it.
    fn adopt(&mut self, id: PartitionId, dice: &mut Dice) {
        let range = self
            .ranges
            .iter()
            .find(|range| range.id == id)
            .unwrap()
            .clone();
        let keys = (0..KEYS).map(key).filter(|key| self.id_of(key) == id);
        let mut keys: Vec<Vec<u8>> = keys.filter(|_| dice.below(3) == 0).collect();
        let hash = |key: &[u8]| match self.table.order() {
            Order::Hashed => self.table.hasher().hash64(key),
            Order::Ordered => 0,
        };
        keys.sort_by_key(|key| (hash(key), key.clone()));
        keys.dedup();
        let mut runs: Vec<RunId> = Vec::new();
        if !keys.is_empty() {
            let new = self.table.new_run();
            let disk: Arc<dyn Disk> = Arc::new(self.disk.clone());
            let options = self.table.run_options(keys.len() as u64, 4000);
            let mut writer = RunWriter::create(&disk, &new.path, options).unwrap();
            for key in &keys {
                writer
                    .push(hash(key), key, Operation::Update(b"adopted"))
                    .unwrap();
            }
            writer.finish().unwrap();
            runs.push(new.id);
        }
        self.table.adopt(range, &runs).unwrap();
        self.model
            .extend(keys.into_iter().map(|key| (key, b"adopted".to_vec())));
    }

    fn reopen(self) -> Self {
        let Self {
            disk,
            table,
            ranges,
            model,
        } = self;
        drop(table);
        let table = open(&disk).unwrap();
        Self {
            disk,
            table,
            ranges,
            model,
        }
    }
}

#[test]
fn partitions_come_and_go_as_a_model_says() {
    for draft in both_orders() {
        for seed in 0..6 {
            println!("seed {seed}");
            let mut dice = Dice(seed);
            let mut divided = Divided::new(draft.clone());
            for step in 0..60 {
                let id = PartitionId(dice.below(divided.ranges.len() as u64) as u32);
                let here = divided
                    .table
                    .partitions()
                    .iter()
                    .any(|range| range.id == id);
                match (dice.below(8), here) {
                    (0 | 1, true) => divided.release(id),
                    (0 | 1, false) => divided.adopt(id, &mut dice),
                    (2, _) => divided.table.flush().unwrap(),
                    (3, _) => divided.table.compact().unwrap(),
                    (4, _) => divided = divided.reopen(),
                    _ => {
                        for _ in 0..20 {
                            let value = format!("{step}").into_bytes();
                            divided.write(&key(dice.below(KEYS)), &value);
                        }
                    }
                }
                divided.check();
            }
        }
    }
}

#[test]
fn a_table_is_made_of_some_partitions() {
    for draft in both_orders() {
        let all = draft.partitions.clone();
        let held = Held::Only([PartitionId(1)].into());
        let mut divided = Divided::new(draft.holding(&held));
        divided.ranges = all;
        for number in 0..KEYS {
            divided.write(&key(number), b"value");
        }
        divided.check();
        assert!(!divided.model.is_empty());
        let divided = divided.reopen();
        divided.check();
    }
}

#[test]
fn what_cannot_be_taken_in_or_given_up_is_told_and_changes_nothing() {
    let mut divided = Divided::new(LiveDraft::ordered(vec![b"m".to_vec()]));
    divided.write(b"a", b"1");
    let told = |outcome: Result<(), LiveError>| outcome.unwrap_err().to_string();
    let (table, ranges) = (&divided.table, &divided.ranges);
    assert!(told(table.release(PartitionId(9))).contains("no partition 9 here"));
    assert!(told(table.adopt(ranges[0].clone(), &[])).contains("cannot be taken in"));
    table.release(PartitionId(1)).unwrap();
    assert!(told(table.release(PartitionId(1))).contains("no partition 1 here"));
    let over = PartitionRange {
        id: PartitionId(7),
        bounds: ranges[0].bounds.clone(),
    };
    assert!(told(table.adopt(over, &[])).contains("where another goes on"));
    let lost = RunId::new("lost").unwrap();
    assert!(table.adopt(ranges[1].clone(), &[lost]).is_err());
    // A run of keys that lie elsewhere.
    let new = table.new_run();
    let disk: Arc<dyn Disk> = Arc::new(divided.disk.clone());
    let mut writer = RunWriter::create(&disk, &new.path, table.run_options(1, 10)).unwrap();
    writer.push(0, b"b", Operation::Update(b"2")).unwrap();
    writer.finish().unwrap();
    assert!(
        table
            .adopt(ranges[1].clone(), std::slice::from_ref(&new.id))
            .is_err()
    );
    assert!(!divided.disk.files().contains(&new.path), "it was left");
    assert_eq!(table.partitions(), ranges[..1]);
    table.adopt(ranges[1].clone(), &[]).unwrap();
    table.update(b"z", b"3").unwrap().wait().unwrap();
    divided.model.insert(b"z".to_vec(), b"3".to_vec());
    divided.reopen().check();
}

/// Writers go on while a partition comes and goes: each write is acknowledged and kept, or refused,
/// and one that was acknowledged before a release is never seen after it.
#[test]
fn writers_meet_a_partition_that_comes_and_goes() {
    let (_disk, table) = create(LiveDraft::ordered(vec![b"m".to_vec()]));
    let range = table.partitions()[1].clone();
    let (over, refused) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for writer in 0..2u64 {
            let (table, over, refused) = (&table, &over, &refused);
            scope.spawn(move || {
                for number in 0.. {
                    if over.load(Memory::Relaxed) {
                        break;
                    }
                    let value = u64::to_be_bytes(number);
                    let stays = format!("a{writer}").into_bytes();
                    table.update(&stays, &value).unwrap().wait().unwrap();
                    assert_eq!(table.get(&stays).unwrap(), Some(value.to_vec()));
                    match table.update(format!("z{writer}").as_bytes(), &value) {
                        Ok(commit) => commit.wait().unwrap(),
                        Err(LiveError::NotHere { .. }) => {
                            refused.fetch_add(1, Memory::Relaxed);
                        }
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
        for _ in 0..40 {
            table.release(range.id).unwrap();
            assert!(is_not_here(table.get(b"z0")));
            table.adopt(range.clone(), &[]).unwrap();
        }
        // Gone for long enough that a writer comes by.
        for _ in 0..500 {
            if refused.load(Memory::Relaxed) > 0 {
                break;
            }
            table.release(range.id).unwrap();
            SystemClock.sleep(Duration::from_millis(10));
            table.adopt(range.clone(), &[]).unwrap();
        }
        over.store(true, Memory::Relaxed);
    });
    assert!(refused.load(Memory::Relaxed) > 0);
}

#[test]
fn records_outside_of_their_partition_are_found_by_verify() {
    let (disk, table) = create(LiveDraft::ordered(vec![b"m".to_vec()]));
    for key in [b"a", b"n"] {
        table.update(key, b"1").unwrap().wait().unwrap();
    }
    table.flush().unwrap();
    assert!(table.verify(&mut |_| ()).unwrap().1.is_empty());
    let mut moved = table.shared().structure.lock().clone();
    let path = table.shared().files.live_manifest();
    drop(table);
    let border = crate::bound::Bound::Key(b"p".to_vec());
    moved.partitions[0].bounds.upper = Some(border.clone());
    moved.partitions[1].bounds.lower = border;
    disk.tamper(&path, |bytes| *bytes = moved.to_bytes().unwrap());
    let (runs, problems) = open(&disk).unwrap().verify(&mut |_| ()).unwrap();
    assert_eq!((runs, problems.len()), (2, 1), "{problems:?}");
    assert!(
        problems[0]
            .to_string()
            .contains("does not lie in the partition")
    );
}
