//! Fetches one file: several ranges of it at a time, each written at its offset.
//!
//! The file grows as `NAME.part`. A note beside it has its complete ranges, so that a pull that was
//! killed continues, from any origin. Ranges that are noted and missing after a power cut are found
//! when the run is verified.

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use forebay_engine::VersionFile;
use forebay_io::{Clock, Disk, LogFile, give_way, replace_file, within};
use futures::{StreamExt, stream};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::runtime::Runtime;
use tracing::warn;

use super::PullError;
use super::origin::{Origin, PIECE_BYTES, RANGE_BYTES};
use super::throttle::PullThrottle;

const RANGES_AT_ONCE: usize = 4;
/// How long an origin may take for a piece while there is another origin.
const PATIENCE: Duration = Duration::from_secs(20);
/// The time between two checks whether the file is still wanted.
const LOOK: Duration = Duration::from_millis(100);
/// The ranges between two updates of the note.
const RANGES_A_NOTE: usize = 4;

/// The complete ranges of a file.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Note {
    len_bytes: u64,
    range_bytes: u64,
    have: BTreeSet<u64>,
}

impl Note {
    fn bytes(&self) -> u64 {
        let lengths = self
            .have
            .iter()
            .map(|index| place(*index, self.len_bytes).1);
        lengths.sum()
    }
}

/// The parameters of a fetch.
pub struct VersionFetcher<'a> {
    /// The origins, in the order in which they are asked. The last one's error is returned.
    pub origins: &'a [Arc<dyn Origin>],
    pub runtime: &'a Runtime,
    pub clock: &'a dyn Clock,
    pub disk: &'a dyn Disk,
    pub throttle: &'a PullThrottle,
    /// Set when the file is no longer wanted.
    pub cancelled: &'a AtomicBool,
    /// Called with the bytes that were fetched, or were complete already.
    pub advance: &'a (dyn Fn(u64) + Sync),
}

impl VersionFetcher<'_> {
    /// Fetches the file of that name in the store, and replaces what is at its path. Returns the
    /// positions of the origins that sent some of it.
    pub fn fetch(&self, name: &str, file: &VersionFile) -> Result<BTreeSet<usize>, PullError> {
        let failed = Mutex::new(BTreeSet::new());
        let mut senders = BTreeSet::new();
        let part = beside(&file.path, ".part");
        let note_path = beside(&file.path, ".part.json");
        let on_disk = |source| PullError::Disk {
            name: file.name.clone(),
            source,
        };
        let mut note = read_note(self.disk, &note_path, file.len_bytes);
        let out = self.open(&part, &mut note).map_err(on_disk)?;
        let count = file.len_bytes.div_ceil(RANGE_BYTES);
        (self.advance)(note.bytes());
        let wanted: Vec<u64> = (0..count)
            .filter(|index| !note.have.contains(index))
            .collect();
        let outcome = self.runtime.block_on(async {
            let mut ranges = stream::iter(wanted)
                .map(|index| self.range(name, file, index, &*out, &failed))
                .buffer_unordered(RANGES_AT_ONCE);
            let mut unnoted = 0;
            while let Some(came) = ranges.next().await {
                let (index, sender) = came?;
                senders.insert(sender);
                note.have.insert(index);
                unnoted += 1;
                if unnoted == RANGES_A_NOTE {
                    self.write_note(&note_path, &note).map_err(on_disk)?;
                    unnoted = 0;
                }
                (self.advance)(place(index, file.len_bytes).1);
            }
            Ok(())
        });
        if let Err(error) = outcome {
            self.write_note(&note_path, &note).map_err(on_disk)?;
            return Err(error);
        }
        let finished = self.finish(&*out, file, &part, &note_path);
        finished.map(|()| senders).map_err(on_disk)
    }

    /// Waits until the rate lets this many bytes pass, or the file is no longer wanted.
    async fn wait_for_turn(&self, bytes: u64) -> Result<(), PullError> {
        let mut turn = pin!(self.throttle.take(bytes));
        loop {
            if self.cancelled.load(Ordering::Relaxed) {
                return Err(PullError::Superseded);
            }
            if within(self.clock, LOOK, turn.as_mut()).await.is_some() {
                return Ok(());
            }
        }
    }

    /// Fetches a range. Returns it with the position of the origin that sent it.
    async fn range(
        &self,
        name: &str,
        file: &VersionFile,
        index: u64,
        out: &dyn LogFile,
        failed: &Mutex<BTreeSet<usize>>,
    ) -> Result<(u64, usize), PullError> {
        let (start, length) = place(index, file.len_bytes);
        let range = start..start + length;
        let mut problem = io::Error::other("nobody was named who has it");
        for (at, origin) in self.origins.iter().enumerate() {
            let is_last = at + 1 == self.origins.len();
            if !is_last && failed.lock().contains(&at) {
                continue;
            }
            let patience = (!is_last).then_some(PATIENCE);
            let from = (&**origin, name, patience);
            let Err(error) = self.fetch_range(from, file, range.clone(), out).await? else {
                return Ok((index, at));
            };
            if !is_last && failed.lock().insert(at) {
                let origin = origin.name();
                warn!(file = name, origin, %error, "passed over");
            }
            problem = error;
        }
        Err(PullError::Request {
            name: name.to_owned(),
            source: problem,
        })
    }

    /// Fetches a range from one origin, in pieces at the rate of the throttle. The inner error is
    /// the origin's.
    async fn fetch_range(
        &self,
        (origin, name, patience): (&dyn Origin, &str, Option<Duration>),
        file: &VersionFile,
        range: Range<u64>,
        out: &dyn LogFile,
    ) -> Result<io::Result<()>, PullError> {
        let mut at = range.start;
        while at < range.end {
            let piece = at..range.end.min(at + origin.piece_bytes());
            let length = piece.end - piece.start;
            self.wait_for_turn(length).await?;
            let asked = origin.fetch(name, piece.clone());
            let sent = match patience {
                None => asked.await,
                Some(patience) => within(self.clock, patience, asked)
                    .await
                    .unwrap_or_else(|| Err(no_answer(patience))),
            };
            let bytes = match sent.and_then(|bytes| whole(bytes, length)) {
                Ok(bytes) => bytes,
                Err(error) => return Ok(Err(error)),
            };
            write_piece(out, &bytes, at).map_err(|source| PullError::Disk {
                name: file.name.clone(),
                source,
            })?;
            at = piece.end;
        }
        Ok(Ok(()))
    }

    fn finish(
        &self,
        out: &dyn LogFile,
        file: &VersionFile,
        part: &Path,
        note: &Path,
    ) -> io::Result<()> {
        out.set_len(file.len_bytes)?;
        out.sync()?;
        self.disk.rename(part, &file.path)?;
        self.disk.remove(note).or_else(gone)
    }

    fn open(&self, part: &Path, note: &mut Note) -> io::Result<Arc<dyn LogFile>> {
        match self.disk.open_log(part) {
            Ok(file) => Ok(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                note.have.clear();
                self.disk.create_log(part)
            }
            Err(error) => Err(error),
        }
    }

    fn write_note(&self, path: &Path, note: &Note) -> io::Result<()> {
        let bytes = serde_json::to_vec(note).map_err(io::Error::other)?;
        replace_file(self.disk, path, &bytes)
    }
}

