//! Arrow IPC: files, a unit a few record batches, and streams, a unit each.

use std::io::{BufReader, Read};
use std::ops::Range;

use arrow_array::RecordBatch;
use arrow_ipc::reader::{FileReader, StreamReader};
use arrow_schema::{ArrowError, SchemaRef};

use super::blob::{Blob, BlobReader, guarded};
use super::content;
use super::error::SourceError;
use super::format::Format;

/// Units that a file is cut into at most.
const MAX_UNITS: usize = 64;

/// What an Arrow file was found to be.
#[derive(Debug, Clone)]
pub(super) struct IpcFile {
    pub schema: SchemaRef,
    /// The number of batches; `None` for a stream.
    batches: Option<usize>,
}

fn file_reader(
    blob: &Blob,
    columns: Option<Vec<usize>>,
) -> Result<FileReader<BlobReader>, ArrowError> {
    FileReader::try_new(blob.reader(0..blob.size_bytes), columns)
}

fn stream_reader(
    blob: &Blob,
    columns: Option<Vec<usize>>,
) -> Result<StreamReader<BufReader<BlobReader>>, ArrowError> {
    StreamReader::try_new(BufReader::new(blob.reader(0..blob.size_bytes)), columns)
}

/// Whether a stream that has given its last batch ends as streams do, and nothing follows: it may have been cut off
/// between two batches, and another stream behind it would not be read.
fn ends(blob: &Blob, rest: &mut impl Read) -> Result<(), String> {
    let mut more = [0];
    match rest.read(&mut more) {
        Ok(0) => {}
        Ok(_) => {
            return Err(
                "follows the end of the stream: give each stream as a file of its own".to_owned(),
            );
        }
        Err(error) => return Err(error.to_string()),
    }
    // Streams of old writers have no marks, and end with an empty length.
    let marked = blob
        .read(0..blob.size_bytes.min(4))
        .is_ok_and(|begin| begin == [0xff; 4][..]);
    let end: &[u8] = match marked {
        true => &[0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0],
        false => &[0; 4],
    };
    let last = blob.size_bytes.saturating_sub(end.len() as u64)..blob.size_bytes;
    match blob.read(last) {
        Ok(bytes) if bytes == end => Ok(()),
        Ok(_) => Err("should follow, or the mark that ends a stream: it may be cut off".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

impl IpcFile {
    pub fn describe(blob: &Blob) -> Result<IpcFile, SourceError> {
        let mut mark = [0; 6];
        let marked = blob
            .reader_by(0..blob.size_bytes.min(6), 6)
            .read_exact(&mut mark);
        if marked.is_ok() && &mark == b"ARROW1" {
            let reader =
                guarded(|| file_reader(blob, None)).map_err(|e| blob.damaged("its footer ", e))?;
            return Ok(IpcFile {
                schema: reader.schema(),
                batches: Some(reader.num_batches()),
            });
        }
        let reader = guarded(|| stream_reader(blob, None)).map_err(|error| {
            let damaged = || blob.damaged("its beginning, read as an Arrow stream, ", error);
            content::expect(blob, Format::Arrow)
                .err()
                .unwrap_or_else(damaged)
        })?;
        Ok(IpcFile {
            schema: reader.schema(),
            batches: None,
        })
    }

    /// The ranges of batches that can be read side by side.
    pub fn parts(&self) -> Vec<Range<usize>> {
        let Some(batches) = self.batches else {
            return std::iter::once(0..usize::MAX).collect();
        };
        let step = batches.div_ceil(MAX_UNITS).max(1);
        (0..batches)
            .step_by(step)
            .map(|start| start..batches.min(start + step))
            .collect()
    }

    /// Reads the columns at `columns` (ascending) of some batches; `emit` is told each one's index.
    pub fn read<E: From<SourceError>>(
        &self,
        blob: &Blob,
        part: &Range<usize>,
        columns: &[usize],
        emit: &mut dyn FnMut(usize, RecordBatch) -> Result<(), E>,
    ) -> Result<(), E> {
        let damaged = |index: usize, error: String| {
            E::from(blob.damaged(format!("record batch {index} "), error))
        };
        let columns = Some(columns.to_vec());
        if self.batches.is_none() {
            let reader = guarded(|| stream_reader(blob, columns));
            let mut reader = reader.map_err(|e| damaged(0, e))?;
            let mut index = 0;
            while let Some(batch) =
                guarded(|| reader.next().transpose()).map_err(|e| damaged(index, e))?
            {
                emit(index, batch)?;
                index += 1;
            }
            return ends(blob, reader.get_mut()).map_err(|reason| damaged(index, reason));
        }
        let open = || {
            let mut reader = file_reader(blob, columns)?;
            reader.set_index(part.start)?;
            Ok::<_, ArrowError>(reader)
        };
        let mut reader = guarded(open).map_err(|e| damaged(part.start, e))?;
        for index in part.clone() {
            let batch = guarded(|| reader.next().transpose()).map_err(|e| damaged(index, e))?;
            let Some(batch) = batch else { break };
            emit(index, batch)?;
        }
        Ok(())
    }
}
