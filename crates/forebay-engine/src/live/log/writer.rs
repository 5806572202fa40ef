//! The writer, which appends records at the end of the log.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_io::{LogFile, may_pass};

use super::error::LogError;
use super::frame::{self, FramePlace, MAX_RECORD_BYTES, segment_seed};
use super::recover::Recovered;
use super::{LogShared, Lsn, header, segment_path};

/// A buffer that is longer after a write is freed.
const KEPT_BUFFER_BYTES: usize = 1 << 20;

#[derive(Debug)]
pub(super) struct Writer {
    table_id: u64,
    /// The current segment; its first record creates it.
    current: Option<Current>,
    /// The end of the last record before it, in an older segment.
    before: Option<FramePlace>,
    /// The number of the next segment.
    next_segment: u64,
    /// Bytes of all records and marks written since the log was opened.
    written: u64,
    /// Files that were written and not synced, oldest first, without the current one.
    unsynced: Vec<OpenSegment>,
    /// Whether the directory has changed since it was synced.
    new_names: bool,
    /// The position up to which the log is durable, if no frame says so yet.
    mark: Option<FramePlace>,
    /// The existing segments, rising, with their bytes; without the current one.
    older: Vec<(u64, u64)>,
    closed: Option<LogError>,
    buffer: Vec<u8>,
}

#[derive(Debug)]
struct Current {
    open: OpenSegment,
    seed: u64,
    header_end: u64,
    end: u64,
}

/// A segment's file, open for writing.
#[derive(Debug, Clone)]
pub(super) struct OpenSegment {
    pub number: u64,
    pub path: PathBuf,
    pub file: Arc<dyn LogFile>,
}

/// The work of one sync.
#[derive(Debug)]
pub(super) struct SyncWork {
    pub files: Vec<OpenSegment>,
    pub new_names: bool,
    /// The position that is durable afterwards.
    pub written: u64,
    pub place: Option<FramePlace>,
}

impl Writer {
    pub fn new(recovered: Recovered, table_id: u64) -> Self {
        Self {
            table_id,
            current: None,
            before: recovered.last,
            next_segment: recovered.next_segment,
            written: 0,
            unsynced: Vec::new(),
            new_names: false,
            mark: None,
            older: recovered.segments,
            closed: None,
            buffer: Vec::new(),
        }
    }

    /// Writes a record. Also returns where its frame begins.
    pub fn append(
        &mut self,
        log: &LogShared,
        payload: &[u8],
    ) -> Result<(Lsn, FramePlace), LogError> {
        if let Some(closed) = &self.closed {
            return Err(closed.clone());
        }
        if payload.is_empty() || payload.len() > MAX_RECORD_BYTES {
            return Err(LogError::RecordBytes {
                table: log.options.table.clone(),
                bytes: payload.len(),
                greatest: MAX_RECORD_BYTES,
            });
        }
        let mut current = match self.current.take() {
            Some(current) => current,
            None => self.begin_segment(log)?,
        };
        self.buffer.clear();
        if let Some(mark) = self.mark {
            frame::push_mark(&mut self.buffer, current.end, current.seed, mark);
        }
        let place = FramePlace {
            segment: current.open.number,
            offset: frame::push_record(&mut self.buffer, current.end, current.seed, payload),
        };
        let outcome = current.open.file.write_all_at(&self.buffer, current.end);
        if outcome.is_ok() {
            self.mark = None;
            current.end += self.buffer.len() as u64;
            self.written += self.buffer.len() as u64;
        }
        if self.buffer.capacity() > KEPT_BUFFER_BYTES {
            self.buffer = Vec::new();
        }
        match outcome {
            Ok(()) => {
                debug_assert_eq!(
                    place.offset + (frame::HEAD_BYTES + payload.len()) as u64,
                    current.end,
                    "segment {} does not end with the record at {}",
                    place.segment,
                    place.offset
                );
                self.current = Some(current);
                self.check();
                Ok((Lsn(self.written), place))
            }
            Err(error) => {
                let path = current.open.path.clone();
                self.give_up(log, current);
                Err(self.refuse(log, "write to", &path, error))
            }
        }
    }

