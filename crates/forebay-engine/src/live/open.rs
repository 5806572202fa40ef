//! Creates and opens live tables.
//!
//! A live table exists when its manifest does. Creating a table writes the manifest last. Opening a
//! table reads the manifest, removes files that it does not name, and opens the runs. Then it reads
//! the records of the log that are in no run into memory.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use forebay_io::{Disk, Lock, Throttle, replace_file};
use forebay_run::Run;
use parking_lot::{Condvar, Mutex};
use tracing::debug;

use crate::documents::holder::{holder_words, try_lock};
use crate::documents::layout::{TableFiles, extent_file, is_unfinished, run_file};
use crate::error::{At, StoreError};
use crate::keys::partition::PartitionRange;
use crate::live::LiveTable;
use crate::live::basics::batch::Records;
use crate::live::basics::error::LiveError;
use crate::live::basics::manifest::LiveManifest;
use crate::live::basics::options::LiveDraft;
use crate::live::basics::removed::KeyRange;
use crate::live::basics::shape::Shape;
use crate::live::checkpoint::sweep_asks;
use crate::live::load::kept_for_load;
use crate::live::log::{Log, LogOptions};
use crate::live::memory::run::{LiveRun, open_file};
use crate::live::partition::budget::{Budget, Member};
use crate::live::partition::part::LivePart;
use crate::live::partition::parts::LiveParts;
use crate::live::partition::shared::{Counts, Gate, LiveShared, Progress, Workers};
use crate::name::{RunId, TableName};
use crate::publishing::cleanup::remove_if_there;
use crate::publishing::push::take_push_lock;
use crate::tables::store::Store;

impl Store {
    /// Returns the live tables that exist, sorted. A table whose type cannot be read is not among
    /// them; [`Store::tables`] has it.
    pub fn live_tables(&self) -> Result<Vec<TableName>, StoreError> {
        self.live_tables_but(|_| false)
    }

    /// Like `live_tables`, without known ones, which are not looked at.
    pub fn live_tables_but(
        &self,
        is_known: impl Fn(&TableName) -> bool,
    ) -> Result<Vec<TableName>, StoreError> {
        let mut live = Vec::new();
        for name in self.table_dirs()? {
            if !is_known(&name) && self.is_live(&name).unwrap_or(false) {
                live.push(name);
            }
        }
        Ok(live)
    }

    /// Returns whether there is a live table of that name.
    pub fn is_live(&self, name: &TableName) -> Result<bool, StoreError> {
        let path = TableFiles::new(self.root(), name).live_manifest();
        self.disk().exists(&path).at("look for", &path)
    }

    /// Creates a live table and opens it. Its memory counts in `budget`.
    pub fn create_live(
        &self,
        name: &TableName,
        draft: LiveDraft,
        budget: &Arc<Budget>,
    ) -> Result<LiveTable, LiveError> {
        let table = name.clone();
        if let Err(problem) = draft.check() {
            return Err(LiveError::Options { table, problem });
        }
        let files = TableFiles::new(self.root(), name);
        let batch = self.any_table(name);
        // Held against a push that begins with the same name.
        let push = take_push_lock(&batch, "the making of a live table")?;
        let _push = push.map_err(|holder| StoreError::PushRuns {
            table: table.clone(),
            holder,
        })?;
        if self.is_live(name)? {
            return Err(LiveError::Exists { table });
        }
        let lock = self.lock_live(name, &files);
        let lock = lock.inspect_err(|_| batch.remove_void())?;
        if batch.exists()? {
            return Err(LiveError::Batch { table });
        }
        self.refuse_lost(name)?;
        let made = self.make_live(name, &files, draft);
        let made = made.and_then(|manifest| self.open_locked(manifest, files, lock, budget));
        made.inspect_err(|_| self.unmake_live(name))
    }

