//! Reads pages, mapped or not, compressed or not, and tracks which of them are trusted.
//!
//! A page of a mapped file is *trusted* once its checksum was compared since it was loaded into
//! memory. Trusted pages are read in place and without a check. [`Pages::forget_evicted`] removes
//! the trust from pages that the system has dropped from its cache. They are then checked again
//! when they are reloaded, and a caller that must not wait knows that it would have to.
//!
//! A merge writes the records that it reads under a new checksum. So it compares each page, trusted
//! or not ([`Pages::compare`]): a bit may have changed in memory since the page was trusted.

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::compress::{self, BlockReader};
use crate::error::{Result, RunError};
use crate::page::Page;
use forebay_io::ReadFile;
use forebay_io::raw::{Mapping, SYSTEM_PAGE_BYTES};

/// The bytes of a mapping that one query to the system covers.
const SWEEP_BYTES: usize = 64 << 20;

/// The bytes that a releasing scan releases at a time; a multiple of the huge page size.
const WINDOW_BYTES: usize = 2 << 20;

/// The pages of an open run.
#[derive(Debug)]
pub struct Pages {
    pub path: PathBuf,
    file: Arc<dyn ReadFile>,
    map: Option<Mapping>,
    page_bytes: usize,
    count: usize,
    /// Absent if pages are uncompressed: these are at multiples of their size.
    blocks: Option<(BlockReader, Blocks)>,
    trusted: Vec<AtomicU64>,
}

/// The positions of the stored pages of a compressed run.
#[derive(Debug, Default)]
pub struct Blocks {
    /// The end of each stored page.
    pub ends: Vec<u64>,
    /// The [`compress::checksum`] of each stored page.
    pub checksums: Vec<u32>,
}

/// The way to load a page that is not in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Alone, in one read of the device: its neighbours are not expected to be needed.
    Single,
    /// With many of the following pages, in huge pages if the system has them.
    Sequential,
}

/// A page's bytes, in place or copied.
pub type PageBytes<'a> = Cow<'a, [u8]>;

impl Pages {
    /// `blocks`: for compressed runs, the reader of blocks and the position of each page's block.
    pub fn new(
        path: PathBuf,
        file: Arc<dyn ReadFile>,
        page_bytes: usize,
        count: usize,
        blocks: Option<(BlockReader, Blocks)>,
    ) -> Result<Self> {
        let map = file.map().map_err(|e| RunError::io(&path, "map", e))?;
        let trusted = (0..count.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Ok(Self {
            path,
            file,
            map,
            page_bytes,
            count,
            blocks,
            trusted,
        })
    }

    pub fn count(&self) -> usize {
        self.count
    }

    #[inline]
    pub fn is_trusted(&self, page: usize) -> bool {
        let word = self
            .trusted
            .get(page / 64)
            .map_or(0, |word| word.load(Ordering::Relaxed));
        word >> (page % 64) & 1 == 1
    }

    /// Returns the bytes of a trusted page of a mapped, uncompressed run.
    #[inline]
    pub fn in_place(&self, page: usize) -> Option<&[u8]> {
        let map = self.map.as_ref()?;
        if !self.is_trusted(page) || self.blocks.is_some() {
            return None;
        }
        map.bytes()
            .get(page * self.page_bytes..(page + 1) * self.page_bytes)
    }

    /// Returns the bytes of a page, checked; waits for the device if it must.
    #[inline]
    pub fn get(&self, page: usize, access: Access) -> Result<PageBytes<'_>> {
        match self.in_place(page) {
            Some(bytes) => Ok(Cow::Borrowed(bytes)),
            None => self.fetch(page, access),
        }
    }

