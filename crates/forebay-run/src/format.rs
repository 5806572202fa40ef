//! Constants, the footer and the section table of a run file.
//!
//! `docs/reference/run-format.md`, sections 2 and 6, specifies them.

use std::path::Path;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::content::ContentSum;
use crate::error::{Result, RunError};

/// The version that this code writes and the only one it reads.
pub const FORMAT_VERSION: u32 = 1;
/// Bounds of [`RunOptions::page_bytes`], which is a power of two.
pub const MIN_PAGE_BYTES: u32 = 4096;
pub const MAX_PAGE_BYTES: u32 = 32768;
/// The least ratio of a page's bytes to its run's longest key. A payload may continue from the page
/// before in half a page; a key and its head still fit beside it.
const PAGE_OF_KEYS: usize = 4;
/// The longest key, in bytes, of tables of either kind; the shortest is 1.
pub const MAX_KEY_BYTES: usize = MAX_PAGE_BYTES as usize / PAGE_OF_KEYS;
/// Keys of up to so many bytes fit pages of any size.
pub const SHORT_KEY_BYTES: usize = MIN_PAGE_BYTES as usize / PAGE_OF_KEYS;
/// The footer's length in bytes.
pub const FOOTER_BYTES: usize = 128;
const MAGIC: &[u8; 8] = b"FOREBAY\x01";

/// The sort order of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// By hash64, then key.
    Hashed,
    /// By key.
    Ordered,
}

/// The compression of pages.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// Uncompressed, at fixed offsets: the fastest to read.
    #[default]
    None,
    /// Each page compressed by LZ4.
    Lz4,
    /// Each page compressed by Zstandard with a dictionary trained on the run's first pages.
    Zstd,
}

/// The options for writing a run.
#[derive(Debug, Clone)]
pub struct RunOptions {
    pub order: Order,
    /// The size of a page: a power of two from 4,096 to 32,768.
    pub page_bytes: u32,
    pub compression: Compression,
    /// The prefix of every key for hashing: [`crate::hash::KeyHasher::new`].
    pub hash_prefix: Vec<u8>,
    /// Stored unchanged in the file, for programs that read the run without its manifest.
    pub meta: Vec<u8>,
    /// Write a filter for about so many records, ideally at least as many as there will be. Runs
    /// that are looked up together with others need one; a single run does not.
    pub filter_records: Option<u64>,
    /// Start the write-back to the device while the run grows, if it is to be durable soon.
    pub write_back: bool,
}

impl RunOptions {
    /// Returns options with pages of 4 KiB, or of 16 KiB if they are compressed.
    pub fn new(order: Order, compression: Compression, hash_prefix: &[u8]) -> Self {
        let page_bytes = if compression == Compression::None {
            4096
        } else {
            16384
        };
        let hash_prefix = hash_prefix.to_vec();
        Self {
            order,
            page_bytes,
            compression,
            hash_prefix,
            meta: Vec::new(),
            filter_records: None,
            write_back: false,
        }
    }

    /// Chooses a page size for records of so many bytes (key and value, on average). Most records
    /// are then in one page, and pages have little empty space: at least 16 records per page, if
    /// the largest page allows it.
    pub fn for_records_of(mut self, record_bytes: u64) -> Self {
        let wanted = (record_bytes * 16).min(u64::from(MAX_PAGE_BYTES)) as u32;
        self.page_bytes = wanted
            .next_power_of_two()
            .clamp(self.page_bytes, MAX_PAGE_BYTES);
        self
    }

    /// Chooses pages that can hold keys of up to so many bytes.
    pub fn for_keys_of(mut self, longest_key: usize) -> Self {
        let wanted = (longest_key.min(MAX_KEY_BYTES) * PAGE_OF_KEYS) as u32;
        self.page_bytes = self.page_bytes.max(wanted.next_power_of_two());
        self
    }

    /// Returns the length of the longest key that the pages can hold.
    pub(crate) fn longest_key(&self) -> usize {
        self.page_bytes as usize / PAGE_OF_KEYS
    }
}

