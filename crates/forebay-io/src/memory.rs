//! A disk in memory for runs that are written only to be measured.
//!
//! It has files that are created, written once and read. It has no directories, renames, logs or
//! locks, and returns an error for them.

use std::collections::HashMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::raw::Mapping;
use crate::{Disk, Lock, LogFile, ReadFile, WriteFile};

type Bytes = Arc<Mutex<Vec<u8>>>;

/// A disk of files in memory. Clones share the files.
#[derive(Debug, Default, Clone)]
pub struct MemoryDisk {
    files: Arc<Mutex<HashMap<PathBuf, Bytes>>>,
}

impl MemoryDisk {
    fn find(&self, path: &Path) -> io::Result<Bytes> {
        let files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let found = files.get(path).cloned();
        found.ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

fn unsupported<T>() -> io::Result<T> {
    Err(io::ErrorKind::Unsupported.into())
}

fn content(bytes: &Bytes) -> Vec<u8> {
    bytes.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

impl Disk for MemoryDisk {
    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        Ok(Arc::new(MemoryFile(content(&self.find(path)?))))
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        if files.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let bytes = Bytes::default();
        files.insert(path.to_path_buf(), Arc::clone(&bytes));
        Ok(Box::new(MemoryWriter(bytes)))
    }

    fn create_log(&self, _path: &Path) -> io::Result<Arc<dyn LogFile>> {
        unsupported()
    }

    fn open_log(&self, _path: &Path) -> io::Result<Arc<dyn LogFile>> {
        unsupported()
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        Ok(content(&self.find(path)?))
    }

    fn rename(&self, _from: &Path, _to: &Path) -> io::Result<()> {
        unsupported()
    }

    fn link(&self, _from: &Path, _to: &Path) -> io::Result<()> {
        unsupported()
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let removed = files.remove(path);
        removed
            .map(drop)
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn create_dir_all(&self, _path: &Path) -> io::Result<()> {
        unsupported()
    }

    fn remove_dir(&self, _path: &Path) -> io::Result<()> {
        unsupported()
    }

    fn remove_dir_all(&self, _path: &Path) -> io::Result<()> {
        unsupported()
    }

    fn list(&self, _path: &Path) -> io::Result<Vec<String>> {
        unsupported()
    }

    fn sync_dir(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        Ok(self.find(path).is_ok())
    }

    fn lock(&self, _path: &Path, _holder: &str) -> io::Result<Result<Box<dyn Lock>, String>> {
        unsupported()
    }
}

#[derive(Debug)]
struct MemoryWriter(Bytes);

impl Write for MemoryWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut content = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        content.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl WriteFile for MemoryWriter {
    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[derive(Debug)]
struct MemoryFile(Vec<u8>);

impl ReadFile for MemoryFile {
    fn len_bytes(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let end = start.saturating_add(buf.len());
        let bytes = self.0.get(start..end);
        buf.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn map(&self) -> io::Result<Option<Mapping>> {
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_written_once_and_read_anywhere() {
        let disk = MemoryDisk::default();
        let path = Path::new("a");
        let mut file = disk.create(path).unwrap();
        file.write_all(b"abcdef").unwrap();
        file.sync().unwrap();
        drop(file);
        let (mut middle, file) = ([0; 3], disk.open(path).unwrap());
        file.read_exact_at(&mut middle, 2).unwrap();
        assert_eq!((file.len_bytes(), &middle), (6, b"cde"));
        assert!(file.read_exact_at(&mut middle, 4).is_err());
        assert!(disk.create(path).is_err() && disk.open(Path::new("b")).is_err());
        assert!(disk.remove(path).is_ok() && !disk.exists(path).unwrap());
    }
}