    /// Creates the files of a live table, its manifest last.
    fn make_live(
        &self,
        name: &TableName,
        files: &TableFiles,
        draft: LiveDraft,
    ) -> Result<LiveManifest, LiveError> {
        self.clear_for_live(files)?;
        let id = self.random().next_u64();
        let manifest = LiveManifest::new(name.clone(), id, self.clock().unix_ms(), draft);
        let path = files.live_manifest();
        let bytes = manifest.to_bytes().map_err(|problem| StoreError::Damaged {
            path: path.clone(),
            problem,
        })?;
        replace_file(&**self.disk(), &path, &bytes).at("write", &path)?;
        Ok(manifest)
    }

    /// Opens a live table; [`LiveError::NoTable`] if there is none of that name.
    pub fn live_table(
        &self,
        name: &TableName,
        budget: &Arc<Budget>,
    ) -> Result<LiveTable, LiveError> {
        let files = TableFiles::new(self.root(), name);
        if !self.is_live(name)? {
            let table = name.clone();
            return Err(match self.any_table(name).exists()? {
                true => LiveError::Batch { table },
                false => LiveError::NoTable { table },
            });
        }
        let lock = self.lock_live(name, &files)?;
        let manifest = self.live_manifest_converted(name, &files)?;
        let manifest = manifest.ok_or_else(|| LiveError::NoTable {
            table: name.clone(),
        })?;
        self.open_locked(manifest, files, lock, budget)
    }

    pub(crate) fn lock_live(
        &self,
        name: &TableName,
        files: &TableFiles,
    ) -> Result<Box<dyn Lock>, StoreError> {
        let words = holder_words(&**self.disk(), &**self.clock(), "it was opened");
        let lock = try_lock(&**self.disk(), &files.live_lock(), &words)?;
        lock.map_err(|holder| StoreError::InUse {
            table: name.clone(),
            holder,
        })
    }

    fn open_locked(
        &self,
        manifest: LiveManifest,
        files: TableFiles,
        lock: Box<dyn Lock>,
        budget: &Arc<Budget>,
    ) -> Result<LiveTable, LiveError> {
        let disk = &**self.disk();
        // Listed first, so that the list has no files of a load that begins meanwhile.
        let runs = disk.list(&files.runs()).at("list", &files.runs())?;
        let others = disk.list(&files.dir).at("list", &files.dir)?;
        let kept = kept_for_load(disk, &**self.clock(), &files)?;
        sweep_asks(disk, &**self.clock(), &files)?;
        remove_leftovers(disk, &files, &manifest, (runs, others), kept)?;
        let shape = Shape::new(
            manifest.table.clone(),
            &manifest.options,
            Arc::clone(self.clock()),
        );
        let shape = Arc::new(shape);
        let parts = open_parts(disk, &files, &shape, &manifest, budget)?;
        let parts = LiveParts::new(&shape, parts);
        let memory = budget.join();
        let log = self.open_log(&manifest, &files, &shape, &parts, &memory)?;
        let merge_rate = manifest.options.merge_bytes_per_second;
        let merge_throttle = Throttle::new(merge_rate, Arc::clone(self.clock()));
        let shared = Arc::new(LiveShared {
            shape,
            options: manifest.options.clone(),
            store: self.clone(),
            files,
            parts,
            log,
            structure: Mutex::new(manifest),
            compacting: Mutex::default(),
            merge_throttle,
            ingesting: Mutex::default(),
            frozen: Mutex::new(VecDeque::new()),
            memory,
            gate: Gate::default(),
            progress: Mutex::new(Progress::default()),
            changed: Condvar::new(),
            workers: Workers::default(),
            counts: Counts::default(),
            _lock: lock,
            copied: Mutex::default(),
            asks_lock: Mutex::default(),
        });
        shared.check_views(&shared.structure.lock());
        shared.count_runs(&shared.structure.lock());
        // Nothing was frozen while the log was read.
        shared.memory.has_nothing();
        if shared.memory.grow(0) {
            shared.freeze();
        }
        Ok(LiveTable::start(shared))
    }