/// Counts and sums of a run.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunSummary {
    pub records: u64,
    /// The sum of the keys' lengths.
    pub key_bytes: u64,
    /// The sum of the values' lengths.
    pub value_bytes: u64,
    pub content: ContentSum,
    /// The length of the `.run` file.
    pub file_bytes: u64,
    /// The length of the `.ext` file; 0 if there is none.
    pub ext_bytes: u64,
    pub pages: u64,
}

/// A part of the file after the pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum SectionKind {
    Index = 1,
    Blocks = 2,
    Dictionary = 3,
    Meta = 4,
    HashPrefix = 5,
    Filter = 6,
}

/// The position of a section. Unknown kinds are skipped unless `required` is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Section {
    pub kind: u32,
    pub required: bool,
    pub offset: u64,
    pub len_bytes: u64,
    pub checksum: u64,
}

const SECTION_BYTES: usize = 32;

/// The last 128 bytes of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Footer {
    pub order: Order,
    pub compression: Compression,
    pub page_bytes: u32,
    /// The length of the longest key if it is above [`SHORT_KEY_BYTES`], else 0.
    pub long_key_bytes: u16,
    pub summary: RunSummary,
    /// The bytes of all stored pages: the sections begin here.
    pub pages_bytes: u64,
    pub sections_offset: u64,
    pub sections: u32,
}

impl Footer {
    pub fn encode(&self, section_table: &[u8]) -> [u8; FOOTER_BYTES] {
        let mut out = Vec::with_capacity(FOOTER_BYTES);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        out.push(match self.order {
            Order::Hashed => 0,
            Order::Ordered => 1,
        });
        out.push(match self.compression {
            Compression::None => 0,
            Compression::Lz4 => 1,
            Compression::Zstd => 2,
        });
        out.extend_from_slice(&self.long_key_bytes.to_le_bytes());
        out.extend_from_slice(&self.page_bytes.to_le_bytes());
        out.extend_from_slice(&self.sections.to_le_bytes());
        let summary = &self.summary;
        for word in [
            summary.records,
            summary.key_bytes,
            summary.value_bytes,
            summary.content.0,
            summary.pages,
            summary.file_bytes,
            summary.ext_bytes,
            self.pages_bytes,
            self.sections_offset,
            xxh3_64(section_table),
        ] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        out.resize(FOOTER_BYTES - 16, 0);
        let checksum = xxh3_64(&out);
        out.extend_from_slice(&checksum.to_le_bytes());
        out.extend_from_slice(MAGIC);
        let mut footer = [0; FOOTER_BYTES];
        footer.copy_from_slice(&out);
        footer
    }

    /// Decodes the footer of the file `path` of `file_bytes`. The second value is the expected
    /// checksum of the section table.
    pub fn decode(
        path: &Path,
        file_bytes: u64,
        footer: &[u8; FOOTER_BYTES],
    ) -> Result<(Self, u64)> {
        let damaged = |what: &str| RunError::damaged(path, format!("footer: {what}"));
        if &footer[FOOTER_BYTES - 8..] != MAGIC || &footer[..8] != MAGIC {
            return Err(damaged(
                "not a run, or cut short (the closing mark is missing)",
            ));
        }
        if word64(footer, FOOTER_BYTES - 16) != xxh3_64(&footer[..FOOTER_BYTES - 16]) {
            return Err(damaged("checksum does not match"));
        }
        let version = word32(footer, 8);
        if version != FORMAT_VERSION {
            let what = format!("run format version {version}, this forebay reads {FORMAT_VERSION}");
            return Err(RunError::Unsupported {
                path: path.to_path_buf(),
                what,
            });
        }
        let unsupported = |what: &str, code: u8| RunError::Unsupported {
            path: path.to_path_buf(),
            what: format!("unknown {what} {code}"),
        };
        let order = match footer[12] {
            0 => Order::Hashed,
            1 => Order::Ordered,
            code => return Err(unsupported("order", code)),
        };
        let compression = match footer[13] {
            0 => Compression::None,
            1 => Compression::Lz4,
            2 => Compression::Zstd,
            code => return Err(unsupported("compression", code)),
        };
        let summary = RunSummary {
            records: word64(footer, 24),
            key_bytes: word64(footer, 32),
            value_bytes: word64(footer, 40),
            content: ContentSum(word64(footer, 48)),
            pages: word64(footer, 56),
            file_bytes: word64(footer, 64),
            ext_bytes: word64(footer, 72),
        };
        let decoded = Footer {
            order,
            compression,
            page_bytes: word32(footer, 16),
            long_key_bytes: u16::from_le_bytes([footer[14], footer[15]]),
            sections: word32(footer, 20),
            summary,
            pages_bytes: word64(footer, 80),
            sections_offset: word64(footer, 88),
        };
        decoded.check(file_bytes).map_err(|what| damaged(&what))?;
        Ok((decoded, word64(footer, 96)))
    }

