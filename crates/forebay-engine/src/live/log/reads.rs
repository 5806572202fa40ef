//! Reads single records of an open log.

use std::io;
use std::sync::Arc;

use super::error::LogError;
use super::frame::{FramePlace, Kind, segment_seed};
use super::note::note_path;
use super::segment::{SegmentFound, SegmentReader};
use super::{Log, LogShared, segment_path};

/// How many bytes are read at a time.
const WINDOW_BYTES: u64 = 64 << 10;
const UNSOUND: &str = "the record that was written here is no longer sound";

/// A reader of records. It keeps the last segment's file open for the next one.
#[derive(Debug)]
pub(crate) struct RecordReads<'a> {
    log: &'a LogShared,
    open: Option<(u64, SegmentReader)>,
}

impl Log {
    /// Returns a reader of the records that were written before this call.
    pub(crate) fn reads(&self) -> RecordReads<'_> {
        RecordReads {
            log: &self.shared,
            open: None,
        }
    }
}

impl RecordReads<'_> {
    /// Returns the payload of the record whose frame begins at `place`. It is an error of damage if
    /// no valid frame begins there.
    ///
    /// If the segment was removed meanwhile, the error is an I/O error.
    pub fn payload(&mut self, place: FramePlace) -> Result<&[u8], LogError> {
        let path = segment_path(&self.log.dir, place.segment);
        let options = &self.log.options;
        let failed = |action, source: io::Error| LogError::Io {
            table: options.table.clone(),
            action,
            path: path.clone(),
            source: Arc::new(source),
        };
        let reader = match self.open.take() {
            Some((segment, reader)) if segment == place.segment => reader,
            _ => {
                let file = self.log.disk.open(&path);
                let file = file.map_err(|error| failed("open", error))?;
                let seed = segment_seed(options.table_id, place.segment);
                SegmentReader::new(file, seed).with_window(WINDOW_BYTES)
            }
        };
        let (_, reader) = self.open.insert((place.segment, reader));
        let found = reader.frame(place.offset, u64::MAX);
        match found.map_err(|error| failed("read", error))? {
            SegmentFound::Frame(head, payload) if head.kind == Kind::Record => Ok(payload),
            _ => Err(damaged(self.log, place, UNSOUND.to_owned())),
        }
    }

    /// Returns the error that describes the damage of a record.
    pub fn damaged(&self, place: FramePlace, problem: String) -> LogError {
        damaged(self.log, place, problem)
    }
}

fn damaged(log: &LogShared, place: FramePlace, problem: String) -> LogError {
    LogError::Damaged {
        table: log.options.table.clone(),
        path: segment_path(&log.dir, place.segment),
        offset: place.offset,
        problem,
        note: note_path(&log.dir),
    }
}
