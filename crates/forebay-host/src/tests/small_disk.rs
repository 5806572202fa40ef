//! A disk in memory with limited space.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_io::sim::SimDisk;
use forebay_io::{Disk, Lock, LogFile, ReadFile, WriteFile};
use parking_lot::Mutex;

const BLOCK_BYTES: u64 = 4096;

#[derive(Debug, Clone)]
pub struct SmallDisk {
    inner: SimDisk,
    space: Arc<Mutex<Space>>,
}

#[derive(Debug, Default)]
struct Space {
    limit_bytes: u64,
    /// The length of each file, by its name, and its creation number.
    files: BTreeMap<PathBuf, (u64, u64)>,
    used_bytes: u64,
    most_bytes: u64,
    made: u64,
}

fn blocks(len_bytes: u64) -> u64 {
    len_bytes.next_multiple_of(BLOCK_BYTES)
}

impl Space {
    fn forget(&mut self, path: &Path) {
        if let Some((_, len_bytes)) = self.files.remove(path) {
            self.used_bytes -= blocks(len_bytes);
        }
    }

    /// Returns the length of the file with this creation number, if it has a name.
    fn len_of(&mut self, made: u64) -> Option<&mut u64> {
        let mut files = self.files.values_mut();
        let found = files.find(|(other, _)| *other == made);
        found.map(|(_, len_bytes)| len_bytes)
    }

    fn grow(&mut self, made: u64, end: u64) -> io::Result<()> {
        let (limit_bytes, used_bytes) = (self.limit_bytes, self.used_bytes);
        let Some(len_bytes) = self.len_of(made) else {
            return Ok(());
        };
        let more = blocks(end).saturating_sub(blocks(*len_bytes));
        if more > 0 && used_bytes + more > limit_bytes {
            return Err(io::ErrorKind::StorageFull.into());
        }
        *len_bytes = end.max(*len_bytes);
        self.used_bytes += more;
        self.most_bytes = self.most_bytes.max(self.used_bytes);
        Ok(())
    }

    fn truncate(&mut self, made: u64, len_bytes: u64) {
        if let Some(len) = self.len_of(made) {
            let less = blocks(*len).saturating_sub(blocks(len_bytes));
            *len = len_bytes;
            self.used_bytes -= less;
        }
    }
}

impl SmallDisk {
    pub fn new(limit_bytes: u64) -> Self {
        let space = Space {
            limit_bytes,
            ..Space::default()
        };
        Self {
            inner: SimDisk::new(),
            space: Arc::new(Mutex::new(space)),
        }
    }

    /// Returns the most bytes that it ever had.
    pub fn most_bytes(&self) -> u64 {
        self.space.lock().most_bytes
    }

    /// Lets another user take all free space but this.
    pub fn leave(&self, free_bytes: u64) {
        let mut space = self.space.lock();
        space.limit_bytes = space.used_bytes + free_bytes;
    }

    fn enter(&self, path: &Path, len_bytes: u64) -> Part {
        let mut space = self.space.lock();
        space.made += 1;
        let made = space.made;
        let made = match space.files.get(path) {
            Some((made, _)) => *made,
            None => {
                space.files.insert(path.to_path_buf(), (made, len_bytes));
                space.used_bytes += blocks(len_bytes);
                made
            }
        };
        Part {
            space: Arc::clone(&self.space),
            made,
        }
    }

    fn has_room(&self) -> io::Result<()> {
        let space = self.space.lock();
        match space.used_bytes < space.limit_bytes {
            true => Ok(()),
            false => Err(io::ErrorKind::StorageFull.into()),
        }
    }
}

#[derive(Debug)]
struct Part {
    space: Arc<Mutex<Space>>,
    made: u64,
}

#[derive(Debug)]
struct SmallLog(Arc<dyn LogFile>, Part);

impl LogFile for SmallLog {
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let end = offset + bytes.len() as u64;
        self.1.space.lock().grow(self.1.made, end)?;
        self.0.write_all_at(bytes, offset)
    }

    fn set_len(&self, len_bytes: u64) -> io::Result<()> {
        self.0.set_len(len_bytes)?;
        self.1.space.lock().truncate(self.1.made, len_bytes);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }

    fn has_name(&self) -> io::Result<bool> {
        self.0.has_name()
    }
}

#[derive(Debug)]
struct SmallFile {
    file: Box<dyn WriteFile>,
    part: Part,
    end: u64,
}

impl Write for SmallFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let end = self.end + bytes.len() as u64;
        self.part.space.lock().grow(self.part.made, end)?;
        self.file.write_all(bytes)?;
        self.end = end;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl WriteFile for SmallFile {
    fn sync(&mut self) -> io::Result<()> {
        self.file.sync()
    }
}

impl Disk for SmallDisk {
    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        self.inner.open(path)
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        self.has_room()?;
        let file = self.inner.create(path)?;
        let part = self.enter(path, 0);
        Ok(Box::new(SmallFile { file, part, end: 0 }))
    }

    fn create_log(&self, path: &Path) -> io::Result<Arc<dyn LogFile>> {
        self.has_room()?;
        let file = self.inner.create_log(path)?;
        Ok(Arc::new(SmallLog(file, self.enter(path, 0))))
    }

    fn open_log(&self, path: &Path) -> io::Result<Arc<dyn LogFile>> {
        let file = self.inner.open_log(path)?;
        Ok(Arc::new(SmallLog(file, self.enter(path, 0))))
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.inner.read(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.rename(from, to)?;
        let mut space = self.space.lock();
        if let Some(file) = space.files.remove(from) {
            space.forget(to);
            space.files.insert(to.to_path_buf(), file);
        }
        Ok(())
    }

    fn link(&self, _: &Path, _: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.inner.remove(path)?;
        self.space.lock().forget(path);
        Ok(())
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.inner.create_dir_all(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.inner.remove_dir(path)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.inner.remove_dir_all(path)?;
        let mut space = self.space.lock();
        let inside = space.files.keys().filter(|file| file.starts_with(path));
        let gone: Vec<PathBuf> = inside.cloned().collect();
        gone.iter().for_each(|file| space.forget(file));
        Ok(())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        self.inner.list(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.inner.sync_dir(path)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.inner.exists(path)
    }

    fn lock(&self, path: &Path, holder: &str) -> io::Result<Result<Box<dyn Lock>, String>> {
        self.inner.lock(path, holder)
    }

    fn is_locked(&self, path: &Path) -> io::Result<bool> {
        self.inner.is_locked(path)
    }

    fn free_bytes(&self, _: &Path) -> io::Result<Option<u64>> {
        let space = self.space.lock();
        Ok(Some(space.limit_bytes.saturating_sub(space.used_bytes)))
    }
}