    fn check(&self, file_bytes: u64) -> Result<(), String> {
        if self.summary.file_bytes != file_bytes {
            let written = self.summary.file_bytes;
            return Err(format!(
                "the file has {file_bytes} bytes, {written} were written"
            ));
        }
        let (page, pages) = (self.page_bytes, self.summary.pages);
        if !page.is_power_of_two() || !(MIN_PAGE_BYTES..=MAX_PAGE_BYTES).contains(&page) {
            return Err(format!("page size {page}"));
        }
        let key = self.long_key_bytes;
        if usize::from(key) * PAGE_OF_KEYS > page as usize {
            return Err(format!("keys of {key} bytes in pages of {page}"));
        }
        let fixed = self.compression == Compression::None;
        if pages > u64::from(u32::MAX)
            || self.pages_bytes > file_bytes
            || (fixed && pages.checked_mul(u64::from(page)) != Some(self.pages_bytes))
        {
            return Err(format!("{pages} pages in {} bytes", self.pages_bytes));
        }
        let table = u64::from(self.sections) * SECTION_BYTES as u64 + FOOTER_BYTES as u64;
        if self.sections_offset.checked_add(table) != Some(file_bytes) {
            return Err("the section table does not end at the footer".into());
        }
        Ok(())
    }
}

impl Section {
    pub fn encode_all(sections: &[Section]) -> Vec<u8> {
        let mut out = Vec::with_capacity(sections.len() * SECTION_BYTES);
        for section in sections {
            out.extend_from_slice(&section.kind.to_le_bytes());
            out.extend_from_slice(&u32::from(section.required).to_le_bytes());
            out.extend_from_slice(&section.offset.to_le_bytes());
            out.extend_from_slice(&section.len_bytes.to_le_bytes());
            out.extend_from_slice(&section.checksum.to_le_bytes());
        }
        out
    }

    /// Decodes the table; the caller has compared its checksum.
    pub fn decode_all(path: &Path, footer: &Footer, table: &[u8]) -> Result<Vec<Section>> {
        let mut sections = Vec::new();
        for entry in table.chunks_exact(SECTION_BYTES) {
            let section = Section {
                kind: word32(entry, 0),
                required: word32(entry, 4) != 0,
                offset: word64(entry, 8),
                len_bytes: word64(entry, 16),
                checksum: word64(entry, 24),
            };
            let end = section.offset.checked_add(section.len_bytes);
            if end.is_none_or(|end| end > footer.sections_offset) {
                return Err(RunError::damaged(
                    path,
                    "section table: a section beyond the file",
                ));
            }
            if section.required && !(1..=6).contains(&section.kind) {
                let what = format!("a section of unknown kind {}", section.kind);
                return Err(RunError::Unsupported {
                    path: path.to_path_buf(),
                    what,
                });
            }
            sections.push(section);
        }
        Ok(sections)
    }
}

/// Returns the little-endian word at `at`. REQUIRES: `bytes` contains it.
pub(crate) fn word64(bytes: &[u8], at: usize) -> u64 {
    bytes[at..]
        .first_chunk()
        .map_or(0, |word| u64::from_le_bytes(*word))
}

pub(crate) fn word32(bytes: &[u8], at: usize) -> u32 {
    bytes[at..]
        .first_chunk()
        .map_or(0, |word| u32::from_le_bytes(*word))
}
