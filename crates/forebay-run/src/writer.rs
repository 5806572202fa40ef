//! Writes a run, front to back, in sort order.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64;

use crate::compress::BlockWriter;
use crate::content::ContentSum;
use crate::error::{Result, RunError, named_key};
use crate::filter::{FilterBuilder, filter_hash};
use crate::format::{
    Compression, Footer, MAX_KEY_BYTES, MAX_PAGE_BYTES, MIN_PAGE_BYTES, Order, RunOptions,
    RunSummary, SHORT_KEY_BYTES, Section, SectionKind,
};
use crate::hash::key_head;
use crate::index::{HashIndexBuilder, KeyIndex, separator};
use crate::operation::Operation;
use crate::page::{PageBuilder, TAG_EXTENT};
use crate::record::encode;
use forebay_io::{Disk, WriteFile};

/// The bytes that are buffered before a write.
const BUFFER_BYTES: usize = 1 << 20;
/// The bytes written before the system is asked to start write-back to the device.
const WRITE_BACK_BYTES: u64 = 4 << 20;

/// Returns the name of the file beside `run` that has values too large for a page.
pub fn ext_path(run: &Path) -> PathBuf {
    run.with_extension("ext")
}

/// A file written through a buffer.
struct Sink {
    path: PathBuf,
    file: Box<dyn WriteFile>,
    buffer: Vec<u8>,
    written_bytes: u64,
    /// The bytes for which write-back was requested; `None` if it is off.
    passed_on_bytes: Option<u64>,
}

impl Sink {
    fn create(disk: &dyn Disk, path: &Path, write_back: bool) -> Result<Self> {
        let file = disk
            .create(path)
            .map_err(|e| RunError::io(path, "create the file", e))?;
        let buffer = Vec::with_capacity(BUFFER_BYTES + MAX_PAGE_BYTES as usize);
        Ok(Self {
            path: path.to_path_buf(),
            file,
            buffer,
            written_bytes: 0,
            passed_on_bytes: write_back.then_some(0),
        })
    }

    /// Returns the file's length after all buffered bytes are written.
    fn len_bytes(&self) -> u64 {
        self.written_bytes + self.buffer.len() as u64
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        if bytes.len() >= BUFFER_BYTES {
            self.drain(0)?;
            return self.write(bytes);
        }
        self.buffer.extend_from_slice(bytes);
        self.drain(BUFFER_BYTES)
    }

    /// Writes the buffer when it holds at least `limit` bytes.
    fn drain(&mut self, limit: usize) -> Result<()> {
        if self.buffer.len() < limit.max(1) {
            return Ok(());
        }
        let buffer = std::mem::take(&mut self.buffer);
        let result = self.write(&buffer);
        self.buffer = buffer;
        self.buffer.clear();
        result
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let written = self.file.write_all(bytes);
        written.map_err(|e| RunError::io(&self.path, "write", e))?;
        self.written_bytes += bytes.len() as u64;
        if let Some(passed_on) = &mut self.passed_on_bytes
            && self.written_bytes - *passed_on >= WRITE_BACK_BYTES
        {
            *passed_on = self.written_bytes;
            self.file.write_back();
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        self.drain(0)?;
        self.file
            .sync()
            .map_err(|e| RunError::io(&self.path, "sync", e))
    }
}

enum IndexBuilder {
    Hashed(HashIndexBuilder),
    Ordered(KeyIndex),
}

/// A writer of one run. If it is dropped before [`RunWriter::finish`], it leaves files without a
/// footer, which no reader accepts.
pub struct RunWriter {
    options: RunOptions,
    disk: Arc<dyn Disk>,
    out: Sink,
    ext: Option<Sink>,
    page: PageBuilder,
    blocks: Option<BlockWriter>,
    page_buffer: Vec<u8>,
    index: IndexBuilder,
    filter: Option<FilterBuilder>,
    summary: RunSummary,
    /// The last record's position in sort order: its hash, or the head of its key.
    last_head: u64,
    /// The last key of the pages before the current one.
    page_end: Vec<u8>,
    /// The length of the longest key that is not a short one.
    long_key_bytes: usize,
}

impl RunWriter {
    /// Creates the file `path`, which must not exist; its extension is `run`.
    pub fn create(disk: &Arc<dyn Disk>, path: &Path, options: RunOptions) -> Result<Self> {
        let page_bytes = options.page_bytes;
        if !page_bytes.is_power_of_two() || !(MIN_PAGE_BYTES..=MAX_PAGE_BYTES).contains(&page_bytes)
        {
            let what = format!("page size {page_bytes}: it must be a power of two, 4096 to 32768");
            return Err(RunError::refused(path, what));
        }
        let hashed = options.order == Order::Hashed;
        let blocks = (options.compression != Compression::None)
            .then(|| BlockWriter::new(options.compression, page_bytes as usize));
        Ok(Self {
            out: Sink::create(&**disk, path, options.write_back)?,
            disk: Arc::clone(disk),
            ext: None,
            page: PageBuilder::new(page_bytes as usize, hashed),
            blocks,
            page_buffer: Vec::new(),
            index: if hashed {
                IndexBuilder::Hashed(HashIndexBuilder::default())
            } else {
                IndexBuilder::Ordered(KeyIndex::default())
            },
            filter: options.filter_records.map(FilterBuilder::new),
            summary: RunSummary::default(),
            last_head: 0,
            page_end: Vec::new(),
            long_key_bytes: 0,
            options,
        })
    }

