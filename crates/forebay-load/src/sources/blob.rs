//! Reads ranges of source files, from a store or from a spooled copy.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, Once};

use bytes::Bytes;

use super::error::SourceError;
use super::spool::Spooled;
use super::store::{Fetch, Object};

/// The bytes that a sequential reader requests at once, from a local disk and across a network.
const WINDOW_BYTES: u64 = 1 << 20;
const FAR_WINDOW_BYTES: u64 = 4 << 20;
/// The windows that are fetched ahead across a network.
const AHEAD: usize = 2;

/// Decoders' error texts that prove damage: a checksum, a length or a bound is wrong.
const PROOFS_OF_DAMAGE: [&str; 11] = [
    "EOF",
    "checksum",
    "Invalid Parquet file",
    "the footer says",
    "is not within",
    "bytes are left",
    "too short",
    "cut off",
    "cannot become",
    "does not end with",
    "than memory has",
];

/// Decoders' error texts with a common cause, and advice for each.
const CAUSES: [(&str, &str); 3] = [
    (
        "Required field type_ is missing",
        "its columns may be encrypted, which is not supported: write it without encryption",
    ),
    (
        "Expected list element type",
        "it has a field of another type than Parquet says, as files of Dremio 3.2 have: write it by a newer writer",
    ),
    (
        "bit width of 128",
        "columns of 128-bit integers are not supported: write them as decimal(38,0) or text",
    ),
];

/// The location of a file's bytes.
#[derive(Debug, Clone)]
pub(super) enum Storage {
    Stored(Object),
    Spooled(Spooled),
}

/// A source file.
#[derive(Debug, Clone)]
pub(super) struct Blob {
    pub storage: Storage,
    /// The name in messages.
    pub name: Arc<str>,
    pub size_bytes: u64,
}

impl Blob {
    /// Reads a range; an error if the file is shorter.
    pub fn read(&self, range: Range<u64>) -> io::Result<Bytes> {
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        if range.end > self.size_bytes {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match &self.storage {
            Storage::Stored(object) => object.read(range),
            Storage::Spooled(spooled) => spooled.read(range),
        }
    }

    /// Reads the first `length` bytes, or all if there are fewer.
    pub fn head(&self, length: u64) -> Result<Bytes, SourceError> {
        let read = self.read(0..self.size_bytes.min(length));
        read.map_err(|error| self.io_error(error))
    }

    /// Fails if a local file has changed since it was found.
    pub fn confirm(&self) -> Result<(), SourceError> {
        let as_found = match &self.storage {
            Storage::Stored(object) if !object.store.far => object.is_as_found(self.size_bytes),
            // Each response of a store across a network is checked against the tag.
            Storage::Stored(_) | Storage::Spooled(_) => Ok(true),
        };
        match as_found.map_err(|error| self.io_error(error))? {
            true => Ok(()),
            false => Err(SourceError::Changed {
                file: self.name.to_string(),
            }),
        }
    }

    /// Returns the file if it is read across a network.
    pub fn far(&self) -> Option<&Object> {
        match &self.storage {
            Storage::Stored(object) if object.store.far => Some(object),
            _ => None,
        }
    }

    pub fn io_error(&self, error: io::Error) -> SourceError {
        SourceError::Io {
            file: self.name.to_string(),
            error,
        }
    }

    pub fn damaged(&self, place: impl Into<String>, reason: impl ToString) -> SourceError {
        SourceError::Damaged {
            file: self.name.to_string(),
            place: place.into(),
            reason: reason.to_string(),
        }
    }

    /// Returns the error for content that a decoder refuses: damaged if its reason proves that,
    /// else not readable.
    pub fn undecoded(&self, place: impl Into<String>, reason: String) -> SourceError {
        if PROOFS_OF_DAMAGE.iter().any(|proof| reason.contains(proof)) {
            return self.damaged(place, reason);
        }
        let cause = CAUSES.iter().find(|(part, _)| reason.contains(part));
        let reason = match cause {
            Some((_, cause)) => format!("{reason}; {cause}"),
            None => reason,
        };
        SourceError::Undecoded {
            file: self.name.to_string(),
            place: place.into(),
            reason,
        }
    }

    /// Returns a reader of a range, from front to back.
    pub fn reader(&self, range: Range<u64>) -> BlobReader {
        match self.far() {
            Some(_) => self.reader_by(range, FAR_WINDOW_BYTES).ahead(AHEAD),
            None => self.reader_by(range, WINDOW_BYTES),
        }
    }

    /// Returns a reader that requests `window` bytes at once.
    pub fn reader_by(&self, range: Range<u64>, window: u64) -> BlobReader {
        let at = range.start;
        BlobReader {
            blob: self.clone(),
            range,
            at,
            window,
            held: Bytes::new(),
            held_at: at,
            depth: 0,
            coming: VecDeque::new(),
        }
    }
}

/// A reader of a range of a file through a window.
#[derive(Debug)]
pub(super) struct BlobReader {
    blob: Blob,
    range: Range<u64>,
    at: u64,
    window: u64,
    held: Bytes,
    held_at: u64,
    /// The number of windows to fetch ahead, once two were read in sequence.
    depth: usize,
    /// The windows being fetched, in order, with their ranges.
    coming: VecDeque<(Range<u64>, Fetch)>,
}

impl BlobReader {
    /// Sets the number of windows to fetch ahead, if the file is remote.
    pub fn ahead(mut self, windows: usize) -> BlobReader {
        self.depth = windows;
        self
    }

