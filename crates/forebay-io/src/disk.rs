//! Files as the rest of Forebay sees them, and how a small one is replaced in one step.

use std::fmt::Debug;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use crate::raw::Mapping;

/// The file operations Forebay needs. Paths are absolute or relative to the process.
pub trait Disk: Debug + Send + Sync + 'static {
    /// Opens an existing file for reading.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>>;
    /// Creates a file for writing; `AlreadyExists` when there is one.
    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>>;
    /// [`Disk::create`] of a file that nobody else may read.
    fn create_secret(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        self.create(path)
    }
    /// Creates a file that grows at its end while others sync it; `AlreadyExists` when there is
    /// one.
    fn create_log(&self, path: &Path) -> io::Result<Arc<dyn LogFile>>;
    /// Opens an existing file as [`Disk::create_log`] does.
    fn open_log(&self, path: &Path) -> io::Result<Arc<dyn LogFile>>;
    /// Reads a whole small file.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;
    /// Renames within one directory, replacing the target in one step. Durable only after
    /// [`Disk::sync_dir`] of that directory.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Moves a directory with all that is in it, in one step, to where none is or an empty one.
    /// Durable only after [`Disk::sync_dir`] of both directories above.
    fn move_dir(&self, _from: &Path, _to: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Gives a file one more name in its directory; `AlreadyExists` when there is such a file.
    /// Durable only after [`Disk::sync_dir`] of that directory.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()>;
    fn remove(&self, path: &Path) -> io::Result<()>;
    fn create_dir_all(&self, path: &Path) -> io::Result<()>;
    /// Removes an empty directory.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;
    /// Removes a directory and all that is in it.
    fn remove_dir_all(&self, path: &Path) -> io::Result<()>;
    /// The names of a directory's entries, sorted; an absent directory is `NotFound`.
    fn list(&self, path: &Path) -> io::Result<Vec<String>>;
    /// Makes the directory's creations, renames and removals durable.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
    fn exists(&self, path: &Path) -> io::Result<bool>;
    /// Takes an exclusive lock on `path`, created if absent, and writes `holder` into it.
    /// `Err(text)` inside `Ok` is what the present holder wrote. The lock ends when dropped, and
    /// with its process, however that dies. Where there is no space for the holder's words, they
    /// are left out.
    fn lock(&self, path: &Path, holder: &str) -> io::Result<Result<Box<dyn Lock>, String>>;
    /// Whether somebody holds the lock on `path`; nobody does where there is no such file. Where
    /// the system can tell, nothing is written for it.
    fn is_locked(&self, path: &Path) -> io::Result<bool> {
        match self.exists(path)? {
            true => Ok(self.lock(path, "a look whether it is locked")?.is_err()),
            false => Ok(false),
        }
    }
    /// How many bytes may still be written to where `path`, which exists, lies; none where nobody
    /// knows.
    fn free_bytes(&self, _path: &Path) -> io::Result<Option<u64>> {
        Ok(None)
    }
    /// How many files this process may open besides those that it has open; none where nobody
    /// knows, or where there are plenty.
    fn free_files(&self) -> io::Result<Option<u64>> {
        Ok(None)
    }
    /// Others may have written below `dir` without the locks that this process holds: what is
    /// remembered of it is looked at again.
    fn look_again(&self, _dir: &Path) {}
    /// Whether this can fill up, and a file's blocks can be kept for later: not so in object
    /// storage.
    fn keeps_blocks(&self) -> bool {
        true
    }
}

/// A held lock: dropping it gives it back.
pub trait Lock: Debug + Send + Sync {
    /// Fails where somebody else has taken it over meanwhile, as only a lock of several machines
    /// can be.
    fn confirm(&self) -> io::Result<()> {
        Ok(())
    }
}