    /// Returns the number of records pushed.
    pub fn records(&self) -> u64 {
        self.summary.records
    }

    /// Returns the bytes that the files have so far, buffers included.
    pub fn len_bytes(&self) -> u64 {
        self.out.len_bytes() + self.ext.as_ref().map_or(0, Sink::len_bytes)
    }

    /// Appends a record. REQUIRES: in hashed order `(hash, key)`, in ordered order `key`, is above
    /// that of the record before; `hash` is the key's hash64 (any number in ordered order).
    #[inline]
    pub fn push(&mut self, hash: u64, key: &[u8], operation: Operation<'_>) -> Result<()> {
        let (tag, payload) = encode(operation);
        self.push_encoded(hash, key, tag, &payload)
    }

    /// Does [`RunWriter::push`] for a record in the form of
    /// [`Cursor::encoded`](crate::scan::Cursor::encoded).
    #[inline]
    pub fn push_encoded(&mut self, hash: u64, key: &[u8], tag: u8, payload: &[u8]) -> Result<()> {
        let head = match self.options.order {
            Order::Hashed => hash,
            Order::Ordered => key_head(key),
        };
        self.check_key(head, key)?;
        self.push_payload(hash, key, tag, payload)?;
        self.last_head = head;
        Ok(())
    }

    #[inline]
    fn push_payload(&mut self, hash: u64, key: &[u8], tag: u8, payload: &[u8]) -> Result<()> {
        if let Some(filter) = &mut self.filter {
            filter.add(match self.options.order {
                Order::Hashed => hash,
                Order::Ordered => filter_hash(key),
            });
        }
        let summary = &mut self.summary;
        summary.records += 1;
        summary.key_bytes += key.len() as u64;
        summary.value_bytes += payload.len() as u64;
        summary.content += ContentSum::of(key, payload);
        if payload.len() > self.options.page_bytes as usize / 2 {
            let reference = self.push_extent(payload)?;
            self.add_to_page(hash, key, tag | TAG_EXTENT, &reference)
        } else {
            self.add_to_page(hash, key, tag, payload)
        }
    }

    /// Returns the key of the last record; empty if there is none.
    fn last_key(&self) -> &[u8] {
        self.page.last_key().unwrap_or(&self.page_end)
    }

    #[inline]
    fn check_key(&mut self, head: u64, key: &[u8]) -> Result<()> {
        let short = !key.is_empty() && key.len() <= SHORT_KEY_BYTES;
        if short && head > self.last_head {
            return Ok(());
        }
        self.check_key_wholly(head, key)
    }

