//! Reads the messages of Arrow files and streams, and checks every length in them before decoding.
//!
//! The library reserves memory by these lengths, and aborts the process if there is not enough.

use std::io::{Read, Seek, SeekFrom};

use arrow_buffer::{Buffer, MutableBuffer};
use arrow_ipc::convert::try_fb_to_schema;
use arrow_ipc::{Block, CompressionType, MetadataVersion, root_as_footer, root_as_message};
use arrow_schema::Schema;

use crate::sources::blob::{Blob, BlobReader};
use crate::sources::wide_integers;

/// The bytes at the beginning of a message, except those of old writers.
const MARK: [u8; 4] = [0xff; 4];
/// The bytes after a file's footer: its length, and `ARROW1`.
const TAIL_BYTES: u64 = 10;
/// The most bytes that one byte can expand to: a block of LZ4 repeats 255 bytes by one, one of zstd
/// makes 128 KiB of four.
const LZ4_RATIO: u64 = 255;
const ZSTD_RATIO: u64 = 32 << 10;
/// A buffer of at most this many bytes always fits in memory.
const SMALL_BYTES: u64 = 64 << 20;

/// The locations of the parts of a file.
#[derive(Debug)]
pub struct Footer {
    pub dictionaries: Vec<Block>,
    pub batches: Vec<Block>,
}

impl Footer {
    pub fn read(blob: &Blob) -> Result<(Footer, Schema, MetadataVersion), String> {
        let read = |range| blob.read(range).map_err(|error| error.to_string());
        let end = blob.size_bytes.checked_sub(TAIL_BYTES);
        let end = end.ok_or("the file is too short to have one")?;
        let tail = read(end..blob.size_bytes)?;
        let length = match &tail[..] {
            [a, b, c, d, mark @ ..] if mark == b"ARROW1" => i32::from_le_bytes([*a, *b, *c, *d]),
            _ => return Err("the file does not end with the mark ARROW1".to_owned()),
        };
        let start = u64::try_from(length).ok().and_then(|l| end.checked_sub(l));
        let start = start.ok_or_else(|| beyond("its length", i64::from(length), end))?;
        let bytes = read(start..end)?;
        let footer = root_as_footer(&bytes).map_err(|error| error.to_string())?;
        let schema = footer.schema().ok_or("it has no schema")?;
        check_endianness(schema)?;
        let blocks = footer.recordBatches().ok_or("it has no record batches")?;
        let dictionaries = footer.dictionaries().into_iter().flatten();
        let read = Footer {
            dictionaries: dictionaries.copied().collect(),
            batches: blocks.iter().copied().collect(),
        };
        for block in read.dictionaries.iter().chain(&read.batches) {
            whole_length(block, start)?;
        }
        let schema = try_fb_to_schema(schema)
            .map_err(|error| wide_integers::named(error.to_string(), schema))?;
        Ok((read, schema, footer.version()))
    }
}

pub fn check_endianness(schema: arrow_ipc::Schema<'_>) -> Result<(), String> {
    match schema.endianness().equals_to_target_endianness() {
        true => Ok(()),
        false => Err("its numbers are big-endian, which is not read".to_owned()),
    }
}

/// Returns the bytes of a block, which must end before `end`.
fn whole_length(block: &Block, end: u64) -> Result<usize, String> {
    let unsigned = |number: i64| u64::try_from(number).ok();
    let length = unsigned(i64::from(block.metaDataLength()))
        .zip(unsigned(block.bodyLength()))
        .and_then(|(head, body)| head.checked_add(body));
    let last = unsigned(block.offset())
        .zip(length)
        .and_then(|(at, length)| at.checked_add(length));
    match (last, length) {
        (Some(last), Some(length)) if last <= end => {
            usize::try_from(length).map_err(|error| error.to_string())
        }
        _ => Err(format!(
            "a block of {} + {} bytes at byte {} is not within the file's {end} bytes",
            block.metaDataLength(),
            block.bodyLength(),
            block.offset()
        )),
    }
}

fn beyond(what: &str, length: i64, rest: u64) -> String {
    format!("{what} is {length} bytes, where {rest} bytes are left")
}

/// A message with its head and its body.
#[derive(Debug)]
pub struct Message {
    pub bytes: Buffer,
    /// Its lengths, in the form of footers.
    pub block: Block,
}

impl Message {
    fn head_length(&self) -> usize {
        self.block.metaDataLength() as usize
    }

    fn checked(bytes: MutableBuffer, block: Block) -> Result<Message, String> {
        let bytes = bytes.into();
        let message = Message { bytes, block };
        message.check()?;
        Ok(message)
    }

    pub fn parsed(&self) -> Result<arrow_ipc::Message<'_>, String> {
        parsed(self.bytes.get(..self.head_length()).unwrap_or_default())
    }

    /// Checks that all of its buffers are within it, and have plausible lengths.
    fn check(&self) -> Result<(), String> {
        let message = self.parsed()?;
        let dictionary = message.header_as_dictionary_batch();
        let batch = message
            .header_as_record_batch()
            .or_else(|| dictionary.and_then(|dictionary| dictionary.data()));
        let Some(batch) = batch else { return Ok(()) };
        let rows = batch.length();
        let mut nodes = batch.nodes().into_iter().flatten();
        if let Some(first) = nodes.next()
            && first.length() != rows
        {
            let first = first.length();
            return Err(format!("it has {rows} rows, its first column {first}"));
        }
        let body = self.bytes.get(self.head_length()..).unwrap_or_default();
        let compression = batch.compression().map(|how| how.codec());
        for buffer in batch.buffers().into_iter().flatten() {
            let range = usize::try_from(buffer.offset())
                .ok()
                .zip(usize::try_from(buffer.length()).ok())
                .and_then(|(start, length)| Some(start..start.checked_add(length)?));
            let Some(bytes) = range.and_then(|range| body.get(range)) else {
                return Err(format!(
                    "a buffer of {} bytes at byte {} is not within its {} bytes",
                    buffer.length(),
                    buffer.offset(),
                    body.len()
                ));
            };
            match compression {
                Some(codec) if !bytes.is_empty() => check_unpacked(bytes, codec)?,
                _ => {}
            }
        }
        Ok(())
    }
}