fn write_piece(out: &dyn LogFile, bytes: &[u8], offset: u64) -> io::Result<()> {
    for (number, piece) in bytes.chunks(PIECE_BYTES).enumerate() {
        out.write_all_at(piece, offset + (number * PIECE_BYTES) as u64)?;
        give_way();
    }
    Ok(())
}

/// Reads the note; empty if there is none that fits.
fn read_note(disk: &dyn Disk, path: &Path, len_bytes: u64) -> Note {
    let known = disk.read(path).ok();
    let known: Option<Note> = known.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let count = len_bytes.div_ceil(RANGE_BYTES);
    let fits = |note: &Note| {
        (note.len_bytes, note.range_bytes) == (len_bytes, RANGE_BYTES)
            && note.have.iter().all(|index| *index < count)
    };
    known.filter(fits).unwrap_or(Note {
        len_bytes,
        range_bytes: RANGE_BYTES,
        have: BTreeSet::new(),
    })
}

fn no_answer(within: Duration) -> io::Error {
    let text = format!("no answer within {} s", within.as_secs());
    io::Error::new(io::ErrorKind::TimedOut, text)
}

fn whole(bytes: Bytes, length: u64) -> io::Result<Bytes> {
    if bytes.len() as u64 == length {
        return Ok(bytes);
    }
    let text = format!("{} bytes were sent of {length}", bytes.len());
    Err(io::Error::new(io::ErrorKind::UnexpectedEof, text))
}

/// Returns how many bytes of a file an earlier, interrupted fetch has fetched.
pub fn came_bytes(disk: &dyn Disk, file: &VersionFile) -> u64 {
    match disk.exists(&beside(&file.path, ".part")) {
        Ok(true) => {
            let note = read_note(disk, &beside(&file.path, ".part.json"), file.len_bytes);
            note.bytes()
        }
        _ => 0,
    }
}

/// Removes what an earlier fetch of the file left.
pub fn forget(disk: &dyn Disk, file: &VersionFile) -> io::Result<()> {
    for ending in [".part", ".part.json"] {
        disk.remove(&beside(&file.path, ending)).or_else(gone)?;
    }
    Ok(())
}

fn gone(error: io::Error) -> io::Result<()> {
    match error.kind() {
        io::ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    }
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

/// Returns the beginning of a range, and its length.
fn place(index: u64, len_bytes: u64) -> (u64, u64) {
    let start = index * RANGE_BYTES;
    (start, RANGE_BYTES.min(len_bytes.saturating_sub(start)))
}
