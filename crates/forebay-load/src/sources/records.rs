//! Cuts text into records, where a CSV or JSON-lines record ends, without decoding them.

use std::io::{self, Read};

/// Bytes added to the buffer at once.
const READ_BYTES: usize = 1 << 18;
/// The longest record; a longer one is most likely an unclosed quote.
pub(super) const MAX_RECORD_BYTES: usize = 1 << 28;

/// Finds the ends of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Splitter {
    /// A record a line.
    Lines,
    /// A record a line, but for line ends within quotes.
    Csv {
        delimiter: u8,
        quote: u8,
        state: Quotes,
    },
}

/// Where in a CSV field the next byte is. A quote means something only at a field's start, as
/// in the decoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Quotes {
    Start,
    Plain,
    Quoted,
    /// After a quote within quotes: the end, or one half of a quote.
    Closing,
}

impl Splitter {
    pub fn csv(delimiter: u8, quote: u8) -> Splitter {
        Splitter::Csv {
            delimiter,
            quote,
            state: Quotes::Start,
        }
    }

    /// The number of bytes up to and with the line end that ends the record, or `None` when it is not among
    /// them (they are then remembered).
    pub fn end(&mut self, bytes: &[u8]) -> Option<usize> {
        match self {
            Splitter::Lines => bytes
                .iter()
                .position(|byte| *byte == b'\n')
                .map(|at| at + 1),
            Splitter::Csv {
                delimiter,
                quote,
                state,
            } => {
                for (at, byte) in bytes.iter().enumerate() {
                    *state = match (*state, *byte) {
                        (Quotes::Quoted, byte) if byte == *quote => Quotes::Closing,
                        (Quotes::Quoted, _) => Quotes::Quoted,
                        (_, b'\n') => {
                            *state = Quotes::Start;
                            return Some(at + 1);
                        }
                        (Quotes::Start | Quotes::Closing, byte) if byte == *quote => Quotes::Quoted,
                        (_, byte) if byte == *delimiter => Quotes::Start,
                        _ => Quotes::Plain,
                    };
                }
                None
            }
        }
    }

    /// Goes over bytes without looking for ends.
    pub fn skim(&mut self, mut bytes: &[u8]) {
        let Splitter::Csv {
            delimiter,
            quote,
            state,
        } = self
        else {
            return;
        };
        if *state != Quotes::Quoted && !bytes.contains(quote) {
            match bytes.last() {
                None => {}
                Some(last) if *last == b'\n' || *last == *delimiter => *state = Quotes::Start,
                Some(_) => *state = Quotes::Plain,
            }
            return;
        }
        while let Some(end) = self.end(bytes) {
            bytes = &bytes[end..];
        }
    }

    /// Whether the bytes so far end within quotes.
    fn open(&self) -> bool {
        matches!(
            self,
            Splitter::Csv {
                state: Quotes::Quoted,
                ..
            }
        )
    }

    /// Whether a record is a blank line, which both decoders leave out.
    fn blank(&self, record: &[u8]) -> bool {
        match self {
            Splitter::Lines => record.trim_ascii().is_empty(),
            Splitter::Csv { .. } => record.iter().all(|byte| matches!(byte, b'\r' | b'\n')),
        }
    }
}

/// One record of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Record {
    pub start: usize,
    /// After the line end.
    pub end: usize,
    /// The 1-based line of the file on which it begins.
    pub line: u64,
}

/// Records that follow one another.
#[derive(Debug, Default)]
pub(super) struct Chunk<'a> {
    pub bytes: &'a [u8],
    pub records: Vec<Record>,
    /// The last record ends, with the input, within quotes.
    pub unclosed: bool,
}

/// Why no further record could be cut.
#[derive(Debug)]
pub(super) enum CutError {
    Io(io::Error),
    Long { line: u64 },
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
    /// The line on which the next record begins.
    line: u64,
    /// Bytes before the buffer's first.
    before: u64,
}

impl<R: Read> Records<R> {
    /// `line` is the 1-based line of the file at which the reader begins.
    pub fn new(reader: R, splitter: Splitter, line: u64) -> Records<R> {
        Records {
            reader,
            splitter,
            buffer: Vec::new(),
            start: 0,
            seen: 0,
            ended: false,
            line,
            before: 0,
        }
    }

    /// Bytes of the records given so far, blank lines among them.
    pub fn position(&self) -> u64 {
        self.before + self.start as u64
    }

    /// The line on which the next record begins.
    pub fn line(&self) -> u64 {
        self.line
    }

    /// Leaves out a byte-order mark; REQUIRES: nothing was read yet.
    pub fn skip_mark(&mut self) -> io::Result<()> {
        while self.buffer.len() < 3 && !self.ended {
            self.fill()?;
        }
        if self.buffer.starts_with(b"\xef\xbb\xbf") {
            (self.start, self.seen) = (3, 3);
        }
        Ok(())
    }

    /// The next records: at most `most`, fewer where about `bytes` bytes are reached; `None` at the end. Blank
    /// lines are left out.
    pub fn next(&mut self, most: usize, bytes: usize) -> Result<Option<Chunk<'_>>, CutError> {
        self.buffer.drain(..self.start);
        self.before += self.start as u64;
        self.seen -= self.start;
        self.start = 0;
        let mut records = Vec::new();
        while records.len() < most && self.start < bytes {
            let Some(end) = self.find_end()? else { break };
            let record = &self.buffer[self.start..end];
            let lines = record.iter().filter(|byte| **byte == b'\n').count() as u64;
            if !self.splitter.blank(record) {
                records.push(Record {
                    start: self.start,
                    end,
                    line: self.line,
                });
            }
            self.start = end;
            self.line += lines;
        }
        if records.is_empty() && self.start == 0 {
            return Ok(None);
        }
        let unclosed = self.ended && self.start == self.buffer.len() && self.splitter.open();
        Ok(Some(Chunk {
            bytes: &self.buffer[..self.start],
            records,
            unclosed,
        }))
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
                return Err(CutError::Long { line: self.line });
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
