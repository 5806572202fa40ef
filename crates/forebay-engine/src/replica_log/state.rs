//! The file beside a log of replicas that says how the log was last used: `log.state`.
//!
//! It records the machine's boot on which the log was last written to, whether its writer stopped
//! cleanly, and the first segment that counts. It has two sectors, each with a state and a number
//! that rises. They are written in turn, in place, and synced. So an interrupted write leaves the
//! previous state, and only the first write needs space.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_io::{Disk, LogFile, replace_file};
use xxhash_rust::xxh3::xxh3_64;

const MAGIC: &[u8; 8] = b"FBAYREP\x01";
const SECTOR_BYTES: usize = 512;
const FIXED_BYTES: usize = 56;
const ENTRY_BYTES: usize = FIXED_BYTES + 8;

/// The content of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LogState {
    /// The machine's boot on which the log was last written to.
    pub boot_id: u128,
    /// Segments before this one do not count.
    pub first_segment: u64,
    /// All that was written is durable, and nothing was written since.
    pub stopped_clean: bool,
}

/// The result of reading the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FoundState {
    Absent,
    Sound { state: LogState, number: u64 },
    Damaged,
    OfOtherTable,
}

/// The file, to be overwritten.
#[derive(Debug)]
pub(super) struct StateFile {
    path: PathBuf,
    table_id: u64,
    /// Open after the first write, until one fails.
    file: Option<Arc<dyn LogFile>>,
    /// How often it was written in all.
    number: u64,
    /// Its content, as far as this process knows.
    pub state: LogState,
}

/// Returns the path of the state of the log in `dir`: beside it.
pub(super) fn state_path(dir: &Path) -> PathBuf {
    dir.with_extension("state")
}

/// Reads the file in `path`. A sector that is not valid may be an interrupted write: then it is
/// unknown whether the log was stopped cleanly.
pub(super) fn read_state(disk: &dyn Disk, path: &Path, table_id: u64) -> io::Result<FoundState> {
    let bytes = match disk.read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(FoundState::Absent),
        read => read?,
    };
    let sectors = [0, SECTOR_BYTES].map(|at| bytes.get(at..at + SECTOR_BYTES));
    let newest = (sectors.iter().flatten())
        .filter_map(|sector| decode(sector))
        .max_by_key(|(_, number, _)| *number);
    let Some((found, number, mut state)) = newest else {
        return Ok(FoundState::Damaged);
    };
    if found != table_id {
        return Ok(FoundState::OfOtherTable);
    }
    let is_whole = |sector: &Option<&[u8]>| {
        sector.is_some_and(|bytes| decode(bytes).is_some() || bytes.iter().all(|byte| *byte == 0))
    };
    state.stopped_clean &= sectors.iter().all(is_whole);
    Ok(FoundState::Sound { state, number })
}

impl StateFile {
    /// Returns a file that has `state` in its write of that number, or is to be created.
    pub fn new(path: PathBuf, table_id: u64, state: LogState, number: u64) -> Self {
        Self {
            path,
            table_id,
            file: None,
            number,
            state,
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether there is a file.
    pub fn is_written(&self) -> bool {
        self.number > 0
    }

    /// Writes `state` durably. After an error the file has it, or its previous content.
    pub fn write(&mut self, disk: &dyn Disk, state: LogState) -> io::Result<()> {
        debug_assert!(
            self.state.first_segment <= state.first_segment,
            "segments from {} on count, and would from {} on",
            self.state.first_segment,
            state.first_segment
        );
        debug_assert!(
            !state.stopped_clean || self.is_written(),
            "a log that was never written to was stopped"
        );
        let number = self.number + 1;
        let at = (number % 2) as usize * SECTOR_BYTES;
        let entry = encode(self.table_id, number, state);
        match self.opened(disk)? {
            Some(file) => {
                file.write_all_at(&entry, at as u64)?;
                file.sync()?;
                self.file = Some(file);
            }
            None => {
                let mut bytes = vec![0; 2 * SECTOR_BYTES];
                bytes[at..at + entry.len()].copy_from_slice(&entry);
                replace_file(disk, &self.path, &bytes)?;
            }
        }
        (self.number, self.state) = (number, state);
        Ok(())
    }

    /// Opens the file, if there is one. It is closed if the write fails: after a failed sync it
    /// must be opened again.
    fn opened(&mut self, disk: &dyn Disk) -> io::Result<Option<Arc<dyn LogFile>>> {
        if let Some(file) = self.file.take() {
            return Ok(Some(file));
        }
        match self.number {
            0 => Ok(None),
            _ => disk.open_log(&self.path).map(Some),
        }
    }
}

fn encode(table_id: u64, number: u64, state: LogState) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(ENTRY_BYTES);
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&table_id.to_le_bytes());
    bytes.extend_from_slice(&number.to_le_bytes());
    bytes.extend_from_slice(&state.boot_id.to_le_bytes());
    bytes.extend_from_slice(&state.first_segment.to_le_bytes());
    bytes.extend_from_slice(&u64::from(state.stopped_clean).to_le_bytes());
    let sum = xxh3_64(&bytes);
    bytes.extend_from_slice(&sum.to_le_bytes());
    bytes
}

/// Decodes the table's id, the number of the write and the state, if they are valid.
fn decode(bytes: &[u8]) -> Option<(u64, u64, LogState)> {
    let number = |at: usize| -> Option<u64> {
        Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
    };
    let body = bytes.get(..FIXED_BYTES)?;
    if !body.starts_with(MAGIC) || number(FIXED_BYTES)? != xxh3_64(body) {
        return None;
    }
    let state = LogState {
        boot_id: u128::from_le_bytes(bytes.get(24..40)?.try_into().ok()?),
        first_segment: number(40)?,
        stopped_clean: number(48)? == 1,
    };
    Some((number(8)?, number(16)?, state))
}