    #[cold]
    fn check_key_wholly(&mut self, head: u64, key: &[u8]) -> Result<()> {
        let (bytes, page_bytes) = (key.len(), self.options.page_bytes);
        if key.is_empty() || bytes > MAX_KEY_BYTES {
            let what = format!("a key of {bytes} bytes: keys have 1 to {MAX_KEY_BYTES}");
            return Err(RunError::refused(&self.out.path, what));
        }
        if bytes > self.options.longest_key() {
            let what = format!("a key of {bytes} bytes, which pages of {page_bytes} do not hold");
            return Err(RunError::refused(&self.out.path, what));
        }
        if bytes > SHORT_KEY_BYTES {
            self.long_key_bytes = self.long_key_bytes.max(bytes);
        }
        if self.summary.records == 0 || (head, key) > (self.last_head, self.last_key()) {
            return Ok(());
        }
        let key = named_key(key);
        Err(RunError::refused(
            &self.out.path,
            format!("key {key} is not above the one before it"),
        ))
    }

    /// Appends a large payload to the `.ext` file: offset, length, checksum.
    fn push_extent(&mut self, payload: &[u8]) -> Result<[u8; 24]> {
        debug_assert!(
            payload.len() > self.options.page_bytes as usize / 2,
            "a value of {} bytes fits a page",
            payload.len()
        );
        let ext = match &mut self.ext {
            Some(ext) => ext,
            none => none.insert(Sink::create(
                &*self.disk,
                &ext_path(&self.out.path),
                self.options.write_back,
            )?),
        };
        let mut reference = [0; 24];
        reference[..8].copy_from_slice(&ext.len_bytes().to_le_bytes());
        reference[8..16].copy_from_slice(&(payload.len() as u64).to_le_bytes());
        reference[16..].copy_from_slice(&xxh3_64(payload).to_le_bytes());
        ext.append(payload)?;
        Ok(reference)
    }

    #[inline]
    fn add_to_page(&mut self, hash: u64, key: &[u8], tag: u8, payload: &[u8]) -> Result<()> {
        if !self.page.add(hash as u8, tag, key, payload) {
            self.finish_page()?;
            if !self.page.add(hash as u8, tag, key, payload) {
                return Err(RunError::refused(&self.out.path, "a record fits no page"));
            }
        }
        if self.page.records() == 1 {
            match &mut self.index {
                IndexBuilder::Hashed(index) => index.add(hash),
                IndexBuilder::Ordered(index) if index.is_empty() => index.add(&[]),
                IndexBuilder::Ordered(index) => index.add(separator(&self.page_end, key)),
            }
        }
        Ok(())
    }

    fn finish_page(&mut self) -> Result<()> {
        debug_assert!(!self.page.is_empty(), "a page without anything is finished");
        let number = self.summary.pages;
        self.summary.pages += 1;
        if let Some(last) = self.page.last_key() {
            self.page_end.clear();
            self.page_end.extend_from_slice(last);
        }
        match &mut self.blocks {
            None => {
                self.page.finish(number, &mut self.out.buffer);
                debug_assert_eq!(
                    self.out.len_bytes(),
                    self.summary.pages * u64::from(self.options.page_bytes),
                    "page {number} does not end at a multiple of its size"
                );
                self.out.drain(BUFFER_BYTES)
            }
            Some(blocks) => {
                self.page_buffer.clear();
                self.page.finish(number, &mut self.page_buffer);
                let stored = blocks.add(&self.page_buffer, &mut self.out.buffer);
                stored.map_err(|e| RunError::io(&self.out.path, "compress a page of", e))?;
                self.out.drain(BUFFER_BYTES)
            }
        }
    }

    /// Writes the pending records, the index and the footer, and makes all of them durable. The
    /// caller makes the file's name durable, by syncing the directory.
    pub fn finish(self) -> Result<RunSummary> {
        let (summary, sinks) = self.write_end()?;
        for mut sink in sinks {
            sink.sync()?;
        }
        Ok(summary)
    }

    /// Does [`RunWriter::finish`] for runs that need not outlive this process: nothing is made
    /// durable.
    pub fn finish_unsynced(self) -> Result<RunSummary> {
        self.write_end().map(|(summary, _)| summary)
    }

