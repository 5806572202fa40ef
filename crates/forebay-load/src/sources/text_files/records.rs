//! Splits text into records without decoding them.
//!
//! A record is a CSV record, a JSON line or an element of a JSON array.

use std::io::{self, Read};

use super::splitter::Splitter;

/// The bytes added to the buffer at once.
const READ_BYTES: usize = 1 << 18;
/// The most bytes of a record; a longer one is most likely an unclosed quote.
pub(in crate::sources) const MAX_RECORD_BYTES: usize = 1 << 28;

/// The bytes shown of text after an array.
const BEHIND_BYTES: usize = 160;

/// The position of one record in a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sources) struct Record {
    pub start: usize,
    /// The position after the line end.
    pub end: usize,
    /// The 1-based line of the file on which it begins; for a JSON array's elements, their number.
    pub number: u64,
}

/// Records that follow one another.
#[derive(Debug, Default)]
pub(in crate::sources) struct Chunk<'a> {
    pub bytes: &'a [u8],
    pub records: Vec<Record>,
    /// Whether the last record ends, with the input, within quotes.
    pub unclosed: bool,
    /// The indexes, ascending, of CSV records that cannot be split without a loss.
    pub malformed: Vec<usize>,
}

/// The reason why no further record could be found.
#[derive(Debug)]
pub(in crate::sources) enum CutError {
    Io(io::Error),
    Long {
        number: u64,
    },
    /// There is text after the `]` of an array: its offset from the reader's start, and its
    /// beginning.
    Behind {
        at: u64,
        text: Vec<u8>,
    },
}

/// A splitter of a reader's content into chunks of records.
pub(in crate::sources) struct Records<R> {
    reader: R,
    splitter: Splitter,
    buffer: Vec<u8>,
    /// The start of the next record.
    start: usize,
    /// The end of the bytes that the splitter has seen.
    seen: usize,
    ended: bool,
    /// The line on which the next record begins, or the number of that element.
    number: u64,
    /// The number of bytes before the buffer's first.
    before: u64,
    /// The error that ends the splitting, after the records before it are returned.
    failed: Option<CutError>,
}

impl<R: Read> Records<R> {
    /// Creates a splitter. `number` is the 1-based line of the file, or element of the array, at
    /// which the reader begins.
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

    /// Returns the bytes of the records returned so far, including blank lines.
    pub fn position(&self) -> u64 {
        self.before + self.start as u64
    }

    /// Returns the line on which the next record begins, or the number of that element.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns whether all of the input was returned.
    pub fn at_end(&self) -> bool {
        self.ended && self.start == self.buffer.len()
    }

    /// Returns whether quotes or brackets are closed at the end of the input.
    pub fn closed(&self) -> bool {
        self.splitter.closed()
    }

    /// Changes the splitting rule. REQUIRES: no record was given yet.
    pub fn cut_by(&mut self, splitter: Splitter) {
        self.splitter = splitter;
    }

    /// Returns the next bytes: at least `least`, fewer at the end.
    pub fn peek(&mut self, least: usize) -> io::Result<&[u8]> {
        while self.buffer.len() - self.start < least && !self.ended {
            self.fill()?;
        }
        Ok(&self.buffer[self.start..])
    }

    /// Skips bytes that were peeked at.
    pub fn skip(&mut self, bytes: usize) {
        self.start = self.buffer.len().min(self.start + bytes);
        self.seen = self.start;
    }

    /// Skips a byte-order mark; REQUIRES: nothing was read yet.
    pub fn skip_mark(&mut self) -> io::Result<()> {
        if self.peek(3)?.starts_with(b"\xef\xbb\xbf") {
            self.skip(3);
        }
        Ok(())
    }

    /// Returns the next records: at most `most`, fewer if they reach about `bytes` bytes; `None` at
    /// the end. Blank lines are skipped.
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

    /// Checks that only blanks follow an array.
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

    /// Returns the end of the record at `start`, reading on as needed; `None` at the end of the
    /// input.
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
