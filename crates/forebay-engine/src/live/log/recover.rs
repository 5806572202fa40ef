//! Recovers a log after its process ended for any reason.
//!
//! 1. The segments are linked: each names the one before it and how many bytes of that count. A
//!    segment that the newest one does not lead to was never written to after its creation failed.
//! 2. Their records are read in the order of writing, up to the first place where no valid frame
//!    begins.
//! 3. That place is either an interrupted write or damage. It is damage if a later mark says that
//!    it was durable. It is also damage if anything after it is valid and it does not look like a
//!    write that never reached the device. Then the log is refused and nothing is changed.
//! 4. The log may end at that place, or where its last file ends. If this is before the place up to
//!    which it is known to be durable (`note`), the log is refused as well.
//! 5. Otherwise the log is truncated there: the file to that length, later files removed.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_io::Disk;

use super::error::LogError;
use super::frame::{FramePlace, Kind, marked, next_start, segment_seed};
use super::header::{self, Header, LogKind, MAX_HEADER_BYTES};
use super::note::note_path;
use super::segment::{SegmentFound, SegmentReader};
use super::{LogOptions, segment_number, segment_path};

/// A function that takes a record: its segment's number and its bytes. The text of an error says
/// what is wrong with it.
pub type Replay<'a> = &'a mut dyn FnMut(u64, &[u8]) -> Result<(), String>;

/// Like [`Replay`], with the place where the record's frame begins.
pub(crate) type PlacedReplay<'a> = &'a mut dyn FnMut(FramePlace, &[u8]) -> Result<(), String>;

/// A log as it was found, and truncated if necessary.
#[derive(Debug, Default)]
pub(super) struct Recovered {
    /// The existing segments, with their bytes.
    pub segments: Vec<(u64, u64)>,
    /// The last of them that counts, and where it ends.
    pub last: Option<FramePlace>,
    /// The smallest number never used.
    pub next_segment: u64,
}

/// A file of the log.
#[derive(Debug)]
struct Segment {
    number: u64,
    path: PathBuf,
    reader: SegmentReader,
    /// `None` when it is damaged.
    header: Option<Header>,
}

pub(super) struct Recovery<'a> {
    pub disk: &'a dyn Disk,
    pub dir: &'a Path,
    pub options: &'a LogOptions,
    pub kind: LogKind,
    /// The position up to which the log is known to be durable.
    pub durable: Option<FramePlace>,
}

impl Recovered {
    /// Checks that the log continues after its existing segments, whatever the files were.
    fn check(&self) {
        debug_assert!(
            self.segments.is_sorted_by(|(one, _), (next, _)| one < next),
            "found segments do not rise: {:?}",
            self.segments
        );
        let numbers = || self.segments.iter().map(|(number, _)| *number);
        debug_assert!(
            numbers().all(|number| number < self.next_segment),
            "the next segment is {}, and {:?} are there",
            self.next_segment,
            self.segments
        );
        debug_assert!(
            (self.last).is_none_or(|last| numbers().any(|number| number == last.segment)),
            "the log ends at {:?}, and its segments are {:?}",
            self.last,
            self.segments
        );
    }
}

