//! The note beside a log that says how far it is durable: `log.durable`.
//!
//! Recovery reads a log up to its end. A file that was truncated or removed ends, too. Only this
//! note shows that records are missing.
//!
//! The note has two sectors. The first is written with the file, which then replaces the previous
//! note. This happens when the first records of a segment have become durable, when the log is
//! opened, and when it is closed. The second sector is overwritten in place after every sync, and
//! not synced. It outlives the process, and the system writes it to the device at some time. A
//! power cut may leave it as it was or tear it. In either case, the position in a valid sector was
//! durable before the sector was written.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_io::{Disk, LogFile, replace_file};
use xxhash_rust::xxh3::xxh3_64;

use super::LogOptions;
use super::error::LogError;
use super::frame::{FramePlace, SECTOR_BYTES};

const MAGIC: &[u8; 8] = b"FBAYEND\x01";
/// Magic, table, segment, offset; the checksum follows.
const FIXED_BYTES: usize = 32;
const ENTRY_BYTES: usize = FIXED_BYTES + 8;

/// The file of the note.
#[derive(Debug)]
pub(super) struct DurableNote {
    path: PathBuf,
    table_id: u64,
    /// The file, open to be overwritten; absent when there is none.
    file: Option<Arc<dyn LogFile>>,
    /// The content of the first sector, if this process put a file with it in place.
    settled: Option<FramePlace>,
    /// The content of the note.
    noted: Option<FramePlace>,
    /// The last segment for which a file was to be put in place. A failure is not repeated for each
    /// sync.
    tried: u64,
}

/// Returns the path of the note of the log in `dir`. It is outside `dir`, so that it survives when
/// all of that is gone.
pub(crate) fn note_path(dir: &Path) -> PathBuf {
    dir.with_extension("durable")
}

/// Returns how far the log in `dir` is known to be durable; `None` if that is unknown.
pub(super) fn read_note(
    disk: &dyn Disk,
    dir: &Path,
    options: &LogOptions,
) -> Result<Option<FramePlace>, LogError> {
    let path = note_path(dir);
    let table = || options.table.clone();
    let bytes = match disk.read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            return Err(LogError::Io {
                table: table(),
                action: "read",
                path,
                source: Arc::new(error),
            });
        }
        Ok(bytes) => bytes,
    };
    let Some((table_id, settled)) = decode(&bytes) else {
        return Err(LogError::Note {
            table: table(),
            path,
        });
    };
    if table_id != options.table_id {
        return Err(LogError::Foreign {
            table: table(),
            path,
            problem: "it is the note of another table".to_owned(),
        });
    }
    let running = bytes.get(SECTOR_BYTES as usize..).and_then(decode);
    let running = running.filter(|(id, _)| *id == table_id);
    Ok(running.map(|(_, place)| place).max(Some(settled)))
}

impl DurableNote {
    pub fn new(dir: &Path, table_id: u64) -> Self {
        Self {
            path: note_path(dir),
            table_id,
            file: None,
            settled: None,
            noted: None,
            tried: 0,
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Records that the log is durable up to `place`. The first place in a segment is recorded
    /// durably. After an error the note has its old content, or this.
    pub fn write(&mut self, disk: &dyn Disk, place: FramePlace) -> io::Result<()> {
        if self.tried < place.segment {
            self.settle(disk, place)?;
        }
        if self.noted >= Some(place) {
            return Ok(());
        }
        let Some(file) = &self.file else {
            return Ok(());
        };
        if let Err(error) = file.write_all_at(&encode(self.table_id, place), SECTOR_BYTES) {
            self.file = None;
            return Err(error);
        }
        self.noted = Some(place);
        Ok(())
    }

    /// Records it durably. Without room for another file, the previous one stays in use.
    pub fn settle(&mut self, disk: &dyn Disk, place: FramePlace) -> io::Result<()> {
        debug_assert!(
            self.noted <= Some(place),
            "{:?} is noted as durable, and is to become {place:?}",
            self.noted
        );
        self.tried = place.segment;
        let mut bytes = encode(self.table_id, place);
        bytes.resize(2 * SECTOR_BYTES as usize, 0);
        replace_file(disk, &self.path, &bytes)?;
        (self.settled, self.noted) = (Some(place), Some(place));
        self.file = Some(disk.open_log(&self.path)?);
        Ok(())
    }

    /// Makes the note's content durable.
    pub fn close(&mut self, disk: &dyn Disk) -> io::Result<()> {
        match self.noted {
            Some(place) if self.settled < Some(place) => self.settle(disk, place),
            _ => Ok(()),
        }
    }
}

fn encode(table_id: u64, place: FramePlace) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(ENTRY_BYTES);
    bytes.extend_from_slice(MAGIC);
    for number in [table_id, place.segment, place.offset] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    let sum = xxh3_64(&bytes);
    bytes.extend_from_slice(&sum.to_le_bytes());
    bytes
}

/// Decodes the table's id and the place, if they are valid.
fn decode(bytes: &[u8]) -> Option<(u64, FramePlace)> {
    let number = |at: usize| -> Option<u64> {
        Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
    };
    let body = bytes.get(..FIXED_BYTES)?;
    if !body.starts_with(MAGIC) || number(FIXED_BYTES)? != xxh3_64(body) {
        return None;
    }
    let place = FramePlace {
        segment: number(16)?,
        offset: number(24)?,
    };
    Some((number(8)?, place))
}
