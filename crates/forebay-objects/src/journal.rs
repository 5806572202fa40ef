//! What a push has sent so far, recorded on the sending machine.
//!
//! There is one small file for each file of the version. A killed push leaves them. The next push
//! builds its runs again and compares them part by part with the record: parts that were sent are
//! not sent again.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_io::{Disk, replace_file};
use serde::{Deserialize, Serialize};

const MIB: u64 = 1 << 20;
/// Object stores accept parts of 5 MiB and more, and at most 10,000 of them.
const PART_BYTES: u64 = 8 * MIB;
const PARTS: u64 = 8000;

/// An upload of one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    pub len_bytes: u64,
    pub part_bytes: u64,
    pub parts: Vec<Part>,
    /// The store's name for an upload in parts, once it has begun.
    pub upload: Option<String>,
    /// Whether the object is complete.
    pub complete: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// XXH3-64 of its bytes.
    pub sum: u64,
    /// The store's receipt, once the part is sent.
    pub receipt: Option<String>,
}

impl Entry {
    pub fn new(len_bytes: u64, sums: &[u64]) -> Self {
        let part = |sum: &u64| Part {
            sum: *sum,
            receipt: None,
        };
        Self {
            len_bytes,
            part_bytes: part_bytes(len_bytes),
            parts: sums.iter().map(part).collect(),
            upload: None,
            complete: false,
        }
    }

    /// Returns whether it is of a file with the same bytes.
    pub fn is_of(&self, other: &Entry) -> bool {
        let sums = |entry: &Entry| entry.parts.iter().map(|part| part.sum).collect::<Vec<_>>();
        (self.len_bytes, self.part_bytes) == (other.len_bytes, other.part_bytes)
            && sums(self) == sums(other)
    }

    /// Returns the range of a part in the file.
    pub fn place(&self, part: usize) -> std::ops::Range<u64> {
        let start = part as u64 * self.part_bytes;
        start..(start + self.part_bytes).min(self.len_bytes)
    }
}

/// Returns the size of the parts of a file.
pub fn part_bytes(len_bytes: u64) -> u64 {
    PART_BYTES.max(len_bytes.div_ceil(PARTS).div_ceil(MIB) * MIB)
}

/// The entries of one table.
#[derive(Debug, Clone)]
pub struct Journal {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
}

impl Journal {
    pub fn new(disk: Arc<dyn Disk>, dir: PathBuf) -> Self {
        Self { disk, dir }
    }

    fn path(&self, file: &str) -> PathBuf {
        self.dir.join(format!("{file}.json"))
    }

    /// Reads an entry. `None` also if it cannot be parsed: the file is then sent again.
    pub fn read(&self, file: &str) -> io::Result<Option<Entry>> {
        match self.disk.read(&self.path(file)) {
            Ok(bytes) => Ok(serde_json::from_slice(&bytes).ok()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub fn write(&self, file: &str, entry: &Entry) -> io::Result<()> {
        let bytes = serde_json::to_vec(entry).map_err(io::Error::other)?;
        replace_file(&*self.disk, &self.path(file), &bytes)
    }

    pub fn remove(&self, file: &str) -> io::Result<()> {
        match self.disk.remove(&self.path(file)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Returns the names of the files that have an entry.
    pub fn files(&self) -> io::Result<Vec<String>> {
        let names = match self.disk.list(&self.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            names => names?,
        };
        let files = names.iter().filter_map(|name| name.strip_suffix(".json"));
        Ok(files
            .filter(|file| !file.starts_with('.'))
            .map(str::to_owned)
            .collect())
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_a_file_of_any_size() {
        for len_bytes in [0, 1, PART_BYTES, PART_BYTES + 1, 70 << 30, 5 << 40] {
            let size = part_bytes(len_bytes);
            let count = len_bytes.div_ceil(size);
            assert!(
                size >= PART_BYTES && count <= PARTS,
                "{len_bytes}: {count} of {size}"
            );
            let entry = Entry::new(len_bytes, &[0]);
            let last = count.max(1) as usize - 1;
            assert_eq!(entry.place(last).end, len_bytes);
        }
    }

    #[test]
    fn a_file_is_known_by_its_parts() {
        let (a, b) = (Entry::new(9, &[1]), Entry::new(9, &[2]));
        let mut sent = a.clone();
        sent.parts[0].receipt = Some("x".to_owned());
        assert!(sent.is_of(&a) && !b.is_of(&a) && !Entry::new(8, &[1]).is_of(&a));
    }
}