    /// Checks that the end of the log is after all its segments.
    #[inline]
    fn check(&self) {
        let newest = self
            .current
            .as_ref()
            .map_or(0, |current| current.open.number);
        debug_assert!(
            newest < self.next_segment,
            "segment {newest} is written, and the next one is {}",
            self.next_segment
        );
        debug_assert!(
            (self.current.as_ref()).is_none_or(|current| current.end > current.header_end),
            "segment {newest} is kept open without a record"
        );
        let limit = self.current.as_ref().map_or(self.next_segment, |_| newest);
        debug_assert!(
            self.older.last().is_none_or(|(number, _)| *number < limit),
            "of the ended segments {:?} one is not before {limit}",
            self.older
        );
        debug_assert!(
            self.unsynced.last().is_none_or(|open| open.number < limit),
            "unsynced segment {:?} is not before {limit}",
            self.unsynced.last()
        );
        debug_assert!(
            self.before.is_none_or(|before| before.segment < limit),
            "segment {limit} continues from {:?}, which is not before it",
            self.before
        );
    }

    /// Checks like [`Writer::check`], and the order of the ended segments.
    fn check_ended(&self) {
        debug_assert!(
            self.older.is_sorted_by(|(one, _), (next, _)| one < next),
            "ended segments do not rise: {:?}",
            self.older
        );
        debug_assert!(
            (self.unsynced).is_sorted_by(|one, next| one.number < next.number),
            "unsynced segments do not rise: {:?}",
            self.unsynced
        );
        self.check();
    }

    /// Ends a segment that could not take a record.
    fn give_up(&mut self, log: &LogShared, current: Current) {
        if current.end == current.header_end {
            return self.abandon(log, current.open.number, &current.open.path);
        }
        // If this fails, the segment ends where the next one's header says.
        let _ = current.open.file.set_len(current.end);
        self.current = Some(current);
        self.end_segment();
    }

    /// Creates the file of the next segment and its header.
    fn begin_segment(&mut self, log: &LogShared) -> Result<Current, LogError> {
        let number = self.next_segment;
        let path = segment_path(&log.dir, number);
        let before = self
            .before
            .map_or((0, 0), |place| (place.segment, place.offset));
        let header = header::encode(&log.options.table, self.table_id, log.kind, number, before);
        let created = log.disk.create_log(&path);
        let file = created.map_err(|error| self.refuse(log, "create", &path, error))?;
        self.new_names = true;
        if let Err(error) = file.write_all_at(&header, 0) {
            self.abandon(log, number, &path);
            return Err(self.refuse(log, "write to", &path, error));
        }
        self.next_segment = number + 1;
        let end = header.len() as u64;
        Ok(Current {
            open: OpenSegment { number, path, file },
            seed: segment_seed(self.table_id, number),
            header_end: end,
            end,
        })
    }

    /// Removes the file of a segment without records, so that the next one takes its number.
    fn abandon(&mut self, log: &LogShared, number: u64, path: &Path) {
        match log.disk.remove(path) {
            Ok(()) => self.next_segment = number,
            // If the file stays, no segment continues from it.
            Err(_) => {
                self.next_segment = number + 1;
                self.older.push((number, 0));
            }
        }
    }

    /// See [`super::Log::roll`].
    pub fn end_segment(&mut self) -> u64 {
        if let Some(current) = self.current.take() {
            let number = current.open.number;
            self.before = Some(FramePlace {
                segment: number,
                offset: current.end,
            });
            self.older.push((number, current.end));
            self.unsynced.push(current.open);
        }
        self.check_ended();
        self.next_segment
    }

    /// See [`super::Log::roll_at`].
    pub fn end_segment_at(&mut self, bytes: u64) {
        if self
            .current
            .as_ref()
            .is_some_and(|current| current.end >= bytes)
        {
            self.end_segment();
        }
    }

