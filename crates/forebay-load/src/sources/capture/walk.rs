//! Steps from record to record of a capture, by their lengths.

use std::io;

use bytes::Bytes;

use crate::sources::blob::Blob;

/// The longest plausible packet, unless the file gives a greater limit: the default of capture
/// tools.
const MAX_PACKET_BYTES: u32 = 256 << 10;
/// The longest plausible block of a pcapng file.
const MAX_BLOCK_BYTES: u32 = 64 << 20;
/// The bytes that are read at once.
const WINDOW_BYTES: u64 = 1 << 20;

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const OLD_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;
/// The block types that are accepted at a place that may not be a record.
const KNOWN_BLOCKS: [u32; 8] = [
    SECTION_HEADER,
    INTERFACE,
    OLD_PACKET,
    SIMPLE_PACKET,
    4,
    5,
    ENHANCED_PACKET,
    10,
];

/// The layout of records in a file, or in a section of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    Pcap {
        big_endian: bool,
        nanoseconds: bool,
        /// The longest packet allowed.
        limit: u32,
        link: i32,
    },
    Pcapng {
        big_endian: bool,
    },
}

/// A record including its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CaptureRecord {
    pub bytes: u64,
    pub is_packet: bool,
    /// Whether it is a section's header or an interface's description.
    pub is_description: bool,
    /// The framing of the following records.
    pub framing: Framing,
}

/// The content at a place of a capture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WalkStep {
    Record(CaptureRecord),
    /// The file's end.
    End,
    /// A record that the file's end cuts off.
    Torn,
    Bad(String),
}

impl Framing {
    /// Returns the framing of a file from its first bytes, or what is wrong with it.
    pub fn of_file(head: &[u8]) -> Result<Framing, String> {
        if head.starts_with(&SECTION_HEADER.to_le_bytes()) {
            let big_endian = byte_order(head).ok_or("its byte-order mark is not valid")?;
            return Ok(Framing::Pcapng { big_endian });
        }
        let (_, header) = pcap_parser::parse_pcap_header(head).map_err(|_| {
            "it begins as neither pcap nor pcapng; name the format of other files".to_owned()
        })?;
        if header.is_modified_format() {
            return Err(
                "it is of a variant with longer headers, which is not supported: convert it to \
                 pcapng with editcap"
                    .to_owned(),
            );
        }
        let limit = header.snaplen.clamp(MAX_PACKET_BYTES, MAX_BLOCK_BYTES);
        Ok(Framing::Pcap {
            big_endian: header.is_bigendian(),
            nanoseconds: header.is_nanosecond_precision(),
            limit,
            link: header.network.0,
        })
    }

    /// Returns the offset of the first record.
    pub fn first_record(&self) -> u64 {
        match self {
            Framing::Pcap { .. } => 24,
            Framing::Pcapng { .. } => 0,
        }
    }

    /// Returns the alignment of records.
    pub fn alignment(&self) -> u64 {
        match self {
            Framing::Pcap { .. } => 1,
            Framing::Pcapng { .. } => 4,
        }
    }

    /// Returns the content at `at`, where a record begins or the file ends.
    pub fn step(&self, window: &mut Window<'_>, at: u64) -> io::Result<WalkStep> {
        let left = window.size_bytes().saturating_sub(at);
        match self {
            _ if left == 0 => Ok(WalkStep::End),
            Framing::Pcap { .. } => self.pcap_record(window, at, left),
            Framing::Pcapng { big_endian } => pcapng_block(*big_endian, window, at, left),
        }
    }

    fn pcap_record(&self, window: &mut Window<'_>, at: u64, left: u64) -> io::Result<WalkStep> {
        let Framing::Pcap {
            big_endian,
            nanoseconds,
            limit,
            ..
        } = *self
        else {
            return Ok(WalkStep::Bad("it is no pcap".to_owned()));
        };
        let Some(head) = window.get(at, 16)? else {
            return Ok(WalkStep::Torn);
        };
        let (fraction, length) = (word(head, 4, big_endian), word(head, 8, big_endian));
        let per_second = if nanoseconds {
            1_000_000_000
        } else {
            1_000_000
        };
        if fraction >= per_second {
            return Ok(WalkStep::Bad(format!(
                "{fraction} {per_second}ths of a second"
            )));
        }
        if length > limit {
            return Ok(WalkStep::Bad(format!(
                "a packet of {length} bytes, of which there are at most {limit}"
            )));
        }
        let bytes = 16 + u64::from(length);
        if bytes > left {
            return Ok(WalkStep::Torn);
        }
        Ok(WalkStep::Record(CaptureRecord {
            bytes,
            is_packet: true,
            is_description: false,
            framing: *self,
        }))
    }

