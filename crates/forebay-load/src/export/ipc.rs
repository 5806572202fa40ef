//! Arrow output: an IPC file or stream, of batches of at most 8,192 rows, not compressed.

use std::io::Write;

use arrow_ipc::writer::{FileWriter, StreamWriter};
use arrow_schema::ArrowError;
use forebay_run::row::Column;

use super::ExportError;
use super::layout::Layout;
use super::rows::Rows;

pub(super) struct ArrowRows<W: Write> {
    rows: Rows,
    writer: Writer<W>,
}

enum Writer<W: Write> {
    File(FileWriter<W>),
    Stream(StreamWriter<W>),
}

impl<W: Write> ArrowRows<W> {
    pub fn new(columns: &[Column], stream: bool, output: W) -> Result<ArrowRows<W>, ExportError> {
        let rows = Rows::new(columns, false);
        let writer = match stream {
            true => Writer::Stream(StreamWriter::try_new(output, rows.schema()).map_err(failed)?),
            false => Writer::File(FileWriter::try_new(output, rows.schema()).map_err(failed)?),
        };
        Ok(ArrowRows { rows, writer })
    }

    pub fn push(&mut self, layout: &Layout, key: &[u8], value: &[u8]) -> Result<(), ExportError> {
        self.rows.push(layout, key, value)?;
        if self.rows.full() {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), ExportError> {
        let batch = self.rows.finish()?;
        let written = match &mut self.writer {
            Writer::File(writer) => writer.write(&batch),
            Writer::Stream(writer) => writer.write(&batch),
        };
        written.map_err(failed)
    }

    pub fn finish(mut self) -> Result<W, ExportError> {
        if !self.rows.is_empty() {
            self.flush()?;
        }
        let output = match self.writer {
            Writer::File(writer) => writer.into_inner(),
            Writer::Stream(writer) => writer.into_inner(),
        };
        let mut output = output.map_err(failed)?;
        output.flush()?;
        Ok(output)
    }
}

/// Tells errors of the output from those of arrays.
fn failed(error: ArrowError) -> ExportError {
    match error {
        ArrowError::IoError(_, error) => ExportError::Io(error),
        other => ExportError::Build(other),
    }
}