impl Recovery<'_> {
    pub fn run(&self, from_segment: u64, replay: PlacedReplay<'_>) -> Result<Recovered, LogError> {
        let numbers = self.numbers(from_segment)?;
        let greatest = numbers.last().copied().unwrap_or(0);
        let mut segments = self.linked(&numbers, from_segment)?;
        let bytes = |number: u64| {
            let linked = segments.iter().find(|segment| segment.number == number);
            linked.map_or(0, |segment| segment.reader.len_bytes())
        };
        let mut recovered = Recovered {
            segments: numbers.iter().map(|n| (*n, bytes(*n))).collect(),
            last: None,
            next_segment: (greatest + 1).max(from_segment),
        };
        if let Some((at, offset)) = self.replay_all(&mut segments, replay)? {
            self.judge(&mut segments, at, offset)?;
            recovered.last = match offset {
                0 => segments[..at].last().map(Segment::end),
                _ => Some(FramePlace {
                    segment: segments[at].number,
                    offset,
                }),
            };
            self.check_reaches(recovered.last, from_segment)?;
            let gone = self.cut(&mut segments, at, offset)?;
            recovered
                .segments
                .retain(|(number, _)| !gone.contains(number));
        } else {
            recovered.last = segments.last().map(Segment::end);
            self.check_reaches(recovered.last, from_segment)?;
        }
        recovered.check();
        Ok(recovered)
    }

    /// Refuses a log that ends before the position up to which its needed segments are known to be
    /// durable.
    fn check_reaches(&self, end: Option<FramePlace>, from_segment: u64) -> Result<(), LogError> {
        let counts = |durable: &FramePlace| durable.segment >= from_segment;
        let Some(durable) = self.durable.filter(counts).filter(|_| end < self.durable) else {
            return Ok(());
        };
        let path = segment_path(self.dir, durable.segment);
        let found = match end {
            Some(end) if end.segment == durable.segment => {
                format!(
                    "{} is sound up to offset {} only",
                    path.display(),
                    end.offset
                )
            }
            _ => format!("{} is missing or empty", path.display()),
        };
        Err(LogError::Lost {
            table: self.options.table.clone(),
            path,
            offset: durable.offset,
            note: note_path(self.dir),
            found,
        })
    }

    /// Returns the numbers of the segments that count, rising. Older ones, which a flush left, are
    /// removed.
    fn numbers(&self, from_segment: u64) -> Result<Vec<u64>, LogError> {
        let names = match self.disk.list(self.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let made = self.disk.create_dir_all(self.dir);
                made.map_err(|error| self.failed("create", self.dir, error))?;
                let parent = self.dir.parent().unwrap_or(Path::new("."));
                let synced = self.disk.sync_dir(parent);
                synced.map_err(|error| self.failed("sync", parent, error))?;
                return Ok(Vec::new());
            }
            names => names.map_err(|error| self.failed("list", self.dir, error))?,
        };
        let numbers = names.iter().filter_map(|name| segment_number(name));
        let (mut numbers, old): (Vec<u64>, Vec<u64>) =
            numbers.partition(|number| *number >= from_segment);
        for number in old {
            self.remove(number)?;
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Returns the segments that lead to the newest one, oldest first.
    fn linked(&self, numbers: &[u64], from_segment: u64) -> Result<Vec<Segment>, LogError> {
        let mut linked: Vec<Segment> = Vec::new();
        let mut wanted = None;
        for &number in numbers.iter().rev() {
            match wanted {
                Some(wanted) if number > wanted => continue,
                Some(wanted) if number < wanted => break,
                _ => {}
            }
            let segment = self.open(number)?;
            // After a segment with a damaged header, the next older file.
            wanted = segment.header.map(|header| header.previous);
            linked.push(segment);
        }
        if let (Some(wanted), Some(oldest)) = (wanted, linked.last())
            && wanted >= from_segment
        {
            return Err(LogError::Missing {
                table: self.options.table.clone(),
                missing: segment_path(self.dir, wanted),
                next: oldest.path.clone(),
                note: note_path(self.dir),
            });
        }
        linked.reverse();
        Ok(linked)
    }

    fn open(&self, number: u64) -> Result<Segment, LogError> {
        let path = segment_path(self.dir, number);
        let file = self.disk.open(&path);
        let file = file.map_err(|error| self.failed("open", &path, error))?;
        let seed = segment_seed(self.options.table_id, number);
        let mut reader = SegmentReader::new(file, seed);
        let begin = reader.bytes(0, MAX_HEADER_BYTES as u64);
        let begin = begin.map_err(|error| self.failed("read", &path, error))?;
        let (table, id) = (&self.options.table, self.options.table_id);
        let header = header::decode(begin, table, id, self.kind, number, &path)?;
        Ok(Segment {
            number,
            path,
            reader,
            header,
        })
    }

    /// Replays all records up to the end, or up to the first place where no valid frame begins.
    /// Returns that place as the segment's index and the offset.
    fn replay_all(
        &self,
        segments: &mut [Segment],
        replay: PlacedReplay<'_>,
    ) -> Result<Option<(usize, u64)>, LogError> {
        let ends: Vec<Option<u64>> = segments
            .iter()
            .skip(1)
            .map(|next| next.header.map(|header| header.previous_end))
            .chain([None])
            .collect();
        for (at, (segment, end)) in segments.iter_mut().zip(ends).enumerate() {
            let end = end.unwrap_or(segment.reader.len_bytes());
            if let Some(offset) = self.replay_one(segment, end, replay)? {
                return Ok(Some((at, offset)));
            }
        }
        Ok(None)
    }

    fn replay_one(
        &self,
        segment: &mut Segment,
        end: u64,
        replay: PlacedReplay<'_>,
    ) -> Result<Option<u64>, LogError> {
        let Some(header) = segment.header else {
            return Ok(Some(0));
        };
        let mut offset = header.header_bytes;
        while offset < end {
            let start = next_start(offset);
            let found = segment.reader.frame(start, end);
            match found.map_err(|error| self.failed("read", &segment.path, error))? {
                SegmentFound::Frame(head, body) => {
                    if head.kind == Kind::Record {
                        let place = FramePlace {
                            segment: segment.number,
                            offset: start,
                        };
                        let replayed = replay(place, body);
                        replayed.map_err(|problem| self.damaged(&segment.path, start, problem))?;
                    }
                    offset = head.end(start);
                }
                SegmentFound::BadBody(_) | SegmentFound::BadHead => return Ok(Some(offset)),
            }
        }
        Ok(None)
    }

    /// Returns whether `offset` of the segment at `at` may be an interrupted write. Otherwise
    /// returns the error that describes the damage.
    fn judge(&self, segments: &mut [Segment], at: usize, offset: u64) -> Result<(), LogError> {
        let place = FramePlace {
            segment: segments[at].number,
            offset,
        };
        let unwritten = self.looks_unwritten(&mut segments[at], offset);
        let unwritten =
            unwritten.map_err(|error| self.failed("read", &segments[at].path, error))?;
        let mut sound: Option<String> = None;
        for segment in &mut segments[at..] {
            let mut next = match segment.number == place.segment {
                true => offset + 1,
                false => 0,
            };
            if segment.header.is_some() && segment.number != place.segment {
                sound.get_or_insert_with(|| format!("{} goes on", segment.path.display()));
            }
            loop {
                let path = &segment.path;
                let found = segment.reader.find_frame(next);
                let Some((start, head)) = found.map_err(|e| self.failed("read", path, e))? else {
                    break;
                };
                next = head.end(start);
                sound.get_or_insert_with(|| {
                    format!("{} at offset {start} is sound", path.display())
                });
                let durable = segment.reader.mark_at(start);
                let durable = durable.map_err(|error| self.failed("read", path, error))?;
                if durable.is_some_and(|durable| durable > place) {
                    let problem = format!(
                        "this was durable, as {} says at offset {start}, and is no longer what was written",
                        path.display()
                    );
                    return Err(self.damaged(&segments[at].path, offset, problem));
                }
            }
        }
        match sound {
            Some(sound) if !unwritten => {
                let problem = format!(
                    "its checksum does not match, though {sound}: an interrupted write does not \
                     leave that"
                );
                Err(self.damaged(&segments[at].path, offset, problem))
            }
            _ => Ok(()),
        }
    }

    fn looks_unwritten(&self, segment: &mut Segment, offset: u64) -> io::Result<bool> {
        let header_bytes = header::header_bytes(&self.options.table) as u64;
        let limit = segment.reader.len_bytes();
        if offset == 0 && limit < header_bytes {
            return Ok(true);
        }
        segment.reader.looks_unwritten(next_start(offset), limit)
    }

    /// Removes everything from `offset` of the segment at `at` on, and returns the numbers of the
    /// removed files. If this is not durable, the next opening does it again.
    fn cut(&self, segments: &mut [Segment], at: usize, offset: u64) -> Result<Vec<u64>, LogError> {
        let reserved = segments[at].reader.is_zeros_from(offset);
        let reserved = reserved.map_err(|error| self.failed("read", &segments[at].path, error))?;
        let cut = &segments[at];
        let bytes = cut.reader.len_bytes().saturating_sub(offset);
        let path = &cut.path;
        let table = &self.options.table;
        // Zeros at the end are reserved space, as a killed process leaves it.
        if !reserved || segments.len() > at + 1 {
            tracing::warn!(%table, file = %path.display(), offset, bytes, files = segments.len() - at,
                "the log ends in an interrupted write; it continues from there");
        }
        let gone = if offset == 0 { at } else { at + 1 };
        let gone: Vec<u64> = segments[gone..].iter().map(|gone| gone.number).collect();
        // Newest first: the older one alone is a log as well.
        for &number in gone.iter().rev() {
            self.remove(number)?;
        }
        if offset > 0 {
            let file = self.disk.open_log(path);
            let cut = file.and_then(|file| file.set_len(offset));
            cut.map_err(|error| self.failed("cut", path, error))?;
        }
        Ok(gone)
    }

    fn remove(&self, number: u64) -> Result<(), LogError> {
        let path = segment_path(self.dir, number);
        let removed = self.disk.remove(&path);
        removed.map_err(|error| self.failed("remove", &path, error))
    }

    fn failed(&self, action: &'static str, path: &Path, source: io::Error) -> LogError {
        LogError::Io {
            table: self.options.table.clone(),
            action,
            path: path.to_path_buf(),
            source: Arc::new(source),
        }
    }

    fn damaged(&self, path: &Path, offset: u64, problem: String) -> LogError {
        LogError::Damaged {
            table: self.options.table.clone(),
            path: path.to_path_buf(),
            offset,
            problem,
            note: note_path(self.dir),
        }
    }
}

impl Segment {
    fn end(&self) -> FramePlace {
        FramePlace {
            segment: self.number,
            offset: self.reader.len_bytes(),
        }
    }
}

impl SegmentReader {
    /// Returns the place in the valid mark at `offset`; `None` for a record.
    fn mark_at(&mut self, offset: u64) -> io::Result<Option<FramePlace>> {
        match self.frame(offset, u64::MAX)? {
            SegmentFound::Frame(head, body) if head.kind == Kind::Mark => Ok(marked(body)),
            _ => Ok(None),
        }
    }
}