/// An open, immutable file.
pub trait ReadFile: Debug + Send + Sync {
    fn len_bytes(&self) -> u64;
    /// Fills `buf` from `offset`; `UnexpectedEof` when the file ends before.
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()>;
    /// The file mapped into memory, where this disk can. Simulated disks answer `None`, and so does
    /// a caller's wish to see every access as a read call.
    fn map(&self) -> io::Result<Option<Mapping>>;
    /// Asks the system to drop the file's pages from its cache, so that the next read comes from
    /// the device. A hint.
    fn drop_cache(&self) {}
}

/// A file being written, front to back.
pub trait WriteFile: Write + Debug + Send {
    /// Has the system begin to write to the device what it has of the file so far, so that a sync
    /// at the end finds little left to do. A hint: nothing is durable by that.
    fn write_back(&mut self) {}
    /// Makes all that was written durable. After an error the file's state is unknown: the caller
    /// gives the file up, it never calls `sync` again.
    fn sync(&mut self) -> io::Result<()>;
}

/// A file that one thread writes at its end while others make it durable.
pub trait LogFile: Debug + Send + Sync {
    /// Writes all of `bytes` at `offset`. After an error some of them may be there. What somebody
    /// else has cut off is found missing here, or by the next [`LogFile::sync`].
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Cuts the file, or lengthens it with zeros.
    fn set_len(&self, len_bytes: u64) -> io::Result<()>;
    /// Makes all that was written before the call durable. After an error nobody knows what is: the
    /// caller gives the file up, it never calls `sync` again. An error, too, when somebody else has
    /// cut off what was written.
    fn sync(&self) -> io::Result<()>;
    /// Whether the file still has a name, so that it can be opened again.
    fn has_name(&self) -> io::Result<bool>;
}

/// Whether an error of writing says that there is no room now, which may come back.
pub fn is_out_of_space(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

/// What to do about an error of the system that waiting does not help; behind its words.
pub fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "; give the user of this process the right to it, or name another directory"
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            "; mount the file system for writing, or name another directory"
        }
        io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
            "; a file stands where a directory has to be: move it away, or name another directory"
        }
        io::ErrorKind::IsADirectory => {
            "; a directory stands where a file has to be: move it away, or restore the file from a backup"
        }
        _ => "",
    }
}

/// Whether the device could not give, or take, the bytes.
pub fn is_bad_device(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EIO)
}

/// Writes a small file so that a reader sees the old content or the new, never a mixture, and the
/// new one survives a power cut: temporary file, sync, rename, sync of the directory. A temporary
/// file that cannot be written is removed.
pub fn replace_file(disk: &dyn Disk, path: &Path, content: &[u8]) -> io::Result<()> {
    put_file(disk, path, content)?;
    disk.sync_dir(dir_of(path))
}

/// [`replace_file`] without the sync of the directory, for who tells its failure from that of the
/// rest: a reader sees the new content, but a power cut may bring back the old one.
pub fn put_file(disk: &dyn Disk, path: &Path, content: &[u8]) -> io::Result<()> {
    let name = path
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or("file");
    let temporary = dir_of(path).join(format!(".{name}.new"));
    match disk.remove(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = disk.create(&temporary)?;
    let written = file.write_all(content).and_then(|()| file.sync());
    drop(file);
    if let Err(error) = written {
        // What stays nevertheless is replaced or removed by whoever writes here next.
        let _ = disk.remove(&temporary);
        return Err(error);
    }
    disk.rename(&temporary, path)
}

/// The directory that a file lies in.
pub fn dir_of(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("."))
}

/// Whether no file could be opened as too many are, in this process or on the machine. Nothing was
/// done to the file.
pub fn is_out_of_files(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

/// What opening a file ends with where too many are open.
pub fn out_of_files() -> io::Error {
    io::Error::from_raw_os_error(libc::EMFILE)
}

/// Whether the same may work later, without a doubt about what is on the device: when there is
/// space, or fewer files are open.
pub fn may_pass(error: &io::Error) -> bool {
    is_out_of_space(error) || is_out_of_files(error)
}
