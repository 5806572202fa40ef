//! Compresses and decompresses pages (`docs/reference/run-format.md`, section 5).

use std::io;
use std::sync::{Mutex, PoisonError};

use xxhash_rust::xxh3::xxh3_64;
use zstd::bulk::{Compressor, Decompressor};

use crate::format::Compression;

const ZSTD_LEVEL: i32 = 3;
/// The number of a run's first pages on which a Zstandard dictionary is trained.
const TRAINING_PAGES: usize = 128;
const DICTIONARY_BYTES: usize = 16 * 1024;

/// A stored page. It needs its own checksum beside the page's. Some bit flips in a compressed block
/// do not change its output, and a damaged block should not reach the decompressor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompressedBlock {
    pub len_bytes: u32,
    pub checksum: u32,
}

/// Returns the low half of the stored bytes' XXH3-64.
pub fn checksum(block: &[u8]) -> u32 {
    xxh3_64(block) as u32
}

/// A writer that turns pages into stored blocks, in order. With Zstandard it holds the first pages
/// back until there are enough of them to train a dictionary.
pub struct BlockWriter {
    compression: Compression,
    page_bytes: usize,
    waiting: Vec<u8>,
    zstd: Option<Compressor<'static>>,
    dictionary: Vec<u8>,
    /// The stored pages so far.
    pub blocks: Vec<CompressedBlock>,
}

impl BlockWriter {
    pub fn new(compression: Compression, page_bytes: usize) -> Self {
        Self {
            compression,
            page_bytes,
            waiting: Vec::new(),
            zstd: None,
            dictionary: Vec::new(),
            blocks: Vec::new(),
        }
    }

    /// Adds `pages`, consecutive whole pages; appends the blocks that can be stored already to
    /// `out`.
    pub fn add(&mut self, pages: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        if self.compression == Compression::Zstd && self.zstd.is_none() {
            self.waiting.extend_from_slice(pages);
            if self.waiting.len() < TRAINING_PAGES * self.page_bytes {
                return Ok(());
            }
            return self.finish(out);
        }
        debug_assert!(
            self.waiting.is_empty(),
            "{} bytes of pages wait that come before these",
            self.waiting.len()
        );
        for page in pages.chunks(self.page_bytes) {
            self.store(page, out)?;
        }
        Ok(())
    }

    /// Appends the pages that were held back.
    pub fn finish(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let pages = std::mem::take(&mut self.waiting);
        let sizes = vec![self.page_bytes; pages.len() / self.page_bytes];
        // If the samples are too few or too uniform, training fails and there is no dictionary.
        let trained = zstd::dict::from_continuous(&pages, &sizes, DICTIONARY_BYTES);
        self.dictionary = trained.unwrap_or_default();
        self.zstd = Some(Compressor::with_dictionary(ZSTD_LEVEL, &self.dictionary)?);
        for page in pages.chunks(self.page_bytes) {
            self.store(page, out)?;
        }
        Ok(())
    }

    pub fn dictionary(&self) -> &[u8] {
        &self.dictionary
    }

    /// Stores a page; one that does not shrink is stored uncompressed.
    fn store(&mut self, page: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        debug_assert_eq!(page.len(), self.page_bytes, "a part of a page is stored");
        let packed = match &mut self.zstd {
            Some(zstd) => zstd.compress(page)?,
            None => lz4_flex::block::compress(page),
        };
        let block = if packed.len() < page.len() {
            &packed[..]
        } else {
            page
        };
        out.extend_from_slice(block);
        self.blocks.push(CompressedBlock {
            len_bytes: block.len() as u32,
            checksum: checksum(block),
        });
        Ok(())
    }
}

/// A reader that turns stored blocks back into pages; any number of threads may use it.
pub struct BlockReader {
    compression: Compression,
    dictionary: Vec<u8>,
    /// Decompression contexts not in use.
    pool: Mutex<Vec<Decompressor<'static>>>,
}

impl std::fmt::Debug for BlockReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BlockReader({:?})", self.compression)
    }
}

impl BlockReader {
    pub fn new(compression: Compression, dictionary: Vec<u8>) -> Self {
        Self {
            compression,
            dictionary,
            pool: Mutex::new(Vec::new()),
        }
    }

    /// Fills `page` from its stored `block`; `false` if the block is damaged.
    pub fn read(&self, block: &[u8], page: &mut [u8]) -> bool {
        if block.len() == page.len() {
            page.copy_from_slice(block);
            return true;
        }
        match self.compression {
            Compression::None => false,
            Compression::Lz4 => {
                lz4_flex::block::decompress_into(block, page).is_ok_and(|len| len == page.len())
            }
            Compression::Zstd => self
                .read_zstd(block, page)
                .is_ok_and(|len| len == page.len()),
        }
    }

    fn read_zstd(&self, block: &[u8], page: &mut [u8]) -> io::Result<usize> {
        let pooled = self
            .pool
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop();
        let mut zstd = match pooled {
            Some(zstd) => zstd,
            None => Decompressor::with_dictionary(&self.dictionary)?,
        };
        let result = zstd.decompress_to_buffer(block, page);
        self.pool
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(zstd);
        result
    }
}
