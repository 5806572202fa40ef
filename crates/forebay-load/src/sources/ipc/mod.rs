//! Reads Arrow IPC. In a file, a unit is a few record batches; a stream is one unit.

mod messages;

use std::io::Read;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_ipc::convert::try_fb_to_schema;
use arrow_ipc::reader::FileDecoder;
use arrow_ipc::{Block, MessageHeader, MetadataVersion};
use arrow_schema::SchemaRef;

use super::blob::{Blob, guarded};
use super::content;
use super::error::SourceError;
use super::format::Format;
use super::wide_integers;
use messages::{Footer, Message, Messages};

/// The most units of a file.
const MAX_UNITS: usize = 64;

/// The description of an Arrow file.
#[derive(Debug, Clone)]
pub(super) struct IpcFile {
    pub schema: SchemaRef,
    version: MetadataVersion,
    /// The locations of its batches; `None` for a stream.
    footer: Option<Arc<Footer>>,
}

impl IpcFile {
    pub fn describe(blob: &Blob) -> Result<IpcFile, SourceError> {
        let mut mark = [0; 6];
        let marked = blob
            .reader_by(0..blob.size_bytes.min(6), 6)
            .read_exact(&mut mark);
        if marked.is_ok() && &mark == b"ARROW1" {
            return guarded(|| IpcFile::of_footer(blob))
                .map_err(|reason| blob.undecoded("its footer ", reason));
        }
        guarded(|| IpcFile::of_stream(blob)).map_err(|reason| {
            let undecoded = || blob.undecoded("its beginning, read as an Arrow stream, ", reason);
            content::expect(blob, Format::Arrow)
                .err()
                .unwrap_or_else(undecoded)
        })
    }

    fn of_footer(blob: &Blob) -> Result<IpcFile, String> {
        let (footer, schema, version) = Footer::read(blob)?;
        Ok(IpcFile {
            schema: Arc::new(schema),
            version,
            footer: Some(Arc::new(footer)),
        })
    }

    fn of_stream(blob: &Blob) -> Result<IpcFile, String> {
        let first = Messages::new(blob).next()?;
        let first = first.ok_or("it holds nothing")?;
        let message = first.parsed()?;
        let schema = message
            .header_as_schema()
            .ok_or("its first message is no schema")?;
        messages::check_endianness(schema)?;
        let schema = try_fb_to_schema(schema)
            .map_err(|error| wide_integers::named(error.to_string(), schema))?;
        Ok(IpcFile {
            schema: Arc::new(schema),
            version: message.version(),
            footer: None,
        })
    }

    /// Returns the ranges of batches that can be read in parallel.
    pub fn parts(&self) -> Vec<Range<usize>> {
        let Some(footer) = &self.footer else {
            return std::iter::once(0..usize::MAX).collect();
        };
        let batches = footer.batches.len();
        let step = batches.div_ceil(MAX_UNITS).max(1);
        (0..batches)
            .step_by(step)
            .map(|start| start..batches.min(start + step))
            .collect()
    }

    /// Reads the columns at `columns` (ascending) of some batches; `emit` receives the index of
    /// each.
    pub fn read<E: From<SourceError>>(
        &self,
        blob: &Blob,
        part: &Range<usize>,
        columns: &[usize],
        emit: &mut dyn FnMut(usize, RecordBatch) -> Result<(), E>,
    ) -> Result<(), E> {
        let decoder = FileDecoder::new(Arc::clone(&self.schema), self.version);
        let mut reading = IpcReading {
            messages: Messages::new(blob),
            decoder: decoder.with_projection(columns.to_vec()),
        };
        let undecoded = |index: usize, reason: String| {
            E::from(blob.undecoded(format!("record batch {index} "), reason))
        };
        let Some(footer) = &self.footer else {
            let mut index = 0;
            // Skips the schema, which is known.
            guarded(|| reading.messages.next()).map_err(|e| undecoded(index, e))?;
            while let Some(batch) =
                guarded(|| reading.next()).map_err(|reason| undecoded(index, reason))?
            {
                emit(index, batch)?;
                index += 1;
            }
            return Ok(());
        };
        for block in &footer.dictionaries {
            guarded(|| reading.dictionary(block))
                .map_err(|reason| E::from(blob.undecoded("a dictionary ", reason)))?;
        }
        for index in part.clone() {
            let Some(block) = footer.batches.get(index) else {
                break;
            };
            let batch = guarded(|| reading.batch(block)).map_err(|e| undecoded(index, e))?;
            emit(index, batch)?;
        }
        Ok(())
    }
}

/// A reader of a file or stream.
struct IpcReading {
    messages: Messages,
    decoder: FileDecoder,
}

impl IpcReading {
    /// Returns the batch at a block of a file.
    fn batch(&mut self, block: &Block) -> Result<RecordBatch, String> {
        let message = self.messages.at(block)?;
        self.decoded(&message)
    }

    fn dictionary(&mut self, block: &Block) -> Result<(), String> {
        let message = self.messages.at(block)?;
        self.add_dictionary(&message)
    }

    /// Returns the next batch of a stream.
    fn next(&mut self) -> Result<Option<RecordBatch>, String> {
        while let Some(message) = self.messages.next()? {
            if message.parsed()?.header_type() != MessageHeader::DictionaryBatch {
                return self.decoded(&message).map(Some);
            }
            self.add_dictionary(&message)?;
        }
        Ok(None)
    }

    fn decoded(&self, message: &Message) -> Result<RecordBatch, String> {
        let batch = self
            .decoder
            .read_record_batch(&message.block, &message.bytes)
            .map_err(|error| error.to_string())?;
        batch.ok_or_else(|| "there is a message without a kind in its place".to_owned())
    }

    fn add_dictionary(&mut self, message: &Message) -> Result<(), String> {
        self.decoder
            .read_dictionary(&message.block, &message.bytes)
            .map_err(|error| error.to_string())
    }
}
