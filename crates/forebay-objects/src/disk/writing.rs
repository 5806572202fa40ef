//! Files of a store in object storage while they are written.

use std::io::{self, Write};
use std::sync::Arc;

use bytes::Bytes;
use forebay_io::WriteFile;

use super::Shared;
use crate::attempt::Attempt;

/// A run in progress. Its upload begins once it is sealed.
#[derive(Debug)]
pub struct RunFile {
    pub inner: Box<dyn WriteFile>,
    pub attempt: Arc<Attempt>,
    pub file: String,
}

impl Write for RunFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes);
        written.map_err(|error| self.attempt.failed(error))
    }

    fn flush(&mut self) -> io::Result<()> {
        let flushed = self.inner.flush();
        flushed.map_err(|error| self.attempt.failed(error))
    }
}

impl WriteFile for RunFile {
    fn sync(&mut self) -> io::Result<()> {
        let synced = self.inner.sync();
        synced.map_err(|error| self.attempt.failed(error))?;
        self.attempt.uploads.begin(&self.file);
        Ok(())
    }
}

/// A small file before it is renamed.
#[derive(Debug)]
pub struct DocumentFile {
    pub shared: Arc<Shared>,
    pub name: String,
    pub bytes: Vec<u8>,
}

impl Write for DocumentFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl WriteFile for DocumentFile {
    fn sync(&mut self) -> io::Result<()> {
        let bytes = Bytes::copy_from_slice(&self.bytes);
        self.shared
            .unfinished
            .lock()
            .insert(self.name.clone(), bytes);
        Ok(())
    }
}