    fn write_end(mut self) -> Result<(RunSummary, Vec<Sink>)> {
        while !self.page.is_empty() {
            self.finish_page()?;
        }
        if let Some(blocks) = &mut self.blocks {
            let finished = blocks.finish(&mut self.out.buffer);
            finished.map_err(|e| RunError::io(&self.out.path, "compress a page of", e))?;
        }
        debug_assert!(
            (self.blocks.as_ref())
                .is_none_or(|blocks| blocks.blocks.len() as u64 == self.summary.pages),
            "not every one of {} pages is stored as a block",
            self.summary.pages
        );
        debug_assert!(
            // The last page may contain only the rest of a value.
            self.summary.pages - self.indexed_pages() <= 1,
            "of {} pages {} are in the index",
            self.summary.pages,
            self.indexed_pages()
        );
        let pages_bytes = self.out.len_bytes();
        let sections = self.write_sections()?;
        if let Some(ext) = &mut self.ext {
            ext.drain(0)?;
            self.summary.ext_bytes = ext.len_bytes();
        }
        let table = Section::encode_all(&sections);
        let sections_offset = self.out.len_bytes();
        let footer_bytes = crate::format::FOOTER_BYTES as u64;
        self.summary.file_bytes = sections_offset + table.len() as u64 + footer_bytes;
        let footer = Footer {
            order: self.options.order,
            compression: self.options.compression,
            page_bytes: self.options.page_bytes,
            long_key_bytes: self.long_key_bytes as u16,
            summary: self.summary,
            pages_bytes,
            sections_offset,
            sections: sections.len() as u32,
        };
        self.out.append(&table)?;
        self.out.append(&footer.encode(&table))?;
        self.out.drain(0)?;
        debug_assert_eq!(
            self.out.written_bytes, self.summary.file_bytes,
            "the footer says another length than the file has"
        );
        debug_assert!(
            self.summary.ext_bytes <= self.summary.value_bytes,
            "{} bytes of long values, of {} of all",
            self.summary.ext_bytes,
            self.summary.value_bytes
        );
        let sinks = self.ext.into_iter().chain([self.out]).collect();
        Ok((self.summary, sinks))
    }

    /// Returns the number of pages in which a record begins, by the index.
    fn indexed_pages(&self) -> u64 {
        match &self.index {
            IndexBuilder::Hashed(index) => index.pages() as u64,
            IndexBuilder::Ordered(index) => index.len() as u64,
        }
    }

    fn write_sections(&mut self) -> Result<Vec<Section>> {
        let index = match std::mem::replace(&mut self.index, IndexBuilder::Ordered(<_>::default()))
        {
            IndexBuilder::Hashed(index) => index.finish(self.last_head).encode(),
            IndexBuilder::Ordered(index) if !index.is_writable() => {
                let what = "its keys are so long and so alike that the index exceeds 4 GiB: split the \
                            table into more partitions";
                return Err(RunError::refused(&self.out.path, what));
            }
            IndexBuilder::Ordered(index) => index.encode(),
        };
        let mut contents = vec![(SectionKind::Index, true, index)];
        if let Some(blocks) = &self.blocks {
            let words = blocks
                .blocks
                .iter()
                .flat_map(|block| [block.len_bytes, block.checksum]);
            let bytes = words.flat_map(u32::to_le_bytes).collect();
            contents.push((SectionKind::Blocks, true, bytes));
            contents.push((SectionKind::Dictionary, true, blocks.dictionary().to_vec()));
        }
        if let Some(filter) = self.filter.take() {
            contents.push((SectionKind::Filter, false, filter.finish().encode()));
        }
        contents.push((
            SectionKind::HashPrefix,
            true,
            self.options.hash_prefix.clone(),
        ));
        contents.push((
            SectionKind::Meta,
            false,
            std::mem::take(&mut self.options.meta),
        ));
        let mut sections = Vec::new();
        for (kind, required, bytes) in contents {
            sections.push(Section {
                kind: kind as u32,
                required,
                offset: self.out.len_bytes(),
                len_bytes: bytes.len() as u64,
                checksum: xxh3_64(&bytes),
            });
            self.out.append(&bytes)?;
        }
        Ok(sections)
    }
}