/// Parses the head of a message.
fn parsed(head: &[u8]) -> Result<arrow_ipc::Message<'_>, String> {
    let prefix = if head.starts_with(&MARK) { 8 } else { 4 };
    let head = head.get(prefix..).ok_or("its head is cut off")?;
    root_as_message(head).map_err(|error| error.to_string())
}

/// Checks that a buffer can expand to its declared length.
fn check_unpacked(bytes: &[u8], codec: CompressionType) -> Result<(), String> {
    let Some((length, packed)) = bytes.split_first_chunk() else {
        return Err("a compressed buffer is too short to say its length".to_owned());
    };
    let length = i64::from_le_bytes(*length);
    let packed = packed.len() as u64;
    let ratio = match codec {
        CompressionType::LZ4_FRAME => LZ4_RATIO,
        _ => ZSTD_RATIO,
    };
    // -1: it is not compressed.
    let unpacked = if length == -1 {
        Some(packed)
    } else {
        u64::try_from(length).ok()
    };
    let unpacked = unpacked.filter(|unpacked| *unpacked <= packed.saturating_mul(ratio));
    let unpacked = unpacked.ok_or_else(|| {
        format!("a buffer of {packed} compressed bytes cannot become the {length} that it says")
    })?;
    let reserve = |bytes: usize| Vec::<u8>::new().try_reserve_exact(bytes).is_ok();
    match unpacked <= SMALL_BYTES || usize::try_from(unpacked).is_ok_and(reserve) {
        true => Ok(()),
        false => Err(format!(
            "a buffer of {unpacked} bytes is more than memory has"
        )),
    }
}

/// A reader of messages: of a stream in sequence, of a file at given blocks.
#[derive(Debug)]
pub struct Messages {
    reader: BlobReader,
    /// The offset of the next message of a stream.
    at: u64,
    size_bytes: u64,
}

impl Messages {
    pub fn new(blob: &Blob) -> Messages {
        Messages {
            reader: blob.reader(0..blob.size_bytes),
            at: 0,
            size_bytes: blob.size_bytes,
        }
    }

    /// Returns the message at a block of a file.
    pub fn at(&mut self, block: &Block) -> Result<Message, String> {
        let mut bytes = MutableBuffer::from_len_zeroed(whole_length(block, self.size_bytes)?);
        let start = SeekFrom::Start(block.offset() as u64);
        let read = self.reader.seek(start);
        read.and_then(|_| self.reader.read_exact(&mut bytes))
            .map_err(|error| error.to_string())?;
        Message::checked(bytes, *block)
    }

    /// Returns the next message of a stream; `None` at its end mark, which nothing may follow.
    pub fn next(&mut self) -> Result<Option<Message>, String> {
        let start = self.at;
        let mut bytes = MutableBuffer::new(0);
        let Ok(mut length) = self.word(&mut bytes) else {
            // The stream may have been truncated between two batches.
            let gone = "should follow, or the mark that ends a stream: it may be cut off";
            return Err(gone.to_owned());
        };
        if length == MARK {
            length = self.word(&mut bytes)?;
        }
        let length = i32::from_le_bytes(length);
        if length == 0 {
            return match self.at == self.size_bytes {
                true => Ok(None),
                // Another stream after this one would not be read.
                false => Err(
                    "follows the end of the stream: give each stream as a file of its own"
                        .to_owned(),
                ),
            };
        }
        self.take(&mut bytes, "the head of a message", i64::from(length))?;
        let head_length = bytes.len() as i32;
        let body = parsed(&bytes)?.bodyLength();
        self.take(&mut bytes, "the body of a message", body)?;
        let block = Block::new(start as i64, head_length, body);
        Message::checked(bytes, block).map(Some)
    }

    fn word(&mut self, bytes: &mut MutableBuffer) -> Result<[u8; 4], String> {
        let from = bytes.len();
        self.take(bytes, "the length of a message", 4)?;
        let word = bytes.get(from..).and_then(|word| word.try_into().ok());
        Ok(word.unwrap_or_default())
    }

    /// Reads this many further bytes of a stream and appends them.
    fn take(&mut self, bytes: &mut MutableBuffer, what: &str, length: i64) -> Result<(), String> {
        let rest = self.size_bytes - self.at;
        let more = u64::try_from(length).ok().filter(|more| *more <= rest);
        let more = more.ok_or_else(|| beyond(what, length, rest))?;
        let from = bytes.len();
        bytes.resize(from + more as usize, 0);
        let read = self.reader.read_exact(&mut bytes[from..]);
        read.map_err(|error| error.to_string())?;
        self.at += more;
        Ok(())
    }
}
