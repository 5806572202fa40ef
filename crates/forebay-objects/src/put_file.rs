//! Sends one file without resuming: if it is interrupted, the caller sends it again as a whole.

use std::io;

use bytes::Bytes;
use forebay_io::ReadFile;
use futures::future::try_join_all;

use crate::journal::part_bytes;
use crate::objects::Objects;

/// Parts on their way at a time, each in memory.
const PARTS_AT_ONCE: u64 = 4;

impl Objects {
    /// Writes a file whatever was there before. Calls `advance` with the bytes sent.
    pub fn put_file(
        &self,
        name: &str,
        file: &dyn ReadFile,
        advance: &dyn Fn(u64),
    ) -> io::Result<()> {
        let len_bytes = file.len_bytes();
        let part = part_bytes(len_bytes);
        if len_bytes <= part {
            let content = read(file, 0, len_bytes)?;
            self.runtime().block_on(self.put(name, content))?;
            advance(len_bytes);
        } else {
            self.put_in_parts(name, file, part, advance)?;
        }
        match self.head(name)? {
            Some((found, _)) if found == len_bytes => Ok(()),
            found => Err(not_as_sent(name, len_bytes, found.map(|(found, _)| found))),
        }
    }

    fn put_in_parts(
        &self,
        name: &str,
        file: &dyn ReadFile,
        part: u64,
        advance: &dyn Fn(u64),
    ) -> io::Result<()> {
        let upload = self.runtime().block_on(self.begin_parts(name))?;
        let sent = self.send_parts(name, &upload, file, part, advance);
        let finished = sent.and_then(|parts| {
            let finish = self.finish_parts(name, &upload, parts);
            self.runtime().block_on(finish)
        });
        if finished.is_err() {
            // Otherwise the store keeps, and charges for, the received parts.
            let _ = self.runtime().block_on(self.abort_parts(name, &upload));
        }
        finished
    }

    fn send_parts(
        &self,
        name: &str,
        upload: &str,
        file: &dyn ReadFile,
        part: u64,
        advance: &dyn Fn(u64),
    ) -> io::Result<Vec<object_store::multipart::PartId>> {
        let len_bytes = file.len_bytes();
        let upload = upload.to_owned();
        let count = len_bytes.div_ceil(part);
        let mut receipts = Vec::new();
        for first in (0..count).step_by(PARTS_AT_ONCE as usize) {
            let mut contents = Vec::new();
            for index in first..count.min(first + PARTS_AT_ONCE) {
                let begin = index * part;
                let content = read(file, begin, part.min(len_bytes - begin))?;
                contents.push((index as usize, content));
            }
            let bytes: usize = contents.iter().map(|(_, content)| content.len()).sum();
            let put = contents
                .into_iter()
                .map(|(index, content)| self.put_part(name, &upload, index, content));
            let put = self.runtime().block_on(try_join_all(put))?;
            receipts.extend(put);
            advance(bytes as u64);
        }
        Ok(receipts)
    }
}

fn read(file: &dyn ReadFile, begin: u64, length: u64) -> io::Result<Bytes> {
    let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
    file.read_exact_at(&mut bytes, begin)?;
    Ok(bytes.into())
}

/// Returns the error of an object that is not as it was sent. Another process has removed or
/// overwritten it, as a push does with files of an earlier one.
pub fn not_as_sent(name: &str, sent_bytes: u64, found_bytes: Option<u64>) -> io::Error {
    let found = found_bytes.map_or_else(
        || "has no such object".to_owned(),
        |bytes| format!("has {bytes} of them"),
    );
    io::Error::other(format!(
        "{name}: {sent_bytes} bytes were sent, but the store {found}: another push of the table \
         ran meanwhile, or somebody removed the object; push again"
    ))
}