    /// Returns whether the content at `at` looks like a record that comes after `before`, if that
    /// is given. It is stricter than [`Framing::step`], and may refuse a real record.
    pub fn looks_real(
        &self,
        window: &mut Window<'_>,
        at: u64,
        before: Option<u64>,
    ) -> io::Result<bool> {
        let size = 16.min(window.size_bytes().saturating_sub(at)) as usize;
        let Some(head) = window.get(at, size)? else {
            return Ok(false);
        };
        match *self {
            _ if size < 12 => Ok(false),
            Framing::Pcapng { big_endian } => Ok(KNOWN_BLOCKS.contains(&word(head, 0, big_endian))),
            Framing::Pcap { .. } if size < 16 => Ok(false),
            Framing::Pcap { big_endian, .. } => {
                let (seconds, captured) = (word(head, 0, big_endian), word(head, 8, big_endian));
                let on_wire = word(head, 12, big_endian);
                let Some(before) = before else {
                    return Ok(captured <= on_wire);
                };
                let earlier = window.get(before, 4)?.map(|head| word(head, 0, big_endian));
                let near = earlier.is_some_and(|earlier| earlier.abs_diff(seconds) <= 86_400);
                Ok(captured <= on_wire && near)
            }
        }
    }
}

fn pcapng_block(
    big_endian: bool,
    window: &mut Window<'_>,
    at: u64,
    left: u64,
) -> io::Result<WalkStep> {
    let Some(head) = window.get(at, 12)? else {
        return Ok(WalkStep::Torn);
    };
    let block = word(head, 0, big_endian);
    let big_endian = match (block, byte_order(head)) {
        // Reads the same in both byte orders.
        (SECTION_HEADER, Some(order)) => order,
        (SECTION_HEADER, None) => {
            return Ok(WalkStep::Bad("a section of no known byte order".to_owned()));
        }
        _ => big_endian,
    };
    let length = word(head, 4, big_endian);
    let least = match block {
        SECTION_HEADER => 28,
        INTERFACE => 20,
        OLD_PACKET | ENHANCED_PACKET => 32,
        SIMPLE_PACKET => 16,
        _ => 12,
    };
    if !(least..=MAX_BLOCK_BYTES).contains(&length) || !length.is_multiple_of(4) {
        return Ok(WalkStep::Bad(format!("a block of {length} bytes")));
    }
    if u64::from(length) > left {
        return Ok(WalkStep::Torn);
    }
    let last = window.get(at + u64::from(length) - 4, 4)?;
    let again = last.map(|last| word(last, 0, big_endian));
    if again != Some(length) {
        return Ok(WalkStep::Bad(format!(
            "a block says {length} bytes in front and {} at its end",
            again.unwrap_or(0)
        )));
    }
    Ok(WalkStep::Record(CaptureRecord {
        bytes: u64::from(length),
        is_packet: matches!(block, OLD_PACKET | SIMPLE_PACKET | ENHANCED_PACKET),
        is_description: matches!(block, SECTION_HEADER | INTERFACE),
        framing: Framing::Pcapng { big_endian },
    }))
}

/// Returns whether a section is big-endian, from its header.
fn byte_order(head: &[u8]) -> Option<bool> {
    match head.get(8..12)? {
        [0x1a, 0x2b, 0x3c, 0x4d] => Some(true),
        [0x4d, 0x3c, 0x2b, 0x1a] => Some(false),
        _ => None,
    }
}

/// Returns the four bytes at `at`; 0 if there are none.
pub fn word(bytes: &[u8], at: usize, big_endian: bool) -> u32 {
    let four = bytes.get(at..).and_then(|bytes| bytes.first_chunk());
    match four {
        None => 0,
        Some(four) if big_endian => u32::from_be_bytes(*four),
        Some(four) => u32::from_le_bytes(*four),
    }
}

/// A reader of small pieces of a file, mostly sequential.
#[derive(Debug)]
pub struct Window<'a> {
    blob: &'a Blob,
    held: Bytes,
    held_at: u64,
}

impl<'a> Window<'a> {
    pub fn new(blob: &'a Blob) -> Self {
        Self {
            blob,
            held: Bytes::new(),
            held_at: 0,
        }
    }

    pub fn size_bytes(&self) -> u64 {
        self.blob.size_bytes
    }

    /// Returns this many bytes; `None` if the file ends before.
    pub fn get(&mut self, at: u64, bytes: usize) -> io::Result<Option<&[u8]>> {
        let end = at.saturating_add(bytes as u64);
        if end > self.blob.size_bytes {
            return Ok(None);
        }
        if at < self.held_at || end > self.held_at + self.held.len() as u64 {
            let more = at.saturating_add(WINDOW_BYTES).max(end);
            self.held = self.blob.read(at..more.min(self.blob.size_bytes))?;
            self.held_at = at;
        }
        let from = (at - self.held_at) as usize;
        Ok(self.held.get(from..from + bytes))
    }
}
