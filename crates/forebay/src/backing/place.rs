//! Opens the places of backups that commands name: directories and URLs.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_engine::backup::BackupPlace;
use forebay_io::{Clock, Disk};
use forebay_objects::Patience;

use crate::context::Context;

/// Opens a place of backups. `create` creates it if it does not exist.
pub fn open(name: &str, create: bool, context: &Context) -> anyhow::Result<BackupPlace> {
    if create && is_in_store(name, context.store_name()) {
        wrong!(
            "{name} is inside the store {}: name a place outside the store",
            context.store_name()
        );
    }
    let (disk, root) = disk_of(name, context)?;
    let clock: Arc<dyn Clock> = Arc::clone(&context.clock);
    let opened = match create {
        true => BackupPlace::open_or_create(disk, clock, &root),
        false => BackupPlace::open(disk, clock, &root),
    };
    Ok(opened?)
}

/// Returns whether a URL is that of the store, or below it.
fn is_in_store(name: &str, store: &str) -> bool {
    let (name, store) = (name.trim_end_matches('/'), store.trim_end_matches('/'));
    let below = name.strip_prefix(store);
    name.contains("://") && below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn disk_of(name: &str, context: &Context) -> anyhow::Result<(Arc<dyn Disk>, PathBuf)> {
    if forebay_objects::is_remote(name) {
        let on = context.remote_parts(Patience::Short, None);
        let (disk, root) = forebay_objects::open_disk(name, &on)?;
        return Ok((disk, root));
    }
    let disk = Arc::clone(&context.disk);
    let Some((scheme, rest)) = name.split_once("://") else {
        if name.is_empty() {
            wrong!("the place of backups is empty: give a directory or a URL");
        }
        return Ok((disk, Path::new(name).to_path_buf()));
    };
    let path = (scheme == "file").then(|| forebay_objects::path_of_file_url(rest));
    match path.flatten() {
        Some(path) => Ok((disk, PathBuf::from(path))),
        None => wrong!("{name}: give a directory of this machine, or an s3://, gs:// or az:// URL"),
    }
}
