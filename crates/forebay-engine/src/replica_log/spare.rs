//! Room for shortening the log on a full disk.
//!
//! To remove an old segment, what is needed of it is written again behind. Where somebody else has
//! filled the disk, there is no room for that, and so none would come. So a file of zeros is kept
//! beside the log, `D.spare`, while there is room. It is removed when it is needed, and made again
//! later.

use std::io;
use std::path::{Path, PathBuf};

use forebay_io::{Disk, replace_file};
use tracing::{debug, warn};

use super::{ReplicaLog, ReplicaLogError};
use crate::live::log::LogError;

const SPARE_BYTES: usize = 128 << 10;

/// What is known of the file.
#[derive(Debug, Default)]
pub(super) struct SpareFile {
    is_there: bool,
}

/// Where it is for the log in `dir`.
pub(super) fn spare_path(dir: &Path) -> PathBuf {
    dir.with_extension("spare")
}

impl ReplicaLog {
    /// Sees that there is some room for the removal of segments. For when the disk has plenty;
    /// where it cannot be made, the next call tries again.
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

    /// Gives the room up; returns whether there was any.
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

/// Whether there was no room for it.
pub(super) fn is_full(error: &ReplicaLogError) -> bool {
    matches!(error, ReplicaLogError::Log(LogError::Full { .. }))
}
