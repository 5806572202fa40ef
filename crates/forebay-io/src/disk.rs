//! Files as the rest of Forebay sees them, and the atomic replacement of small ones.

use std::fmt::Debug;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use crate::raw::Mapping;

/// The file operations that Forebay needs. Paths are absolute or relative to the process.
pub trait Disk: Debug + Send + Sync + 'static {
    /// Opens an existing file for reading.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>>;
    /// Creates a file for writing; `AlreadyExists` if there is one.
    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>>;
    /// Creates a file as [`Disk::create`] does, which no other user may read.
    fn create_secret(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        self.create(path)
    }
    /// Creates a file that grows at its end while other threads sync it; `AlreadyExists` if there
    /// is one.
    fn create_log(&self, path: &Path) -> io::Result<Arc<dyn LogFile>>;
    /// Opens an existing file as [`Disk::create_log`] does.
    fn open_log(&self, path: &Path) -> io::Result<Arc<dyn LogFile>>;
    /// Reads a whole small file.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;
    /// Renames within one directory, replacing the target in one step. Durable only after
    /// [`Disk::sync_dir`] of that directory.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Moves a directory with its content, in one step, to a path that does not exist or is an
    /// empty directory. Durable only after [`Disk::sync_dir`] of both parent directories.
    fn move_dir(&self, _from: &Path, _to: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Gives a file another name in its directory; `AlreadyExists` if there is such a file. Durable
    /// only after [`Disk::sync_dir`] of that directory.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()>;
    fn remove(&self, path: &Path) -> io::Result<()>;
    fn create_dir_all(&self, path: &Path) -> io::Result<()>;
    /// Removes an empty directory.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;
    /// Removes a directory and its content.
    fn remove_dir_all(&self, path: &Path) -> io::Result<()>;
    /// Returns the names of a directory's entries, sorted; an absent directory is `NotFound`.
    fn list(&self, path: &Path) -> io::Result<Vec<String>>;
    /// Makes the directory's creations, renames and removals durable.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
    fn exists(&self, path: &Path) -> io::Result<bool>;
    /// Takes an exclusive lock on `path`, created if absent, and writes `holder` into it.
    /// `Err(text)` inside `Ok` is what the present holder wrote. The lock ends when it is dropped,
    /// and with its process, however that dies. If there is no space for the holder's text, it is
    /// left out.
    fn lock(&self, path: &Path, holder: &str) -> io::Result<Result<Box<dyn Lock>, String>>;
    /// Returns whether a process holds the lock on `path`. If there is no such file, none does. If
    /// the system can answer without writing, nothing is written.
    fn is_locked(&self, path: &Path) -> io::Result<bool> {
        match self.exists(path)? {
            true => Ok(self.lock(path, "a look whether it is locked")?.is_err()),
            false => Ok(false),
        }
    }
    /// Returns how many bytes may still be written to the file system of `path`, which exists;
    /// `None` if it is unknown.
    fn free_bytes(&self, _path: &Path) -> io::Result<Option<u64>> {
        Ok(None)
    }
    /// Returns how many more files this process may open; `None` if it is unknown, or if there are
    /// plenty.
    fn free_files(&self) -> io::Result<Option<u64>> {
        Ok(None)
    }
    /// Discards what is cached of the content below `dir`: others may have written there without
    /// the locks that this process holds.
    fn look_again(&self, _dir: &Path) {}
    /// Returns whether this is object storage: every access is a request, there are no links, and
    /// directories exist only as prefixes of names.
    fn is_object_storage(&self) -> bool {
        false
    }
    /// Returns whether this disk can fill up, so that blocks can be reserved for a file.
    fn keeps_blocks(&self) -> bool {
        !self.is_object_storage()
    }
}

/// A held lock, which is released when it is dropped.
pub trait Lock: Debug + Send + Sync {
    /// Fails if another process has taken the lock over meanwhile, which only a lock of several
    /// machines allows.
    fn check_held(&self) -> io::Result<()> {
        Ok(())
    }
}