    /// Returns the bytes of a page whose checksum is compared now, trusted or not. A page that
    /// differs from the written one loses its trust, so that every reader gets the error.
    pub fn compare(&self, page: usize, access: Access) -> Result<PageBytes<'_>> {
        let Some(bytes) = self.in_place(page) else {
            return self.fetch(page, access);
        };
        if Page::new(bytes).checksum_matches(page as u64) {
            return Ok(Cow::Borrowed(bytes));
        }
        self.trusted[page / 64].fetch_and(!(1 << (page % 64)), Ordering::Relaxed);
        self.check_whole()?;
        Err(self.damaged(page, "its checksum does not match any more"))
    }

    /// Returns the bytes of a page, checked. Without `wait`, only if the system has it in memory.
    /// For an untrusted page the system is asked: this takes a fraction of a microsecond, once per
    /// page. Passing the look-up to another thread would cost a hundred times that.
    #[inline(never)]
    pub fn obtain(&self, page: usize, wait: bool) -> Result<Option<PageBytes<'_>>> {
        if wait || self.in_place(page).is_some() || self.is_resident(page) {
            self.get(page, Access::Single).map(Some)
        } else {
            Ok(None)
        }
    }

    fn is_resident(&self, page: usize) -> bool {
        let Some(map) = &self.map else { return false };
        let (start, end) = self.stored_range(page);
        let pages = map.residency(start as usize, (end - start) as usize);
        pages.is_ok_and(|pages| pages.iter().all(|page| page & 1 == 1))
    }

    /// Returns an error if the file was truncated since it was opened: later reads may be zeros.
    pub fn check_whole(&self) -> Result<()> {
        if self.has_end() {
            Ok(())
        } else {
            let what = "the file was cut short while it was in use";
            Err(RunError::damaged(&self.path, what))
        }
    }

    /// Returns whether no part of the file was found missing since it was opened. Between a
    /// truncation and the end of its system page there are zeros, which this does not detect. Bytes
    /// that may be such zeros are trusted only if the file [has its end](Self::has_end).
    #[inline]
    pub fn is_whole(&self) -> bool {
        self.map.as_ref().is_none_or(|map| !map.damaged())
    }

    /// Returns whether the file ends as runs do, and so was not truncated since it was opened.
    /// Unlike [`Pages::is_whole`], it reads the file's last byte, which may be in no cache.
    #[inline(never)]
    pub fn has_end(&self) -> bool {
        let Some(map) = &self.map else { return true };
        let last = std::hint::black_box(map.bytes()).last();
        last.is_none_or(|byte| *byte != 0) && !map.damaged()
    }

    #[cold]
    #[inline(never)]
    fn fetch(&self, page: usize, access: Access) -> Result<PageBytes<'_>> {
        let stored = self.fetch_stored(page, access)?;
        let bytes = match &self.blocks {
            None => stored,
            Some((reader, blocks)) => {
                let mut bytes = vec![0; self.page_bytes];
                let intact = compress::checksum(&stored) == blocks.checksums[page];
                if !intact || !reader.read(&stored, &mut bytes) {
                    return Err(self.damaged(page, "its compressed block is not what was written"));
                }
                Cow::Owned(bytes)
            }
        };
        if !Page::new(&bytes).checksum_matches(page as u64) {
            self.check_whole()?;
            return Err(self.damaged(page, "its checksum does not match"));
        }
        if self.map.is_some()
            && let Some(word) = self.trusted.get(page / 64)
        {
            word.fetch_or(1 << (page % 64), Ordering::Relaxed);
        }
        Ok(bytes)
    }

    /// Reads a stored page through the mapping if it is in memory or its neighbours are needed too.
    /// Else reads just its bytes, because a page fault would load megabytes of neighbours.
    fn fetch_stored(&self, page: usize, access: Access) -> Result<PageBytes<'_>> {
        let (start, end) = self.stored_range(page);
        if let Some(map) = &self.map
            && (access == Access::Sequential || self.is_resident(page))
        {
            let bytes = map.bytes().get(start as usize..end as usize);
            return bytes
                .map(Cow::Borrowed)
                .ok_or_else(|| self.damaged(page, "beyond the file"));
        }
        let mut bytes = vec![0; (end - start) as usize];
        let read = self.file.read_exact_at(&mut bytes, start);
        read.map_err(|e| RunError::io(&self.path, "read", e))?;
        Ok(Cow::Owned(bytes))
    }

    fn stored_range(&self, page: usize) -> (u64, u64) {
        debug_assert!(page < self.count, "page {page} of {}", self.count);
        match &self.blocks {
            None => (
                (page * self.page_bytes) as u64,
                ((page + 1) * self.page_bytes) as u64,
            ),
            Some((_, blocks)) => (
                if page == 0 { 0 } else { blocks.ends[page - 1] },
                blocks.ends[page],
            ),
        }
    }

    pub fn damaged(&self, page: usize, what: &str) -> RunError {
        RunError::damaged(&self.path, format!("page {page}: {what}"))
    }

    /// Removes the trust from pages that are no longer in memory; returns their number. Takes about
    /// a millisecond per gigabyte: call it from a background thread, every second or so.
    pub fn forget_evicted(&self) -> usize {
        let mut forgotten = 0;
        self.for_each_residency(|page, resident| {
            if !resident && self.is_trusted(page) {
                let bit = !(1 << (page % 64));
                self.trusted[page / 64].fetch_and(bit, Ordering::Relaxed);
                forgotten += 1;
            }
        });
        forgotten
    }

    /// Trusts the pages that are in memory. REQUIRES: this process has just written them, and the
    /// system accepted them without an error, so that the pages in memory are the written ones.
    pub fn trust_resident(&self) {
        self.for_each_residency(|page, resident| {
            if resident {
                self.trusted[page / 64].fetch_or(1 << (page % 64), Ordering::Relaxed);
            }
        });
    }

    /// Reports for each page of a mapped file whether it is in memory, according to the system.
    fn for_each_residency(&self, mut report: impl FnMut(usize, bool)) {
        let Some(map) = &self.map else { return };
        let stored_bytes = if self.count == 0 {
            0
        } else {
            self.stored_range(self.count - 1).1
        };
        let mut page = 0;
        for start in (0..stored_bytes as usize).step_by(SWEEP_BYTES) {
            let Ok(resident) = map.residency(start, SWEEP_BYTES) else {
                return;
            };
            let sweep_end = (start + SWEEP_BYTES) as u64;
            while page < self.count && self.stored_range(page).0 < sweep_end {
                let (from, to) = self.stored_range(page);
                let first = (from as usize).saturating_sub(start) / SYSTEM_PAGE_BYTES;
                let last = (to as usize - 1).saturating_sub(start) / SYSTEM_PAGE_BYTES;
                let last = last.min(resident.len().saturating_sub(1));
                let here = resident.get(first..=last).unwrap_or_default();
                report(page, here.iter().all(|page| page & 1 == 1));
                page += 1;
            }
        }
    }

    /// Releases the window of the mapping that ends with `page` to the system, once a window is
    /// full. The pages stay in the system's cache.
    pub fn release_before(&self, page: usize) {
        if let Some(map) = &self.map {
            let at = self.stored_range(page).0 as usize;
            let last = if page == 0 {
                0
            } else {
                self.stored_range(page - 1).0 as usize
            };
            if at / WINDOW_BYTES > last / WINDOW_BYTES {
                let end = at / WINDOW_BYTES * WINDOW_BYTES;
                map.release(end.saturating_sub(WINDOW_BYTES), end);
            }
        }
    }

    /// Releases the whole mapping to the system; the pages stay in its cache.
    pub fn release_all(&self) {
        if let Some(map) = &self.map {
            map.release(0, map.bytes().len());
        }
    }

    /// Returns the bytes in memory in addition to the file: the trust bits and the block ends.
    pub fn memory_bytes(&self) -> usize {
        8 * self.trusted.len()
            + self
                .blocks
                .as_ref()
                .map_or(0, |(_, blocks)| 12 * blocks.ends.len())
    }
}