    /// Adds the first bytes of its range, which were read before.
    pub fn holding(mut self, first: Bytes) -> BlobReader {
        self.held = first;
        self
    }

    /// Returns the start of its range in the file.
    pub fn start(&self) -> u64 {
        self.range.start
    }

    /// Requests the first window now, without waiting for it.
    pub fn begin(&mut self) {
        let end = self.range.end.min(self.at.saturating_add(self.window));
        if let (Some(object), true) = (self.blob.far(), self.at < end) {
            let range = self.at..end;
            let fetch = object.begin(range.clone());
            self.coming.push_back((range, fetch));
        }
    }

    /// Fetches the window at the reader's position, of at least `want` bytes.
    fn fill(&mut self, want: u64) -> io::Result<()> {
        let goes_on = !self.held.is_empty() && self.at == self.held_at + self.held.len() as u64;
        let end = self.range.end.min(self.at.saturating_add(want));
        while (self.coming.front()).is_some_and(|(range, _)| range.start != self.at) {
            self.coming.pop_front();
        }
        self.held = match (self.coming.pop_front(), &self.blob.storage) {
            (Some((_, fetch)), Storage::Stored(object)) => fetch.wait(&object.store.runtime)?,
            _ => self.blob.read(self.at..end)?,
        };
        self.held_at = self.at;
        if let (true, Some(object)) = (goes_on, self.blob.far()) {
            let held_end = self.held_at + self.held.len() as u64;
            let mut next = self.coming.back().map_or(held_end, |(range, _)| range.end);
            while self.coming.len() < self.depth && next < self.range.end {
                let range = next..self.range.end.min(next + self.window);
                next = range.end;
                let fetch = object.begin(range.clone());
                self.coming.push_back((range, fetch));
            }
        }
        Ok(())
    }
}

impl Read for BlobReader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.at >= self.range.end || out.is_empty() {
            return Ok(0);
        }
        let held = self.held_at..self.held_at + self.held.len() as u64;
        if !held.contains(&self.at) {
            self.fill(self.window.max(out.len() as u64))?;
        }
        let from = (self.at - self.held_at) as usize;
        let length = out.len().min(self.held.len() - from);
        out[..length].copy_from_slice(&self.held[from..from + length]);
        self.at += length as u64;
        Ok(length)
    }
}

impl Seek for BlobReader {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let target = match to {
            SeekFrom::Start(at) => self.range.start.checked_add(at),
            SeekFrom::End(by) => self.range.end.checked_add_signed(by),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
        };
        match target {
            Some(at) if at >= self.range.start => {
                self.at = at;
                Ok(at - self.range.start)
            }
            _ => Err(io::ErrorKind::InvalidInput.into()),
        }
    }
}

thread_local! {
    /// Whether this thread runs a decoder whose panics are errors of the file.
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Removes the names of the libraries that passed a reason on.
fn plain(mut reason: &str) -> &str {
    const PASSED_ON: [&str; 5] = [
        "Parquet argument error: ",
        "Parquet error: ",
        "Parser error: ",
        "External: ",
        "Arrow: ",
    ];
    while let Some(rest) = PASSED_ON.iter().find_map(|name| reason.strip_prefix(name)) {
        reason = rest;
    }
    reason
}

/// Runs a decoder that may panic on damaged input, and turns a panic into an error.
pub(super) fn guarded<T, E: ToString>(decode: impl FnOnce() -> Result<T, E>) -> Result<T, String> {
    static QUIET: Once = Once::new();
    // The panic is not printed: the error contains the message.
    QUIET.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !GUARDED.get() {
                before(info);
            }
        }));
    });
    let outer = GUARDED.replace(true);
    // The decoder's state is dropped with it, so no incomplete state is visible afterwards.
    let decoded = panic::catch_unwind(AssertUnwindSafe(decode));
    GUARDED.set(outer);
    match decoded {
        Ok(result) => result.map_err(|error| plain(&error.to_string()).to_owned()),
        Err(_) => Err("its decoder gave up on the content".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn reasons_omit_the_libraries_that_passed_them_on() {
        let reason = "External: Parser error: Int type with bit width of 128";
        assert_eq!(plain(reason), "Int type with bit width of 128");
        assert_eq!(plain("Parquet argument error: Parquet error: x"), "x");
        assert_eq!(plain("EOF: Parquet error: x"), "EOF: Parquet error: x");
    }

    /// Runs in its own process, so that its messages can be read.
    #[test]
    fn a_panic_that_is_caught_is_not_printed() {
        const CHILD: &str = "FOREBAY_TEST_CHILD";
        if std::env::var_os(CHILD).is_some() {
            let caught = guarded(|| -> Result<(), String> { panic!("a decoder's panic") });
            assert!(caught.unwrap_err().contains("gave up"));
            let other = panic::catch_unwind(|| panic!("another panic"));
            assert!(other.is_err());
            return;
        }
        let name = "sources::blob::tests::a_panic_that_is_caught_is_not_printed";
        let mut child = Command::new(std::env::current_exe().unwrap());
        let child = child.args([name, "--exact", "--nocapture"]).env(CHILD, "1");
        let output = child.output().unwrap();
        let reported = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{reported}");
        assert!(!reported.contains("a decoder's panic"), "{reported}");
        assert!(reported.contains("another panic"), "{reported}");
    }
}