/// An open, immutable file.
pub trait ReadFile: Debug + Send + Sync {
    fn len_bytes(&self) -> u64;
    /// Fills `buf` from `offset`; `UnexpectedEof` if the file ends before.
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()>;
    /// Returns the file mapped into memory, if this disk supports it. `None` for simulated disks,
    /// and for callers that want every access as a read call.
    fn map(&self) -> io::Result<Option<Mapping>>;
    /// Asks the system to drop the file's pages from its cache, so that the next read comes from
    /// the device. A hint.
    fn drop_cache(&self) {}
}

/// A file that is written front to back.
pub trait WriteFile: Write + Debug + Send {
    /// Asks the system to begin writing the file to the device, so that a final sync has little
    /// left to do. A hint: it makes nothing durable.
    fn write_back(&mut self) {}
    /// Makes everything written durable. After an error the file's state is unknown. The caller
    /// then abandons the file and never calls `sync` again.
    fn sync(&mut self) -> io::Result<()>;
}

/// A file that one thread writes at its end while others make it durable.
pub trait LogFile: Debug + Send + Sync {
    /// Writes all of `bytes` at `offset`. After an error some of them may be in the file. If
    /// another process has truncated the file, this call or the next [`LogFile::sync`] detects it.
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Truncates the file, or extends it with zeros.
    fn set_len(&self, len_bytes: u64) -> io::Result<()>;
    /// Makes everything written before the call durable. After an error it is unknown what is
    /// durable. The caller then abandons the file and never calls `sync` again. It is also an error
    /// if another process has truncated what was written.
    fn sync(&self) -> io::Result<()>;
    /// Returns whether the file still has a name, so that it can be opened again.
    fn has_name(&self) -> io::Result<bool>;
}

/// Returns whether a write error means that there is no space now; there may be later.
pub fn is_out_of_space(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

/// Returns advice for a system error that waiting does not fix, to follow the error's text.
pub fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "; give the user of this process the right to it, or name another directory"
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            "; mount the file system for writing, or name another directory"
        }
        io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
            "; a file is where a directory has to be: move it away, or name another directory"
        }
        io::ErrorKind::IsADirectory => {
            "; a directory is where a file has to be: move it away, or restore the file from a \
             backup"
        }
        _ => "",
    }
}

/// Returns whether the device failed to read or write the bytes.
pub fn is_bad_device(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EIO)
}

/// Replaces a small file. A reader sees the old content or the new, never a mixture, and the new
/// one survives a power cut. Steps: temporary file, sync, rename, sync of the directory. A
/// temporary file that cannot be written is removed.
pub fn replace_file(disk: &dyn Disk, path: &Path, content: &[u8]) -> io::Result<()> {
    put_file(disk, path, content)?;
    disk.sync_dir(dir_of(path))
}

/// Replaces a small file as [`replace_file`] does, without the sync of the directory, for callers
/// that handle its failure separately. A reader sees the new content, but a power cut may restore
/// the old one.
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
        // If it stays nevertheless, the next writer replaces or removes it.
        let _ = disk.remove(&temporary);
        return Err(error);
    }
    disk.rename(&temporary, path)
}

/// Returns the directory of a file.
pub fn dir_of(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("."))
}

/// Returns whether a file could not be opened because too many are open, in this process or on the
/// machine. The file is unchanged.
pub fn is_out_of_files(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

/// Returns the error of opening a file when too many are open.
pub fn out_of_files() -> io::Error {
    io::Error::from_raw_os_error(libc::EMFILE)
}

/// Returns whether the operation may succeed later, when there is space or fewer files are open.
/// The state of the device is then not in doubt.
pub fn may_pass(error: &io::Error) -> bool {
    is_out_of_space(error) || is_out_of_files(error)
}
