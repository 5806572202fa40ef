//! Stores sources that can be read only once.
//!
//! These are standard input, and files of web servers without ranges.
//!
//! They are written to a file without a name, so that they can be read at any place, repeatedly.
//! Nothing remains of them however the process ends. They exist as long as the options of the
//! command: a push that starts over finds them.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use forebay_io::{Disk, OsDisk, ReadFile, WriteFile, is_out_of_space};

use super::error::SourceError;

/// The bytes copied at once.
const CHUNK_BYTES: usize = 1 << 20;

/// The place for such sources.
#[derive(Debug, Clone)]
pub struct Spool {
    dir: PathBuf,
    kept: Arc<Mutex<HashMap<String, Spooled>>>,
}

/// A stored source.
#[derive(Debug, Clone)]
pub(super) struct Spooled {
    pub file: Arc<dyn ReadFile>,
    pub size_bytes: u64,
}

impl Default for Spool {
    fn default() -> Spool {
        Spool::new(std::env::temp_dir())
    }
}

impl Spool {
    pub fn new(dir: PathBuf) -> Spool {
        Spool {
            dir,
            kept: Arc::default(),
        }
    }

    /// Returns the stored copy of `source`, or stores what `open` gives. Messages call it `name`.
    pub(super) fn keep<R: Read>(
        &self,
        source: &str,
        name: &str,
        open: impl FnOnce() -> Result<R, SourceError>,
    ) -> Result<Spooled, SourceError> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(spooled) = kept.get(source) {
            return Ok(spooled.clone());
        }
        let spooled = self.fill(name, open()?)?;
        kept.insert(source.to_owned(), spooled.clone());
        Ok(spooled)
    }

    fn fill(&self, name: &str, mut from: impl Read) -> Result<Spooled, SourceError> {
        let unwritten = |written, error| self.error(name, written, error);
        let (mut to, file) = self.nameless().map_err(|error| unwritten(0, error))?;
        let mut chunk = vec![0; CHUNK_BYTES];
        let mut size_bytes = 0;
        loop {
            let read = match from.read(&mut chunk) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    return Err(SourceError::Io {
                        file: name.to_owned(),
                        error,
                    });
                }
            };
            let written = to.write_all(&chunk[..read]);
            written.map_err(|error| unwritten(size_bytes, error))?;
            size_bytes += read as u64;
        }
        to.flush().map_err(|error| unwritten(size_bytes, error))?;
        Ok(Spooled { file, size_bytes })
    }

    /// Creates a nameless file in the directory: the system frees it when it is no longer open. A
    /// directory that did not exist before is removed again.
    fn nameless(&self) -> io::Result<(Box<dyn WriteFile>, Arc<dyn ReadFile>)> {
        let disk = OsDisk::default();
        let above = self.dir.ancestors();
        let missing: Vec<&Path> = above
            .take_while(|dir| !dir.as_os_str().is_empty() && !disk.exists(dir).unwrap_or(true))
            .collect();
        let made = disk.create_dir_all(&self.dir).and_then(|()| {
            let path = self.unused_path();
            let to = disk.create(&path)?;
            let file = disk.open(&path);
            disk.remove(&path)?;
            Ok((to, file?))
        });
        for dir in missing {
            // If other processes use the directory by now, it stays.
            _ = disk.remove_dir(dir);
        }
        made
    }

    fn unused_path(&self) -> PathBuf {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let (process, number) = (std::process::id(), NEXT.fetch_add(1, Relaxed));
        let name = |number| self.dir.join(format!(".forebay-{process}-{number}"));
        let taken = |path: &Path| OsDisk::default().exists(path).unwrap_or(false);
        // A file of an earlier process with the same number that died at the wrong moment.
        let mut path = name(number);
        while taken(&path) {
            path = name(NEXT.fetch_add(1, Relaxed));
        }
        path
    }

    fn error(&self, name: &str, written: u64, error: io::Error) -> SourceError {
        let (file, dir) = (name.to_owned(), self.dir.clone());
        match is_out_of_space(&error) {
            true => SourceError::SpoolFull { file, dir, written },
            false => SourceError::Spool { file, dir, error },
        }
    }
}

impl Spooled {
    /// Reads a range within the file.
    pub fn read(&self, range: std::ops::Range<u64>) -> io::Result<bytes::Bytes> {
        let mut held = vec![0; (range.end - range.start) as usize];
        self.file.read_exact_at(&mut held, range.start)?;
        Ok(held.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spool_is_read_once_and_leaves_no_name() {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::new(dir.path().join("work").join("deep"));
        let content: Vec<u8> = (0..3_000_000_u32).map(|i| (i * 7) as u8).collect();
        let first = spool.keep("-", "it", || Ok(&content[..])).unwrap();
        assert_eq!(first.size_bytes, 3_000_000);
        assert_eq!(
            first.read(1_048_570..1_048_590).unwrap(),
            content[1_048_570..1_048_590]
        );
        let names = OsDisk::default().list(dir.path()).unwrap();
        assert_eq!(names, Vec::<String>::new());
        let clone = spool.clone();
        let again = clone.keep("-", "it", || -> Result<&[u8], _> {
            Err(SourceError::NoSource)
        });
        assert_eq!(again.unwrap().read(5..7).unwrap(), content[5..7]);
    }
}