    /// Opens the log, if the table has one, and reads the records that are in no run into the
    /// partitions.
    fn open_log(
        &self,
        manifest: &LiveManifest,
        files: &TableFiles,
        shape: &Shape,
        parts: &LiveParts,
        memory: &Member,
    ) -> Result<Option<Log>, LiveError> {
        let options = &manifest.options;
        let durability = options.durability.filter(|_| options.replication.is_none());
        let Some(durability) = durability else {
            return Ok(None);
        };
        let options = LogOptions {
            table: manifest.table.clone(),
            table_id: manifest.table_id,
            durability,
        };
        let mut replay = |_segment: u64, payload: &[u8]| replay(shape, parts, memory, payload);
        let (disk, clock) = (self.disk().clone(), self.clock().clone());
        let log = Log::open(
            disk,
            clock,
            &files.log_dir(),
            options,
            manifest.log_from,
            &mut replay,
        );
        Ok(Some(log?))
    }
}

/// Redoes the operations of one record of the log.
fn replay(shape: &Shape, parts: &LiveParts, memory: &Member, payload: &[u8]) -> Result<(), String> {
    if let Some(ranges) = KeyRange::all_of(payload) {
        for (id, range) in ranges? {
            let partition = parts.find(id);
            let partition = partition
                .ok_or_else(|| format!("it deletes keys of partition {id}, which is not here"))?;
            let mut part = parts.at(partition).lock();
            part.seal(memory);
            part.remove(range, memory);
        }
        return Ok(());
    }
    let mut records = Records::new(payload);
    for (key, operation) in records.by_ref() {
        let place = shape.place(key);
        let partition = parts.place_of(place.hash, key);
        let partition = partition.ok_or_else(|| shape.not_here(key).to_string())?;
        let mut part = parts.at(partition).lock();
        let added = part.memtable.add(shape, place, key, operation);
        added.map_err(|error| error.to_string())?;
        if part.memtable.is_full() {
            part.seal(memory);
        }
        part.count_buffer(memory);
    }
    if records.is_at_end() {
        Ok(())
    } else {
        Err("it holds an operation that this program does not know".to_owned())
    }
}

fn open_parts(
    disk: &dyn Disk,
    files: &TableFiles,
    shape: &Shape,
    manifest: &LiveManifest,
    budget: &Budget,
) -> Result<Vec<(PartitionRange, LivePart)>, LiveError> {
    // Runs that partitions share are opened once.
    let mut shared: HashMap<&RunId, Arc<Run>> = HashMap::new();
    let mut parts = Vec::new();
    for partition in &manifest.partitions {
        let mut runs = Vec::new();
        for reference in &partition.runs {
            let run = match shared.get(&reference.id) {
                Some(run) => Arc::clone(run),
                None => open_file(disk, files, shape, reference)?,
            };
            if reference.range.is_some() {
                shared.insert(&reference.id, Arc::clone(&run));
            }
            runs.push(Arc::new(LiveRun::new(run, reference.clone())));
        }
        let part = LivePart::new(runs.into(), manifest.partitions.len(), budget);
        let part = part.at_place(partition.applied.clone());
        parts.push((partition.range(), part));
    }
    Ok(parts)
}

/// Removes what a dead process left incomplete. `needed` are files that stay besides those that the
/// manifest names.
fn remove_leftovers(
    disk: &dyn Disk,
    files: &TableFiles,
    manifest: &LiveManifest,
    (in_runs, beside): (Vec<String>, Vec<String>),
    mut needed: HashSet<String>,
) -> Result<(), StoreError> {
    for run in manifest.runs() {
        needed.insert(run_file(&run.id));
        needed.insert(extent_file(&run.id));
    }
    // The mark is from the creation of this table.
    remove_if_there(disk, &files.dropped_mark())?;
    // A power cut could replace a manifest that is not durable by the one before, which names other
    // runs.
    disk.sync_dir(&files.dir).at("sync", &files.dir)?;
    let runs = files.runs();
    for name in in_runs {
        if !needed.contains(&name) {
            debug!(table = %manifest.table, file = name, "removing debris");
            remove_if_there(disk, &runs.join(&name))?;
        }
    }
    for name in beside {
        if is_unfinished(&name) && !needed.contains(&name) {
            remove_if_there(disk, &files.dir.join(&name))?;
        }
    }
    Ok(())
}
