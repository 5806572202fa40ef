//! Reads packet captures, pcap and pcapng: one row a packet.
//!
//! Nothing in such a file marks the beginning of a record, so it must be read from the front.
//! `walk` steps from record to record. `cut` finds places at which threads can begin. It does not
//! trust data that merely looks like a record, because a packet may carry a capture. `packets`
//! turns packets into columns.

mod cut;
mod packets;
#[cfg(test)]
mod tests;
mod walk;

use std::ops::Range;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

use super::BATCH_ROWS;
use super::batch_bytes::BATCH_BYTES;
use super::blob::{Blob, guarded};
use super::content;
use super::error::SourceError;
use super::format::Format;
use super::origin::Place;
use cut::cut;
use packets::{Interface, Packets, columns};
use walk::{Framing, WalkStep, Window};

/// The fewest bytes of a part, except the last.
const PART_BYTES: u64 = 16 << 20;

/// The description of a capture file.
#[derive(Debug)]
pub(super) struct CaptureFile {
    pub schema: SchemaRef,
    parts: Vec<CapturePart>,
}

/// A part of a capture: whole records that follow each other.
#[derive(Debug, Clone)]
pub(super) struct CapturePart {
    pub range: Range<u64>,
    framing: Framing,
    /// The interfaces described before the part, in its section.
    interfaces: Arc<Vec<Interface>>,
    /// The number of packets before the part, and in it.
    packets_before: u64,
    pub packets: u64,
    /// The offset after the part of a record that the file's end cuts off.
    torn: Option<u64>,
}

impl CaptureFile {
    pub fn describe(blob: &Blob, packet_data: bool) -> Result<CaptureFile, SourceError> {
        content::expect(blob, Format::Capture)?;
        CaptureFile::describe_by(blob, packet_data, PART_BYTES)
    }

    fn describe_by(
        blob: &Blob,
        packet_data: bool,
        part_bytes: u64,
    ) -> Result<CaptureFile, SourceError> {
        let head = blob.read(0..blob.size_bytes.min(24));
        let head = head.map_err(|error| blob.io_error(error))?;
        let start =
            Framing::of_file(&head).map_err(|reason| blob.damaged("its header ", reason))?;
        Ok(CaptureFile {
            schema: columns(packet_data),
            parts: cut(blob, &start, part_bytes)?,
        })
    }

    pub fn parts(&self) -> &[CapturePart] {
        &self.parts
    }

    /// Reads the columns at `columns` (ascending) of a part. `emit` receives the number in the file
    /// of each batch's first packet, from 0; `reject` the place of a record that is not a packet.
    pub fn read<E: From<SourceError>>(
        &self,
        blob: &Blob,
        part: &CapturePart,
        columns: &[usize],
        emit: &mut dyn FnMut(RecordBatch, u64) -> Result<(), E>,
        reject: &mut dyn FnMut(Place, String) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut reader = PartReader {
            window: Window::new(blob),
            framing: part.framing,
            interfaces: part.interfaces.as_ref().clone(),
            at: part.range.start,
        };
        let mut number = part.packets_before;
        while reader.at < part.range.end {
            let mut packets = Packets::new(&self.schema, columns);
            let first = number;
            let filled = guarded(|| reader.fill(part.range.end, &mut number, &mut packets));
            let place = format!("byte {}: the capture ", reader.at);
            filled.map_err(|reason| E::from(blob.damaged(place, reason)))?;
            if number > first {
                let batch = packets.finish();
                let batch = batch.map_err(|error| E::from(blob.damaged("a batch ", error)))?;
                emit(batch, first)?;
            }
        }
        match part.torn {
            None => Ok(()),
            Some(at) => reject(
                Place::Byte(at),
                "the capture is cut off within a packet".to_owned(),
            ),
        }
    }
}

struct PartReader<'a> {
    window: Window<'a>,
    framing: Framing,
    interfaces: Vec<Interface>,
    at: u64,
}

impl PartReader<'_> {
    /// Reads packets up to `end`, or as many as fill a batch.
    fn fill(&mut self, end: u64, number: &mut u64, packets: &mut Packets) -> Result<(), String> {
        let (mut rows, mut bytes) = (0, 0);
        while self.at < end && rows < BATCH_ROWS && bytes < BATCH_BYTES {
            let step = self.framing.step(&mut self.window, self.at);
            let record = match step.map_err(|error| error.to_string())? {
                WalkStep::Record(record) => record,
                other => return Err(format!("it has changed meanwhile: {other:?}")),
            };
            let content = self.window.get(self.at, record.bytes as usize);
            let content = content.map_err(|error| error.to_string())?;
            let content = content.ok_or("it has become shorter meanwhile")?;
            self.at += record.bytes;
            self.framing = record.framing;
            if record.is_description {
                Interface::describe(content, &self.framing, &mut self.interfaces)?;
            }
            if record.is_packet {
                packets.push(content, &self.framing, &self.interfaces, *number)?;
                *number += 1;
                rows += 1;
                bytes += content.len();
            }
        }
        Ok(())
    }
}
