//! Marks a directory as the cache of one store in object storage.
//!
//! What that store does not have is removed from the cache, so nothing else may be in it.

use std::io;
use std::path::Path;

use forebay_engine::{Store, StoreError};
use forebay_io::{Disk, replace_file};

use super::PullError;

const FILE: &str = "pulled-from";

/// Returns whether a directory is a cache, of any store.
pub fn is_claimed(disk: &dyn Disk, dir: &Path) -> io::Result<bool> {
    disk.exists(&dir.join(FILE))
}

/// Makes sure that a local store is the cache of the store at `url`, or of whatever other text
/// identifies it. Marks it if it is empty.
pub fn claim(local: &Store, url: &str) -> Result<(), PullError> {
    let path = local.root().join(FILE);
    let at = |source| PullError::Disk {
        name: path.display().to_string(),
        source,
    };
    let other = |other: String| PullError::NotACache {
        dir: local.root().to_path_buf(),
        other,
    };
    match local.disk().read(&path) {
        Ok(bytes) => {
            let text = String::from_utf8_lossy(&bytes);
            match text.trim() {
                known if known == url => Ok(()),
                known => Err(other(format!("is the cache of {known}"))),
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if holds_tables(local)? {
                return Err(other("holds tables of its own".to_owned()));
            }
            let path: &Path = &path;
            replace_file(&**local.disk(), path, format!("{url}\n").as_bytes()).map_err(at)
        }
        Err(error) => Err(at(error)),
    }
}

fn holds_tables(local: &Store) -> Result<bool, StoreError> {
    Ok(!local.tables()?.is_empty() || !local.live_tables()?.is_empty())
}
