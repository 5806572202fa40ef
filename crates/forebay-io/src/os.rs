//! The machine's own file system.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use crate::log_file::OsLogFile;
use crate::raw::{self, Mapping};
use crate::{Disk, Lock, LogFile, ReadFile, WriteFile, is_out_of_space};

/// Files of the operating system, read by mapping them.
#[derive(Debug, Default, Clone, Copy)]
pub struct OsDisk {
    /// Reads and writes by system calls instead of mapping, so that tools outside the process see
    /// every access.
    pub without_maps: bool,
}

impl Disk for OsDisk {
    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        // Opening a pipe would wait until a process writes to it.
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(libc::O_NONBLOCK);
        let file = options.open(path)?;
        raw::expect_random_reads(&file);
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "not a regular file",
            ));
        }
        Ok(Arc::new(OsReadFile {
            file,
            len_bytes: metadata.len(),
            map: !self.without_maps,
        }))
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        Ok(Box::new(OsWriteFile(
            OpenOptions::new().write(true).create_new(true).open(path)?,
        )))
    }

    fn create_secret(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        let mut options = OpenOptions::new();
        let options = options.write(true).create_new(true).mode(0o600);
        Ok(Box::new(OsWriteFile(options.open(path)?)))
    }

    fn create_log(&self, path: &Path) -> io::Result<Arc<dyn LogFile>> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).open(path)?;
        Ok(Arc::new(OsLogFile::new(file, 0, !self.without_maps)))
    }

    fn open_log(&self, path: &Path) -> io::Result<Arc<dyn LogFile>> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let len_bytes = file.metadata()?.len();
        Ok(Arc::new(OsLogFile::new(
            file,
            len_bytes,
            !self.without_maps,
        )))
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        fs::read(path)
    }

    fn move_dir(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::hard_link(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        fs::create_dir_all(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir_all(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(path)? {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        names.sort_unstable();
        Ok(names)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        match fs::exists(path) {
            // A plain file has nothing below it.
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => Ok(false),
            exists => exists,
        }
    }

    fn free_bytes(&self, path: &Path) -> io::Result<Option<u64>> {
        raw::free_bytes(path).map(Some)
    }

    fn free_files(&self) -> io::Result<Option<u64>> {
        // So many are never used up, and counting them takes milliseconds.
        const PLENTY: u64 = 1 << 16;
        let Some(limit) = raw::open_files_limit().filter(|limit| *limit < PLENTY) else {
            return Ok(None);
        };
        let open = fs::read_dir("/proc/self/fd")?.count() as u64;
        Ok(Some(limit.saturating_sub(open)))
    }

    fn is_locked(&self, path: &Path) -> io::Result<bool> {
        let file = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            file => file?,
        };
        match file.try_lock_shared() {
            Ok(()) => Ok(false),
            Err(fs::TryLockError::WouldBlock) => Ok(true),
            Err(fs::TryLockError::Error(error)) => Err(error),
        }
    }

    fn lock(&self, path: &Path, holder: &str) -> io::Result<Result<Box<dyn Lock>, String>> {
        loop {
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(path)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(fs::TryLockError::WouldBlock) => {
                    let mut text = String::new();
                    file.take(4096).read_to_string(&mut text)?;
                    return Ok(Err(text));
                }
                Err(fs::TryLockError::Error(error)) => return Err(error),
            }
            // The previous holder may have removed the file between our opening and our locking it:
            // the next process would create and lock another one.
            if !is_at(&file, path)? {
                continue;
            }
            write_holder(&file, holder.as_bytes())?;
            return Ok(Ok(Box::new(OsLock { _file: file })));
        }
    }
}

/// Overwrites the text of the previous holder in its own block: a full disk has no other. Without
/// any space there is no text.
fn write_holder(file: &File, words: &[u8]) -> io::Result<()> {
    match file.write_all_at(words, 0) {
        Err(error) if is_out_of_space(&error) => file.set_len(0),
        written => written.and_then(|()| file.set_len(words.len() as u64)),
    }
}

/// Returns whether the open file is the one that has this name now.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let identity = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    match fs::metadata(path) {
        Ok(found) => Ok(identity(found) == identity(file.metadata()?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[derive(Debug)]
struct OsLock {
    _file: File,
}

impl Lock for OsLock {}

#[derive(Debug)]
struct OsReadFile {
    file: File,
    len_bytes: u64,
    map: bool,
}

impl ReadFile for OsReadFile {
    fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(buf, offset)
    }

    fn map(&self) -> io::Result<Option<Mapping>> {
        if self.map {
            Mapping::new(&self.file).map(Some)
        } else {
            Ok(None)
        }
    }

    fn drop_cache(&self) {
        raw::drop_file_cache(&self.file);
    }
}

#[derive(Debug)]
struct OsWriteFile(File);

impl Write for OsWriteFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl WriteFile for OsWriteFile {
    fn write_back(&mut self) {
        raw::start_write_back(&self.0);
    }

    fn sync(&mut self) -> io::Result<()> {
        self.0.sync_data()
    }
}
