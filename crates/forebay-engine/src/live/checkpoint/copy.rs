//! Copying a moment of a table into another store.

use std::io;
use std::path::Path;
use std::sync::Arc;

use forebay_io::Disk;
use tracing::warn;

use super::CheckpointError;
use super::take::put_manifest;
use crate::error::{At, StoreError};
use crate::layout::{TableFiles, store_file, tables_dir};
use crate::live::LiveError;
use crate::name::TableName;
use crate::push::take_push_lock;
use crate::store::Store;

const COPY_BYTES: usize = 1 << 20;
/// Directories above one another, at most.
const MOST_LEVELS: usize = 64;

/// What was copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Copied {
    /// The runs of all partitions.
    pub runs: usize,
    /// Their records; several of one key count separately.
    pub records: u64,
    /// The length of their files.
    pub file_bytes: u64,
    /// Bytes of these that took no room, being linked.
    pub linked_bytes: u64,
}

pub fn copy_to(
    from: &Store,
    name: &TableName,
    root: &Path,
    advance: &mut dyn FnMut(u64),
) -> Result<Copied, CheckpointError> {
    let (disk, clock, random) = (from.disk(), from.clock(), from.random());
    if is_inside_store(&**disk, root)? {
        let dir = root.to_path_buf();
        return Err(CheckpointError::Inside { dir });
    }
    let made = Made::of(&**disk, root)?;
    let (disk, clock, random) = (Arc::clone(disk), Arc::clone(clock), Arc::clone(random));
    let to = Store::open_or_create(disk, clock, random, root)?;
    let copied = copy_into(from, &to, name, advance);
    if copied.is_err() {
        made.undo(&to);
    }
    copied
}

fn copy_into(
    from: &Store,
    to: &Store,
    name: &TableName,
    advance: &mut dyn FnMut(u64),
) -> Result<Copied, CheckpointError> {
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
    let copied = copy_files(from, to, name, advance);
    if copied.is_err() {
        to.unmake_live(name);
    }
    copied
}

/// Whether the directory, made or not, lies in that of a store: below its root.
fn is_inside_store(disk: &dyn Disk, root: &Path) -> Result<bool, StoreError> {
    let whole = std::path::absolute(root).at("look for", root)?;
    let mut above = whole.clone();
    while !disk.exists(&above).at("look for", &above)? && above.pop() {}
    if above == whole {
        above.push("..");
    }
    // By "..", so that the system follows symbolic links on the way.
    for _ in 0..MOST_LEVELS {
        let store = store_file(&above);
        if disk.exists(&store).at("look for", &store)? {
            return Ok(true);
        }
        above.push("..");
    }
    Ok(false)
}

/// What there was of the store before the copy.
enum Made {
    /// All of it.
    Nothing,
    /// An empty directory, or none.
    Store { dir: bool },
}

impl Made {
    fn of(disk: &dyn Disk, root: &Path) -> Result<Self, StoreError> {
        let store = store_file(root);
        if disk.exists(&store).at("look for", &store)? {
            return Ok(Made::Nothing);
        }
        let dir = !disk.exists(root).at("look for", root)?;
        Ok(Made::Store { dir })
    }

    /// Removes a store that was made for the copy, unless somebody has made a table in it.
    fn undo(self, store: &Store) {
        if let Made::Store { dir } = self
            && let Err(error) = store.unmake(dir)
        {
            let path = store.root().display();
            warn!(%path, %error, "the store of a failed checkpoint stays");
        }
    }
}

fn copy_files(
    from: &Store,
    to: &Store,
    name: &TableName,
    advance: &mut dyn FnMut(u64),
) -> Result<Copied, CheckpointError> {
    let disk = &**from.disk();
    let (source, target) = (
        TableFiles::new(from.root(), name),
        TableFiles::new(to.root(), name),
    );
    let manifest = from.read_live_manifest(name, &source)?;
    let manifest = manifest.ok_or_else(|| LiveError::NoTable {
        table: name.clone(),
    })?;
    to.clear_for_live(&target)?;
    let mut copied = Copied {
        runs: 0,
        records: 0,
        file_bytes: 0,
        linked_bytes: 0,
    };
    for run in manifest.files() {
        copied.runs += 1;
        copied.records += run.summary.records;
        let of_run = (source.run(&run.id), target.run(&run.id));
        let extent = (source.extent(&run.id), target.extent(&run.id));
        let sized = [
            (of_run, run.summary.file_bytes),
            (extent, run.summary.ext_bytes),
        ];
        for ((from, to), bytes) in sized.into_iter().filter(|(_, bytes)| *bytes > 0) {
            copied.file_bytes += bytes;
            if disk.link(&from, &to).is_ok() {
                copied.linked_bytes += bytes;
                advance(bytes);
            } else {
                copy_file(disk, &from, &to, advance)?;
            }
        }
    }
    put_manifest(disk, &target, &manifest)?;
    for dir in [tables_dir(to.root()), to.root().to_path_buf()] {
        disk.sync_dir(&dir).at("sync", &dir)?;
    }
    Ok(copied)
}

fn copy_file(
    disk: &dyn Disk,
    from: &Path,
    to: &Path,
    advance: &mut dyn FnMut(u64),
) -> Result<(), StoreError> {
    let source = disk.open(from).at("open", from)?;
    let mut target = disk.create(to).at("create", to)?;
    let (mut at, len_bytes) = (0, source.len_bytes());
    let mut buffer = vec![0; COPY_BYTES];
    while at < len_bytes {
        let bytes = (len_bytes - at).min(COPY_BYTES as u64) as usize;
        source
            .read_exact_at(&mut buffer[..bytes], at)
            .at("read", from)?;
        io::Write::write_all(&mut target, &buffer[..bytes]).at("write", to)?;
        at += bytes as u64;
        advance(bytes as u64);
    }
    target.sync().at("sync", to)
}
