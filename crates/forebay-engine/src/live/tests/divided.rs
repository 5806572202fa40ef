//! A table whose partitions are adopted, released and split, beside a model of its content.

use std::ops::Bound as RangeBound;

use forebay_run::Order;
use forebay_run::RunWriter;
use forebay_run::operation::Operation;
use forebay_run::scan::Direction;

use super::*;
use crate::keys::partition::{Bounds, PartitionId, PartitionRange};
use crate::live::{Batch, LiveLookup, PartitionContent, PartitionRun};

pub const KEYS: u64 = 300;

pub fn is_not_here<T>(outcome: Result<T, LiveError>) -> bool {
    matches!(outcome, Err(LiveError::NotHere { .. }))
}

fn id_in(ranges: &[PartitionRange], table: &LiveTable, key: &[u8]) -> PartitionId {
    let at = table.shared().shape.bound(key);
    let found = ranges.iter().find(|range| range.bounds.holds(&at));
    found.unwrap().id
}

/// The saved content of a released partition.
struct ParkedPartition {
    content: PartitionContent,
    /// The files of its runs.
    files: Vec<Vec<u8>>,
    model: Model,
}

pub struct DividedTable {
    pub disk: SimDisk,
    pub table: LiveTable,
    /// All partitions, held or not.
    pub ranges: Vec<PartitionRange>,
    pub model: Model,
    parked: Vec<ParkedPartition>,
    next_id: u32,
}

impl DividedTable {
    pub fn new(draft: LiveDraft) -> Self {
        let ranges = draft.partitions.clone();
        let (disk, table) = create(draft);
        Self {
            disk,
            table,
            next_id: ranges.len() as u32,
            ranges,
            model: Model::new(),
            parked: Vec::new(),
        }
    }

    fn id_of(&self, key: &[u8]) -> PartitionId {
        id_in(&self.ranges, &self.table, key)
    }

    fn is_here(&self, key: &[u8]) -> bool {
        let id = self.id_of(key);
        self.table.partitions().iter().any(|range| range.id == id)
    }

    /// Writes a key, if the table holds it. Otherwise checks that it cannot be written.
    pub fn write(&mut self, key: &[u8], value: &[u8], as_delta: bool) {
        let mut batch = Batch::new();
        batch.push(key, Operation::Update(value));
        if self.is_here(key) && as_delta {
            self.table.delta(key, value).unwrap().wait().unwrap();
            let known = self.model.entry(key.to_vec()).or_default();
            known.extend_from_slice(value);
        } else if self.is_here(key) {
            self.table.update(key, value).unwrap().wait().unwrap();
            self.model.insert(key.to_vec(), value.to_vec());
        } else {
            assert!(is_not_here(self.table.update(key, value)));
            assert!(is_not_here(self.table.write(&batch)));
            assert!(is_not_here(self.table.try_write(&batch)));
            assert!(is_not_here(self.table.modify(key, |_| (None, ()))));
            let reading = |_: &crate::live::LockedKeys<'_>| (Batch::new(), ());
            assert!(is_not_here(self.table.transact_reading(&[key], reading)));
            assert!(is_not_here(self.table.watch(key)));
        }
    }

    /// Deletes all keys, or those of a range, which the table must hold.
    pub fn delete_some(&mut self, rng: &mut Rng) {
        if self.table.order() == Order::Hashed || rng.below(3) == 0 {
            self.table.delete_all().unwrap().wait().unwrap();
            return self.model.clear();
        }
        let mut ends = [key(rng.below(KEYS)), key(rng.below(KEYS))];
        ends.sort();
        let [from, to] = ends;
        let range = (
            RangeBound::Included(&from[..]),
            RangeBound::Excluded(&to[..]),
        );
        match self.table.delete_range(range.0, range.1) {
            Ok(commit) => {
                commit.wait().unwrap();
                self.model.retain(|key, _| *key < from || *key >= to);
            }
            Err(error) => {
                assert!(matches!(error, LiveError::NotHere { .. }), "{error}");
                assert!(self.table.partitions().len() < self.ranges.len());
            }
        }
    }

