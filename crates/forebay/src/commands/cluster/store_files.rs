//! Writes files into a cluster's store after a disaster, past its catalog and its pushes.

use std::io::{self, Write as _};
use std::path::Path;

use anyhow::{Context as _, bail};
use forebay_engine::{STORE_FILE, Store, StoreError, TableName, VersionFile, cluster_store_file};
use forebay_io::{ReadFile, dir_of, replace_file};
use forebay_objects::{Address, Objects, Patience};

use crate::cluster_handle::{is_in_cluster, store_error};
use crate::context::Context;

/// The bytes read and written at a time.
const PIECE_BYTES: u64 = 4 << 20;

fn objects(context: &Context, patience: Patience) -> anyhow::Result<Objects> {
    let url = context.remote_url()?;
    let objects = Objects::connect(&Address::parse(url)?, patience);
    objects.with_context(|| format!("{url}: cannot use it"))
}

/// Refuses a store that does not belong to a cluster. A store whose own file is lost is accepted.
pub fn check(context: &Context) -> anyhow::Result<()> {
    if !context.is_remote() && !context.disk.exists(&context.store_path()?)? {
        bail!(
            "{} is not there: mount it, or make the directory",
            context.store_name()
        );
    }
    match context.open_plainly() {
        Ok(_) => bail!(
            "{} belongs to no cluster: is --store right?",
            context.store_name()
        ),
        Err(error) if is_in_cluster(&error) => Ok(()),
        Err(error) => match store_error(&error) {
            Some(StoreError::NoStore { .. }) => Ok(()),
            _ => Err(error),
        },
    }
}

/// Writes the store's own file if it is lost.
pub fn make(context: &Context) -> anyhow::Result<()> {
    let content = cluster_store_file();
    if context.is_remote() {
        let objects = objects(context, Patience::Short)?;
        if objects.head(STORE_FILE)?.is_none() {
            objects.put_if(STORE_FILE, content.into(), &None)?;
        }
        return Ok(());
    }
    let path = context.store_path()?.join(STORE_FILE);
    if !context.disk.exists(&path)? {
        let made = replace_file(&*context.disk, &path, content.as_bytes());
        made.with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// A destination of table files.
pub enum RestoreTarget<'a> {
    Directory(&'a Store),
    Bucket(Objects),
}

impl<'a> RestoreTarget<'a> {
    pub fn new(store: &'a Store, context: &Context) -> anyhow::Result<Self> {
        Ok(match context.is_remote() {
            true => Self::Bucket(objects(context, Patience::Long)?),
            false => Self::Directory(store),
        })
    }

    /// Writes a file. Calls `advance` with the bytes written.
    pub fn put(
        &self,
        table: &TableName,
        file: &VersionFile,
        from: &dyn ReadFile,
        advance: &dyn Fn(u64),
    ) -> io::Result<()> {
        match self {
            Self::Bucket(objects) => {
                let name = format!("tables/{table}/runs/{}", file.name);
                objects.put_file(&name, from, advance)
            }
            Self::Directory(store) => {
                let runs = store
                    .root()
                    .join("tables")
                    .join(table.as_str())
                    .join("runs");
                copy(store, &runs.join(&file.name), from, advance)
            }
        }
    }
}

/// Copies a file. The file gets its name only once it is complete.
fn copy(store: &Store, to: &Path, from: &dyn ReadFile, advance: &dyn Fn(u64)) -> io::Result<()> {
    let disk = &**store.disk();
    let dir = dir_of(to);
    disk.create_dir_all(dir)?;
    let name = to.file_name().unwrap_or_default().to_string_lossy();
    let unfinished = dir.join(format!(".{name}.new"));
    match disk.remove(&unfinished) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = disk.create(&unfinished)?;
    let (mut at, end) = (0, from.len_bytes());
    while at < end {
        let length = PIECE_BYTES.min(end - at);
        let mut piece = vec![0; length as usize];
        from.read_exact_at(&mut piece, at)?;
        file.write_all(&piece)?;
        advance(length);
        at += length;
    }
    file.sync()?;
    drop(file);
    disk.rename(&unfinished, to)?;
    disk.sync_dir(dir)
}