    /// Handles a failed write: only a lack of room, or of open files, may pass.
    fn refuse(
        &mut self,
        log: &LogShared,
        action: &'static str,
        path: &Path,
        error: io::Error,
    ) -> LogError {
        let (table, path) = (log.options.table.clone(), path.to_path_buf());
        let passes = may_pass(&error);
        let source = Arc::new(error);
        if passes {
            return LogError::Full {
                table,
                action,
                path,
                source,
            };
        }
        let error = LogError::Closed {
            table,
            action,
            path,
            source,
        };
        self.close(&error);
        error
    }

    pub fn close(&mut self, error: &LogError) {
        self.closed.get_or_insert_with(|| error.clone());
    }

    pub fn closed(&self) -> Option<&LogError> {
        self.closed.as_ref()
    }

    /// Returns the files that must be synced so that everything written so far is durable.
    pub fn take_sync_work(&mut self) -> SyncWork {
        let mut files = std::mem::take(&mut self.unsynced);
        files.extend(self.current.as_ref().map(|current| current.open.clone()));
        let current = self.current.as_ref().map(|current| FramePlace {
            segment: current.open.number,
            offset: current.end,
        });
        SyncWork {
            files,
            new_names: std::mem::take(&mut self.new_names),
            written: self.written,
            place: current.or(self.before),
        }
    }

    /// Records the position up to which the log is durable.
    pub fn synced(&mut self, place: Option<FramePlace>) {
        debug_assert!(
            self.mark <= place,
            "the log is durable up to {place:?}, and was up to {:?}",
            self.mark
        );
        self.mark = place;
    }

    /// Takes the segments before `segment` out of the list. The current one is never among them.
    pub fn forget_before(&mut self, segment: u64) -> Vec<(u64, u64)> {
        debug_assert!(
            segment <= (self.current.as_ref()).map_or(self.next_segment, |at| at.open.number),
            "segments before {segment} are forgotten, and {:?} is written",
            self.current
        );
        let (gone, kept) = std::mem::take(&mut self.older)
            .into_iter()
            .partition(|(number, _)| *number < segment);
        self.older = kept;
        self.unsynced.retain(|open| open.number >= segment);
        self.check_ended();
        gone
    }

    /// Closes the files. Nothing is written any more.
    pub fn close_files(&mut self) {
        self.end_segment();
        self.unsynced.clear();
    }

    /// Puts back segments that could not be removed.
    pub fn remember(&mut self, segments: &[(u64, u64)]) {
        self.older.splice(0..0, segments.iter().copied());
        self.check_ended();
    }

    /// Returns whether the records of a segment are still needed.
    pub fn counts(&self, segment: u64) -> bool {
        let current = self.current.as_ref().map(|current| current.open.number);
        let mut older = self.older.iter().map(|(number, _)| *number);
        current == Some(segment) || older.any(|number| number == segment)
    }

    /// Returns the segments that are not written any more, rising, with their bytes.
    pub fn ended(&self) -> &[(u64, u64)] {
        &self.older
    }

    pub fn size_bytes(&self) -> u64 {
        let older: u64 = self.older.iter().map(|(_, bytes)| bytes).sum();
        older + self.current.as_ref().map_or(0, |current| current.end)
    }

    /// Returns the existing segments, and where the last record ends, before any is written.
    pub fn recovered(&self) -> (Vec<u64>, Option<FramePlace>) {
        let numbers = self.older.iter().map(|(number, _)| *number);
        (numbers.collect(), self.before)
    }
}

#[cfg(test)]
impl Writer {
    pub fn current_end(&self) -> u64 {
        self.current.as_ref().map_or(0, |current| current.end)
    }

    pub fn segment_of_next(&self) -> u64 {
        let current = self.current.as_ref().map(|current| current.open.number);
        current.unwrap_or(self.next_segment)
    }
}
