//! Spare room, so that the log can be shortened on a full disk.
//!
//! Before an old segment is removed, its needed records are rewritten at the end. If another
//! program has filled the disk, there is no room for that, and no room would ever be freed. So a
//! file of zeros, `D.spare`, is kept beside the log while there is room. It is removed when the
//! room is needed, and created again later.

use std::io;
use std::path::{Path, PathBuf};

use forebay_io::{Disk, replace_file};
use tracing::{debug, warn};

use super::{ReplicaLog, ReplicaLogError};
use crate::live::log::LogError;

const SPARE_BYTES: usize = 128 << 10;

/// The known state of the file.
#[derive(Debug, Default)]
pub(super) struct SpareFile {
    is_there: bool,
}

/// Returns the path of the file for the log in `dir`.
pub(super) fn spare_path(dir: &Path) -> PathBuf {
    dir.with_extension("spare")
}

impl ReplicaLog {
    /// Reserves some room for the removal of segments. Call it while the disk has plenty. If the
    /// file cannot be created, the next call tries again.
    pub fn keep_spare(&self) {
        let mut spare = self.removing.lock();
        if spare.is_there || !self.disk.keeps_blocks() {
            return;
        }
        let path = spare_path(&self.dir);
        let made = match self.disk.exists(&path) {
            Ok(true) => Ok(()),
            _ => replace_file(&*self.disk, &path, &vec![0; SPARE_BYTES]),
        };
        match made {
            Ok(()) => spare.is_there = true,
            Err(error) => debug!(path = %path.display(), %error, "no room is kept"),
        }
    }

    /// Frees the room; returns whether there was any.
    pub(super) fn give_spare(&self, spare: &mut SpareFile) -> bool {
        spare.is_there = false;
        let path = spare_path(&self.dir);
        let is_given = self.disk.remove(&path).is_ok();
        if is_given {
            warn!(path = %path.display(), "the disk is full: room that was kept is given up");
        }
        is_given
    }
}

/// Removes the file of the log in `dir`.
pub(super) fn remove_spare(disk: &dyn Disk, dir: &Path) -> io::Result<()> {
    match disk.remove(&spare_path(dir)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Returns whether the error is a lack of room.
pub(super) fn is_full(error: &ReplicaLogError) -> bool {
    matches!(error, ReplicaLogError::Log(LogError::Full { .. }))
}
