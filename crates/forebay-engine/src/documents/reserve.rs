//! Reserves disk space for a table's pointer, so that it can move on a full disk.
//!
//! Beside the pointer is a file of zeros, the reserve, whose blocks are already allocated. While
//! the disk has space, the reserve does not change. Without space, a pointer is replaced as
//! follows:
//!
//! 1. The new content is written over the reserve, which takes no space, and synced.
//! 2. The pointer's file gets a second name.
//! 3. The reserve is renamed to be the pointer, and the directory synced: the new pointer counts.
//! 4. The old pointer's file, by its second name, becomes the reserve.
//!
//! No step frees blocks, so no other process can take them, and pointers can be moved any number of
//! times. A crash leaves the old pointer or the new one, and perhaps one of the two other names.
//! The next replacement on a full disk cleans these up. With space again, the next move of the
//! pointer, or the next push, makes a reserve of full size.

use std::io;
use std::path::{Path, PathBuf};

use forebay_io::{Disk, replace_file};
use tracing::{debug, warn};

/// The allocation unit of a disk.
const BLOCK_BYTES: usize = 4096;

/// The reserve of one pointer.
#[derive(Debug)]
pub(crate) struct Reserve<'a> {
    disk: &'a dyn Disk,
    pointer: &'a Path,
    reserve: PathBuf,
    /// The second name of the pointer that is being replaced; debris for a push.
    kept: PathBuf,
}

/// A reserve that has become the pointer.
#[derive(Debug)]
pub(crate) struct Spent {
    /// Whether the old pointer's file has its second name.
    kept: bool,
    pointer_bytes: usize,
}

impl<'a> Reserve<'a> {
    pub fn of(disk: &'a dyn Disk, pointer: &'a Path) -> Self {
        let name = pointer.file_name().unwrap_or_default().to_string_lossy();
        Self {
            disk,
            pointer,
            reserve: pointer.with_file_name(format!("{name}.reserve")),
            kept: pointer.with_file_name(format!(".{name}.old.new")),
        }
    }

    /// Makes a reserve for pointers of about so many bytes, if there is space. A failure is no
    /// error: the next call tries again.
    pub fn keep(&self, pointer_bytes: usize) {
        if !self.disk.keeps_blocks() {
            return;
        }
        // The history may grow before the reserve is needed.
        let wanted = (2 * pointer_bytes).max(1).next_multiple_of(BLOCK_BYTES);
        let there = self.disk.open(&self.reserve);
        if there.is_ok_and(|file| file.len_bytes() >= wanted as u64) {
            return;
        }
        if let Err(error) = replace_file(self.disk, &self.reserve, &vec![0; wanted]) {
            let path = self.reserve.display();
            debug!(%path, %error, "no space is kept for the pointer");
        }
    }

    /// Replaces the pointer's file without taking space. After an error the file is unchanged,
    /// except after an error of the rename: then it may have either content. Returns the state that
    /// [`Reserve::refill`] needs. The caller syncs the directory and then calls
    /// [`Reserve::refill`].
    pub fn put_pointer(&self, content: &[u8]) -> io::Result<Spent> {
        self.settle()?;
        let file = self.disk.open_log(&self.reserve)?;
        file.write_all_at(content, 0)?;
        file.set_len(content.len() as u64)?;
        file.sync()?;
        drop(file);
        // A file system without second names frees the old pointer's block instead.
        let kept = self.disk.link(self.pointer, &self.kept).is_ok();
        self.disk.rename(&self.reserve, self.pointer)?;
        Ok(Spent {
            kept,
            pointer_bytes: content.len(),
        })
    }

    /// Makes the old pointer's file the reserve. REQUIRES that the new pointer is durable.
    pub fn refill(&self, spent: &Spent) {
        if !spent.kept {
            self.keep(spent.pointer_bytes);
        } else if let Err(error) = self.disk.rename(&self.kept, &self.reserve) {
            let path = self.reserve.display();
            warn!(%path, %error, "no space is kept for the pointer");
        }
    }

    /// Completes a replacement that a crash interrupted. REQUIRES: each pointer differs from the
    /// one before. The pointer's file never becomes the reserve.
    fn settle(&self) -> io::Result<()> {
        let read = |path: &Path| match self.disk.read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            content => content.map(Some),
        };
        let Some(old) = read(&self.kept)? else {
            return Ok(());
        };
        let is_pointer = read(self.pointer)?.is_none_or(|pointer| pointer == old);
        if is_pointer || self.disk.exists(&self.reserve)? {
            self.disk.remove(&self.kept)
        } else {
            self.disk.rename(&self.kept, &self.reserve)
        }
    }
}
