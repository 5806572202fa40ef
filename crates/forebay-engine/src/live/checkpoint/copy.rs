//! Copies a moment of a table into a store.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use forebay_io::{Clock, Disk, Random, ReadFile, give_way};
use forebay_run::verify::read_back;
use forebay_run::{RunError, RunSummary};
use tracing::warn;

use super::take::put_manifest;
use super::{CheckpointError, TableCheckpoint};
use crate::documents::layout::{STORE_FILE, TableFiles, run_file, store_file, tables_dir};
use crate::error::{At, StoreError};
use crate::live::LiveError;
use crate::publishing::push::take_push_lock;
use crate::tables::store::Store;

const COPY_BYTES: usize = 4 << 20;
/// The error for a valid run in the place of another one.
const OTHER_RUN: &str =
    "it is not the run that the manifest names: the file it was copied from is damaged";
/// The most directory levels that are searched.
const MOST_LEVELS: usize = 64;

/// The size of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckpointCopy {
    /// The runs of all partitions.
    pub runs: usize,
    /// Their records; duplicate keys are counted separately.
    pub records: u64,
    /// The length of their files.
    pub file_bytes: u64,
    /// Bytes of these that took no space because their files were linked.
    pub linked_bytes: u64,
}

impl TableCheckpoint {
    /// Copies the checkpoint into the store at `root`, which is created if absent. Files are linked
    /// within one file system, and copied otherwise; `advance` gets their bytes. After a crash the
    /// table exists as a whole or not at all.
    pub fn copy_to(
        &self,
        (disk, clock, random): (Arc<dyn Disk>, Arc<dyn Clock>, Arc<dyn Random>),
        root: &Path,
        advance: &mut dyn FnMut(u64),
    ) -> Result<CheckpointCopy, CheckpointError> {
        if is_below(&*disk, root, &[STORE_FILE])? {
            let dir = root.to_path_buf();
            return Err(CheckpointError::Inside { dir });
        }
        let made = StoreBefore::of(&*disk, root)?;
        let to = Store::open_or_create(disk, clock, random, root)?;
        let copied = self.copy_into(&to, advance);
        if copied.is_err() {
            made.undo(&to);
        }
        copied
    }

    /// [`TableCheckpoint::copy_to`] into an existing store. If the store has a table of that name,
    /// the copy is refused.
    pub fn copy_into(
        &self,
        to: &Store,
        advance: &mut dyn FnMut(u64),
    ) -> Result<CheckpointCopy, CheckpointError> {
        let name = self.table();
        let table = to.any_table(name);
        let push = take_push_lock(&table, "a checkpoint")?;
        let _push = push.map_err(|holder| StoreError::PushRuns {
            table: name.clone(),
            holder,
        })?;
        if to.is_live(name)? || table.exists()? {
            return Err(LiveError::Exists {
                table: name.clone(),
            }
            .into());
        }
        to.refuse_lost(name)?;
        let copied = self.copy_files(to, advance);
        if copied.is_err() {
            to.unmake_live(name);
        }
        copied
    }

    fn copy_files(
        &self,
        to: &Store,
        advance: &mut dyn FnMut(u64),
    ) -> Result<CheckpointCopy, CheckpointError> {
        let disk = &**to.disk();
        let target = TableFiles::new(to.root(), self.table());
        to.clear_for_live(&target)?;
        let mut copied = CheckpointCopy {
            runs: self.manifest.files().count(),
            records: self.records(),
            file_bytes: self.file_bytes(),
            linked_bytes: 0,
        };
        let summaries = self.summaries();
        for (name, len_bytes) in self.file_names() {
            let there = target.runs().join(&name);
            let from = self.files.path(&name);
            if from.is_some_and(|from| disk.link(&from, &there).is_ok()) {
                copied.linked_bytes += len_bytes;
                advance(len_bytes);
            } else {
                let source = self.files.open(&name).at("open", Path::new(&name))?;
                copy_file(disk, &*source, &there, advance)?;
                if let Some(summary) = summaries.get(&name) {
                    self.check_copied(disk, &there, summary)?;
                }
            }
        }
        put_manifest(disk, &target, &self.manifest)?;
        for dir in [tables_dir(to.root()), to.root().to_path_buf()] {
            disk.sync_dir(&dir).at("sync", &dir)?;
        }
        Ok(copied)
    }
}

impl TableCheckpoint {
    /// Reads a copied run back from the device, and checks that it is the one in the manifest.
    pub(super) fn check_copied(
        &self,
        disk: &dyn Disk,
        path: &Path,
        summary: &RunSummary,
    ) -> Result<(), LiveError> {
        let read = read_back(disk, path, self.options().order, &mut |_| give_way());
        let read = read.and_then(|run| match run.summary() == summary {
            true => Ok(()),
            false => Err(RunError::refused(path, OTHER_RUN)),
        });
        read.map_err(|source| LiveError::Run {
            table: self.table().clone(),
            source,
        })
    }

    /// Returns the summary of each run, by the name of its file.
    pub(crate) fn summaries(&self) -> BTreeMap<String, RunSummary> {
        let runs = self.manifest.files();
        runs.map(|run| (run_file(&run.id), run.summary)).collect()
    }
}

/// Returns whether the directory, existing or not, is below one that has a file of one of these
/// names.
pub(crate) fn is_below(disk: &dyn Disk, root: &Path, marks: &[&str]) -> Result<bool, StoreError> {
    let whole = std::path::absolute(root).at("look for", root)?;
    let mut above = whole.clone();
    while !disk.exists(&above).at("look for", &above)? && above.pop() {}
    if above == whole {
        above.push("..");
    }
    // By "..", so that the system follows symbolic links on the way.
    for _ in 0..MOST_LEVELS {
        for mark in marks {
            let mark = above.join(mark);
            if disk.exists(&mark).at("look for", &mark)? {
                return Ok(true);
            }
        }
        above.push("..");
    }
    Ok(false)
}

/// The part of the store that existed before the copy.
enum StoreBefore {
    /// The store existed: there is nothing to undo.
    Nothing,
    /// The store did not exist. `dir`: nor did its directory.
    Store { dir: bool },
}

impl StoreBefore {
    fn of(disk: &dyn Disk, root: &Path) -> Result<Self, StoreError> {
        let store = store_file(root);
        if disk.exists(&store).at("look for", &store)? {
            return Ok(StoreBefore::Nothing);
        }
        let dir = !disk.exists(root).at("look for", root)?;
        Ok(StoreBefore::Store { dir })
    }

    /// Removes a store that was made for the copy, unless another process has made a table in it.
    fn undo(self, store: &Store) {
        if let StoreBefore::Store { dir } = self
            && let Err(error) = store.unmake(dir)
        {
            let path = store.root().display();
            warn!(%path, %error, "the store of a failed checkpoint stays");
        }
    }
}

/// Copies a file to a new one, synced.
pub(crate) fn copy_file(
    disk: &dyn Disk,
    source: &dyn ReadFile,
    to: &Path,
    advance: &mut dyn FnMut(u64),
) -> Result<(), StoreError> {
    let mut target = disk.create(to).at("create", to)?;
    let (mut at, len_bytes) = (0, source.len_bytes());
    let mut buffer = vec![0; COPY_BYTES];
    while at < len_bytes {
        let bytes = (len_bytes - at).min(COPY_BYTES as u64) as usize;
        source
            .read_exact_at(&mut buffer[..bytes], at)
            .at("copy to", to)?;
        io::Write::write_all(&mut target, &buffer[..bytes]).at("write", to)?;
        at += bytes as u64;
        advance(bytes as u64);
    }
    target.sync().at("sync", to)
}
