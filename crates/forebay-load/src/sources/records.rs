//! Cuts text into records, where a CSV record, a JSON line or an element of a JSON array ends,
//! without decoding them.

use std::io::{self, Read};

use super::splitter::Splitter;

/// Bytes added to the buffer at once.
const READ_BYTES: usize = 1 << 18;
/// The longest record; a longer one is most likely an unclosed quote.
pub(super) const MAX_RECORD_BYTES: usize = 1 << 28;

/// Bytes that are shown of what stands behind an array.
const BEHIND_BYTES: usize = 160;

/// One record of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Record {
    pub start: usize,
    /// After the line end.
    pub end: usize,
    /// The 1-based line of the file on which it begins; of a JSON array's elements, their number.
    pub number: u64,
}

/// Records that follow one another.
#[derive(Debug, Default)]
pub(super) struct Chunk<'a> {
    pub bytes: &'a [u8],
    pub records: Vec<Record>,
    /// The last record ends, with the input, within quotes.
    pub unclosed: bool,
    /// The indexes, rising, of CSV records that cannot be taken apart without a loss.
    pub malformed: Vec<usize>,
}

/// Why no further record could be cut.
#[derive(Debug)]
pub(super) enum CutError {
    Io(io::Error),
    Long {
        number: u64,
    },
    /// Text stands behind the `]` of an array: so many bytes from where the reader began, and how
    /// it begins.
    Behind {
        at: u64,
        text: Vec<u8>,
    },
}

/// Cuts what a reader gives into chunks of records.
pub(super) struct Records<R> {
    reader: R,
    splitter: Splitter,
    buffer: Vec<u8>,
    /// Where the next record begins.
    start: usize,
    /// Up to where the splitter has seen.
    seen: usize,
    ended: bool,
    /// The line on which the next record begins, or the number of that element.
    number: u64,
    /// Bytes before the buffer's first.
    before: u64,
    /// Why nothing is cut any more, once the records before were given.
    failed: Option<CutError>,
}

impl<R: Read> Records<R> {
    /// `number` is the 1-based line of the file, or element of the array, at which the reader
    /// begins.
    pub fn new(reader: R, splitter: Splitter, number: u64) -> Records<R> {
        Records {
            reader,
            splitter,
            buffer: Vec::new(),
            start: 0,
            seen: 0,
            ended: false,
            number,
            before: 0,
            failed: None,
        }
    }

    /// Bytes of the records given so far, blank lines among them.
    pub fn position(&self) -> u64 {
        self.before + self.start as u64
    }

    /// The line on which the next record begins, or the number of that element.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Whether all of the input was given.
    pub fn at_end(&self) -> bool {
        self.ended && self.start == self.buffer.len()
    }

    /// Whether what has to be closed is closed at the end of the input.
    pub fn closed(&self) -> bool {
        self.splitter.closed()
    }

    /// Cuts by another rule. REQUIRES: no record was given yet.
    pub fn cut_by(&mut self, splitter: Splitter) {
        self.splitter = splitter;
    }

    /// The bytes that come next: at least `least`, fewer at the end.
    pub fn peek(&mut self, least: usize) -> io::Result<&[u8]> {
        while self.buffer.len() - self.start < least && !self.ended {
            self.fill()?;
        }
        Ok(&self.buffer[self.start..])
    }

    /// Passes over bytes that were peeked at.
    pub fn skip(&mut self, bytes: usize) {
        self.start = self.buffer.len().min(self.start + bytes);
        self.seen = self.start;
    }

    /// Leaves out a byte-order mark; REQUIRES: nothing was read yet.
    pub fn skip_mark(&mut self) -> io::Result<()> {
        if self.peek(3)?.starts_with(b"\xef\xbb\xbf") {
            self.skip(3);
        }
        Ok(())
    }

    /// The next records: at most `most`, fewer where about `bytes` bytes are reached; `None` at the
    /// end. Blank lines are left out.
    pub fn next(&mut self, most: usize, bytes: usize) -> Result<Option<Chunk<'_>>, CutError> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        self.buffer.drain(..self.start);
        self.before += self.start as u64;
        self.seen -= self.start;
        self.start = 0;
        let (mut records, mut malformed) = (Vec::new(), Vec::new());
        while records.len() < most && self.start < bytes {
            let is_behind = self.splitter.is_behind();
            let Some(end) = self.find_end()? else { break };
            if is_behind && let Err(error) = self.check_behind(end) {
                self.failed = Some(error);
                break;
            }
            let record = &mut self.buffer[self.start..end];
            let is_malformed = self.splitter.take_glued() || self.splitter.has_stray_return(record);
            let numbers = self.splitter.count(record);
            if !self.splitter.settle(record, self.number) {
                if is_malformed {
                    malformed.push(records.len());
                }
                records.push(Record {
                    start: self.start,
                    end,
                    number: self.number,
                });
            }
            self.start = end;
            self.number += numbers;
        }
        if let Some(error) = self.failed.take_if(|_| records.is_empty()) {
            return Err(error);
        }
        if records.is_empty() && self.start == 0 {
            return Ok(None);
        }
        let unclosed = self.ended && self.start == self.buffer.len() && self.splitter.open();
        Ok(Some(Chunk {
            bytes: &self.buffer[..self.start],
            records,
            unclosed,
            malformed,
        }))
    }

    /// Nothing but blanks may stand behind an array.
    fn check_behind(&self, end: usize) -> Result<(), CutError> {
        let text = self.buffer[self.start..end].trim_ascii_start();
        match text.len() {
            0 => Ok(()),
            length => Err(CutError::Behind {
                at: self.before + (end - length) as u64,
                text: text[..length.min(BEHIND_BYTES)].to_vec(),
            }),
        }
    }

    /// The end of the record at `start`, reading on as needed; `None` at the end of all.
    fn find_end(&mut self) -> Result<Option<usize>, CutError> {
        loop {
            if let Some(length) = self.splitter.end(&self.buffer[self.seen..]) {
                self.seen += length;
                return Ok(Some(self.seen));
            }
            self.seen = self.buffer.len();
            if self.ended {
                return Ok((self.start < self.seen).then_some(self.seen));
            }
            if self.seen - self.start > MAX_RECORD_BYTES {
                return Err(CutError::Long {
                    number: self.number,
                });
            }
            self.fill().map_err(CutError::Io)?;
        }
    }

    fn fill(&mut self) -> io::Result<()> {
        let old = self.buffer.len();
        self.buffer.resize(old + READ_BYTES, 0);
        let mut filled = old;
        while filled < self.buffer.len() {
            match self.reader.read(&mut self.buffer[filled..]) {
                Ok(0) => {
                    self.ended = true;
                    break;
                }
                Ok(length) => filled += length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.buffer.truncate(filled);
        Ok(())
    }
}
