//! The note beside a log of how far it is durable: `log.durable`.
//!
//! A log is read back up to where it ends, and a file that was cut or removed ends, too. What it
//! held is missed only because this note says that it was there.
//!
//! The note has two sectors. The first is written with the file, which then takes the place of the
//! one before: when the first records of a segment have become durable, when the log is opened and
//! when it is closed. The second is written over in place after every sync, and not synced: it
//! outlives the process, and the system writes it to the device when it sees fit. A power cut may
//! leave it as it was or tear it. Either way, what a sound sector says was durable before it was
//! written.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_io::{Disk, LogFile, replace_file};
use xxhash_rust::xxh3::xxh3_64;

use super::LogOptions;
use super::error::LogError;
use super::frame::{FramePlace, SECTOR_BYTES};

const MAGIC: &[u8; 8] = b"FBAYEND\x01";
/// Magic, table, segment, offset; and the checksum behind them.
const FIXED_BYTES: usize = 32;
const ENTRY_BYTES: usize = FIXED_BYTES + 8;

/// The file of the note.
#[derive(Debug)]
pub(super) struct DurableNote {
    path: PathBuf,
    table_id: u64,
    /// Open to be written over; absent when there is none.
    file: Option<Arc<dyn LogFile>>,
    /// What the first sector says, if a file with it was put in place by this process.
    settled: Option<FramePlace>,
    /// What the note says.
    noted: Option<FramePlace>,
    /// The segment for which a file was last to be put in place: a failure is not repeated for each
    /// sync.
    tried: u64,
}

/// Where the note of the log in `dir` is: beside it, so that it is there when all of that is gone.
pub(crate) fn note_path(dir: &Path) -> PathBuf {
    dir.with_extension("durable")
}

/// How far the log in `dir` is known to be durable; `None` when nothing says so.
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

    /// Notes that the log is durable up to `place`; durably so for the first place in a segment.
    /// After an error the note says what it said before, or this.
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

    /// Notes it durably. Without room for another file the one before stays in use.
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

    /// Makes durable what the note says.
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

/// The table's id and the place, when they are sound.
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
