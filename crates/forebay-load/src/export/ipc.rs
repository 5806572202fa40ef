//! Writes Arrow output: an IPC file or stream of uncompressed batches of at most 8,192 rows.

use std::io::Write;

use arrow_array::RecordBatch;
use arrow_ipc::writer::{FileWriter, StreamWriter};
use arrow_schema::ArrowError;
use forebay_run::row::Column;

use super::ExportError;
use super::rows::{BatchWriter, ExportRows, RowsTo};

pub(super) enum IpcWriter<W: Write> {
    File(FileWriter<W>),
    Stream(StreamWriter<W>),
}

impl<W: Write> IpcWriter<W> {
    pub fn rows(columns: &[Column], stream: bool, output: W) -> Result<RowsTo<Self>, ExportError> {
        let rows = ExportRows::new(columns, false);
        let writer = match stream {
            true => StreamWriter::try_new(output, rows.schema()).map(IpcWriter::Stream),
            false => FileWriter::try_new(output, rows.schema()).map(IpcWriter::File),
        };
        Ok(RowsTo::new(rows, writer.map_err(failed)?))
    }
}

impl<W: Write> BatchWriter for IpcWriter<W> {
    type Output = W;

    fn write(&mut self, batch: &RecordBatch) -> Result<(), ExportError> {
        let written = match self {
            IpcWriter::File(writer) => writer.write(batch),
            IpcWriter::Stream(writer) => writer.write(batch),
        };
        written.map_err(failed)
    }

    fn end(self) -> Result<W, ExportError> {
        let output = match self {
            IpcWriter::File(writer) => writer.into_inner(),
            IpcWriter::Stream(writer) => writer.into_inner(),
        };
        output.map_err(failed)
    }
}

/// Distinguishes errors of the output from those of arrays.
fn failed(error: ArrowError) -> ExportError {
    match error {
        ArrowError::IoError(_, error) => ExportError::Io(error),
        other => ExportError::Build(other),
    }
}