    pub fn check(&self) {
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
                assert!(is_not_here(self.table.snapshot_keys(&[&key])));
                assert!(is_not_here(self.table.snapshot().get(&key)));
                assert_eq!(self.table.partition_of(&key), None);
            }
        }
        let wanted: Vec<_> = self.model.clone().into_iter().collect();
        for direction in [Direction::Forward, Direction::Backward] {
            let mut found = collect(self.table.snapshot().scan(direction));
            found.sort();
            assert_eq!(found, wanted);
        }
        if self.table.order() == Order::Ordered {
            self.check_scan();
        }
        self.check_counts();
    }

    /// Walks of all keys are refused if the table does not hold all partitions. Other walks begin
    /// and end anywhere.
    fn check_scan(&self) {
        let scan = |from: RangeBound<&[u8]>, to: RangeBound<&[u8]>| {
            self.table.scan(from, to, Direction::Forward)
        };
        if self.table.partitions().len() < self.ranges.len() {
            assert!(is_not_here(scan(
                RangeBound::Unbounded,
                RangeBound::Unbounded
            )));
            return;
        }
        for number in (0..KEYS).step_by(37) {
            let from = key(number);
            let found = collect(scan(RangeBound::Excluded(&from), RangeBound::Unbounded).unwrap());
            let range = (RangeBound::Excluded(from), RangeBound::Unbounded);
            let wanted = self.model.range(range);
            let wanted: Vec<_> = wanted.map(|(k, v)| (k.clone(), v.clone())).collect();
            assert_eq!(found, wanted);
        }
    }

    fn check_counts(&self) {
        let stats = self.table.stats();
        assert!(stats.most_keys() >= self.model.len() as u64, "{stats:?}");
        let files = self.disk.files();
        let of_runs = |path: &&std::path::PathBuf| path.extension().is_some_and(|e| e == "run");
        let on_disk = files.iter().filter(of_runs).count();
        let named = self.table.shared().structure.lock().files().count();
        // A merge may be about to remove, or to name, some.
        let is_quiet = !stats.is_merge_due && self.table.stats() == stats;
        assert!(!is_quiet || named <= on_disk, "{named} of {on_disk}");
    }

    /// After a compaction no run has records of another partition, and no file is left over.
    pub fn check_files(&self) {
        assert!(self.table.verify(&mut |_| ()).unwrap().1.is_empty());
        self.table.compact().unwrap();
        let stats = self.table.stats();
        assert_eq!(
            (stats.split_runs, stats.run_records),
            (0, self.model.len() as u64)
        );
        let (runs, problems) = self.table.verify(&mut |_| ()).unwrap();
        assert!(problems.is_empty(), "{problems:?}");
        let files = self.disk.files();
        let of_runs = files
            .iter()
            .filter(|path| path.extension().is_some_and(|e| e == "run"));
        assert_eq!(of_runs.count(), runs);
        self.check();
    }

    /// Releases a partition, and may save its content.
    pub fn release(&mut self, id: PartitionId, rng: &mut Rng) {
        let snapshot = self.table.snapshot();
        let before = collect(self.table.entries());
        let parked = (rng.below(2) == 0).then(|| self.park(id));
        self.table.release(id).unwrap();
        assert_eq!(collect(snapshot.scan(Direction::Forward)), before);
        let (ranges, table) = (&self.ranges, &self.table);
        self.model.retain(|key, _| id_in(ranges, table, key) != id);
        self.parked.extend(parked);
    }

    fn park(&self, id: PartitionId) -> ParkedPartition {
        self.table.flush().unwrap();
        let of_partition = |(key, _): &(&Vec<u8>, &Vec<u8>)| self.id_of(key) == id;
        let model = self.model.iter().filter(of_partition);
        let model: Model = model.map(|(k, v)| (k.clone(), v.clone())).collect();
        loop {
            let content = self.table.content(id).unwrap();
            let path = |run: &PartitionRun| self.table.shared().files.run(&run.id);
            let files = content.runs.iter().map(|run| self.disk.read(&path(run)));
            // A merge may have replaced them meanwhile.
            if let Ok(files) = files.collect() {
                return ParkedPartition {
                    content,
                    files,
                    model,
                };
            }
        }
    }

    /// Adopts a partition: with its saved content, or with a run of some records, if any are within
    /// it.
    pub fn adopt(&mut self, id: PartitionId, rng: &mut Rng) {
        let parked = self
            .parked
            .iter()
            .position(|parked| parked.content.range.id == id);
        if let Some(place) = parked {
            let mut parked = self.parked.remove(place);
            for (run, bytes) in parked.content.runs.iter_mut().zip(&parked.files) {
                let new = self.table.new_run();
                forebay_io::replace_file(&self.disk, &new.path, bytes).unwrap();
                run.id = new.id;
            }
            self.table.adopt(parked.content).unwrap();
            return self.model.extend(parked.model);
        }
        let range = self.ranges.iter().find(|range| range.id == id).unwrap();
        let gone = self.table.shared().structure.lock().gone.clone();
        let mut content = PartitionContent::empty(range.clone());
        content.epoch = gone.iter().find(|gone| gone.id == id).unwrap().epoch;
        let keys = (0..KEYS).map(key).filter(|key| self.id_of(key) == id);
        let mut keys: Vec<Vec<u8>> = keys.filter(|_| rng.below(3) == 0).collect();
        let hash = |key: &[u8]| self.table.shared().shape.place(key).hash;
        keys.sort_by_key(|key| (hash(key), key.clone()));
        keys.dedup();
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
            content.runs.push(PartitionRun::new(new.id));
        }
        self.table.adopt(content).unwrap();
        self.model
            .extend(keys.into_iter().map(|key| (key, b"adopted".to_vec())));
    }

    /// Splits a partition at some key, if that is within it.
    pub fn split(&mut self, id: PartitionId, rng: &mut Rng) {
        let at = self.table.shared().shape.bound(&key(rng.below(KEYS)));
        let right = PartitionId(self.next_id);
        let place = self.ranges.iter().position(|range| range.id == id).unwrap();
        let bounds = self.ranges[place].bounds.clone();
        let before = self.table.content(id).unwrap();
        let snapshot = (self.table.snapshot(), collect(self.table.entries()));
        let outcome = self.table.split(id, &at, right);
        if !bounds.holds(&at) || at == bounds.lower {
            let reported = outcome.unwrap_err().to_string();
            return assert!(reported.contains("does not lie within it"), "{reported}");
        }
        outcome.unwrap();
        assert_eq!(collect(snapshot.0.scan(Direction::Forward)), snapshot.1);
        self.next_id += 1;
        let right_bounds = Bounds {
            lower: at.clone(),
            upper: bounds.upper,
        };
        self.ranges[place].bounds.upper = Some(at);
        self.ranges.push(PartitionRange {
            id: right,
            bounds: right_bounds,
        });
        for child in [id, right] {
            let content = self.table.content(child).unwrap();
            let range = self.ranges.iter().find(|range| range.id == child).unwrap();
            assert_eq!(content.range, *range);
            assert_eq!(content.epoch - before.epoch, 1);
        }
    }

    pub fn reopen(self) -> Self {
        drop(self.table);
        let table = open(&self.disk).unwrap();
        Self { table, ..self }
    }
}
