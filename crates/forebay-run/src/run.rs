//! An open run: its footer, its index, point look-ups.

use std::borrow::Cow;
use std::ops::{Bound, Range};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64;

use crate::compress::BlockReader;
use crate::error::{Result, RunError};
use crate::filter::{Filter, filter_hash};
use crate::format::{
    Compression, FOOTER_BYTES, Footer, Order, RunSummary, SHORT_KEY_BYTES, Section, SectionKind,
    word32, word64,
};
use crate::hash::KeyHasher;
use crate::index::{HashIndex, KeyIndex};
use crate::page::{Glance, Page, PageResult, Slot};
use crate::pages::{Blocks, Pages};
use crate::record::FoundRecord;
use crate::scan::{Position, ScanRange};
use crate::writer::ext_path;
use forebay_io::{Disk, ReadFile};

#[derive(Debug)]
pub(crate) enum Index {
    Hashed(HashIndex),
    Ordered(KeyIndex),
}

/// An open, immutable run. Cheap to open: only the footer and the index are read.
#[derive(Debug)]
pub struct Run {
    path: PathBuf,
    footer: Footer,
    hasher: KeyHasher,
    meta: Vec<u8>,
    pub(crate) index: Index,
    pub(crate) pages: Pages,
    filter: Option<Filter>,
    ext: Option<Arc<dyn ReadFile>>,
}

/// The result of a look-up that must not wait for the device.
#[derive(Debug, PartialEq, Eq)]
pub enum Lookup<'a> {
    Found(FoundRecord<'a>),
    Absent,
    /// The answer is in a page (or a large value) that is not known to be in memory: call
    /// [`Run::get`] from a thread that may wait.
    NotResident,
}

impl<'a> Lookup<'a> {
    /// Returns the record found, if any.
    #[inline]
    pub fn found(self) -> Option<FoundRecord<'a>> {
        match self {
            Lookup::Found(found) => Some(found),
            Lookup::Absent | Lookup::NotResident => None,
        }
    }
}

impl Run {
    /// Opens the run at `path`. Errors: the file is missing, cut, damaged in footer or index, or of
    /// an unknown kind.
    pub fn open(disk: &dyn Disk, path: &Path) -> Result<Self> {
        let file = disk.open(path).map_err(|e| RunError::io(path, "open", e))?;
        Self::open_file(disk, path, file)
    }

    /// Opens the run after asking the system to drop it from its cache, so that the next reads
    /// return the data on the device. Used to read a run back after writing it.
    pub fn open_uncached(disk: &dyn Disk, path: &Path) -> Result<Self> {
        let file = disk.open(path).map_err(|e| RunError::io(path, "open", e))?;
        file.drop_cache();
        Self::open_file(disk, path, file)
    }

    fn open_file(disk: &dyn Disk, path: &Path, file: Arc<dyn ReadFile>) -> Result<Self> {
        let (footer, sections) = read_footer(path, &*file)?;
        let section = |kind| read_section(path, &*file, &sections, kind);
        let damaged = |what| RunError::damaged(path, what);
        let count = footer.summary.pages as usize;
        let index = section(SectionKind::Index)?;
        let index = match footer.order {
            Order::Hashed => Index::Hashed(HashIndex::decode(&index, count).map_err(damaged)?),
            Order::Ordered => Index::Ordered(KeyIndex::decode(&index, count).map_err(damaged)?),
        };
        let blocks = if footer.compression == Compression::None {
            None
        } else {
            let blocks = decode_blocks(&section(SectionKind::Blocks)?, &footer).map_err(damaged)?;
            let dictionary = section(SectionKind::Dictionary)?;
            Some((BlockReader::new(footer.compression, dictionary), blocks))
        };
        let hasher = KeyHasher::new(&section(SectionKind::HashPrefix)?);
        let meta = section(SectionKind::Meta)?;
        let has_filter = sections
            .iter()
            .any(|section| section.kind == SectionKind::Filter as u32);
        let filter = has_filter
            .then(|| section(SectionKind::Filter))
            .transpose()?;
        let filter = filter.map(|bytes| Filter::decode(&bytes)).transpose();
        let filter = filter.map_err(damaged)?;
        let page_bytes = footer.page_bytes as usize;
        let pages = Pages::new(path.to_path_buf(), file, page_bytes, count, blocks)?;
        let ext = open_ext(disk, path, &footer)?;
        Ok(Self {
            path: path.to_path_buf(),
            footer,
            hasher,
            meta,
            index,
            pages,
            filter,
            ext,
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn order(&self) -> Order {
        self.footer.order
    }

    pub fn compression(&self) -> Compression {
        self.footer.compression
    }

    pub fn page_bytes(&self) -> u32 {
        self.footer.page_bytes
    }

    /// Returns a length that no key of the run exceeds.
    pub fn longest_key(&self) -> usize {
        usize::from(self.footer.long_key_bytes).max(SHORT_KEY_BYTES)
    }

    /// Returns the counts and sums that the writer recorded.
    pub fn summary(&self) -> &RunSummary {
        &self.footer.summary
    }

    /// Returns the hasher of this run's keys.
    pub fn hasher(&self) -> &KeyHasher {
        &self.hasher
    }

    /// Returns the metadata that the writer was given.
    pub fn meta(&self) -> &[u8] {
        &self.meta
    }

    /// Returns the bytes in memory in addition to the mapped file: index, filter, trust bits, block
    /// ends.
    pub fn memory_bytes(&self) -> usize {
        let index = match &self.index {
            Index::Hashed(index) => index.memory_bytes(),
            Index::Ordered(index) => index.memory_bytes(),
        };
        let filter = self.filter.as_ref().map_or(0, Filter::memory_bytes);
        index + filter + self.pages.memory_bytes()
    }

    /// Returns whether the run has a filter, without which [`Run::may_hold`] excludes nothing.
    #[inline]
    pub fn has_filter(&self) -> bool {
        self.filter.is_some()
    }

    /// Returns whether the run may hold the key of this hash, which is its hash64 or, in ordered
    /// runs, its [`filter_hash`]. Touches no page. Without a filter it may hold every key.
    #[inline]
    pub fn may_hold(&self, hash: u64) -> bool {
        match &self.filter {
            Some(filter) => filter.may_hold(hash),
            None => true,
        }
    }

    /// Does [`Run::may_hold`] for a caller that has the key and, in hashed runs, its hash64.
    #[inline]
    pub fn may_hold_key(&self, hash: u64, key: &[u8]) -> bool {
        match (&self.filter, self.order()) {
            (None, _) => true,
            (Some(filter), Order::Hashed) => filter.may_hold(hash),
            (Some(filter), Order::Ordered) => filter.may_hold(filter_hash(key)),
        }
    }

    /// Returns the keys that divide an ordered run into pages, rising: each is above all keys of
    /// the pages before it. Empty for hashed runs.
    pub fn separators(&self) -> impl Iterator<Item = &[u8]> {
        let index = match &self.index {
            Index::Hashed(_) => None,
            Index::Ordered(index) => Some(index),
        };
        index
            .into_iter()
            .flat_map(|index| (1..index.len()).map(|page| index.separator(page)))
    }

    /// Returns the approximate number of pages of an ordered run with keys from `from` up to `to`.
    pub fn pages_between(&self, from: &[u8], to: Option<&[u8]>) -> u64 {
        let Index::Ordered(index) = &self.index else {
            return 0;
        };
        let end = to.map_or(index.len(), |to| index.page(to));
        end.saturating_sub(index.page(from)) as u64
    }

    /// Returns the approximate number of pages of a range's records.
    pub fn pages_in(&self, range: &ScanRange) -> u64 {
        let page = |at: &Position| match &self.index {
            Index::Hashed(index) => index.first_page(at.hash),
            Index::Ordered(index) => index.page(&at.key),
        };
        let end = |end: &Bound<Position>| match end {
            Bound::Included(at) | Bound::Excluded(at) => Some(page(at) as u64),
            Bound::Unbounded => None,
        };
        let from = end(&range.from).unwrap_or(0);
        let to = end(&range.to).unwrap_or(self.summary().pages);
        to.saturating_sub(from)
    }

    /// Releases the pages of the mapped file to the system, which keeps them in its cache. They no
    /// longer count as memory of this process, until they are read again.
    pub fn release_mapped(&self) {
        self.pages.release_all();
    }

    /// Marks the pages that are in memory as checked. REQUIRES: this process has just written the
    /// run, and synced it without an error.
    pub fn trust_written(&self) {
        self.pages.trust_resident();
    }

    /// Clears the check marks of pages that are no longer in memory; returns their number. Takes
    /// about a millisecond per gigabyte: call it from a background thread, every second or so.
    pub fn forget_evicted(&self) -> usize {
        self.pages.forget_evicted()
    }

    /// Returns the record of `key`, waiting for the device if it must. In hashed order `hash` is
    /// the key's hash64; in ordered order it is ignored.
    #[inline]
    pub fn get(&self, hash: u64, key: &[u8]) -> Result<Option<FoundRecord<'_>>> {
        self.visit(hash, key, |found| found)
    }

    /// Does [`Run::get`] but passes the record to a function instead of returning it: a few
    /// nanoseconds less.
    #[inline]
    pub fn visit<'a, R>(
        &'a self,
        hash: u64,
        key: &[u8],
        visit: impl FnOnce(FoundRecord<'a>) -> R,
    ) -> Result<Option<R>> {
        match self.look(hash, key) {
            Glance::Whole(tag, payload) => Ok(Some(visit(FoundRecord::plain(tag, payload)))),
            Glance::Absent => Ok(None),
            Glance::Unsure => {
                let found = self.search(hash, key, true)?;
                Ok(found.found().map(visit))
            }
        }
    }

    /// Does [`Run::get`] without ever waiting for the device.
    #[inline]
    pub fn try_get(&self, hash: u64, key: &[u8]) -> Result<Lookup<'_>> {
        match self.look(hash, key) {
            Glance::Whole(tag, payload) => Ok(Lookup::Found(FoundRecord::plain(tag, payload))),
            Glance::Absent => Ok(Lookup::Absent),
            Glance::Unsure => self.search(hash, key, false),
        }
    }

    /// Returns the pages that a look-up searches, the last first.
    #[inline]
    fn candidate_pages(&self, hash: u64, key: &[u8]) -> Range<usize> {
        match &self.index {
            Index::Hashed(index) => index.pages(hash),
            Index::Ordered(index) if index.is_empty() => 0..0,
            Index::Ordered(index) => {
                let page = index.page(key);
                page..page + 1
            }
        }
    }

    /// Returns whether a look-up of the key searches `page`.
    pub(crate) fn covers(&self, page: usize, hash: u64, key: &[u8]) -> bool {
        self.candidate_pages(hash, key).contains(&page)
    }

    /// Returns the result of a search in a page in memory.
    #[inline(always)]
    fn look(&self, hash: u64, key: &[u8]) -> Glance<'_> {
        if let Index::Hashed(index) = &self.index {
            let pages = index.pages(hash);
            if pages.len() == 1
                && let Some(bytes) = self.pages.in_place(pages.start)
                && let page = Page::new(bytes)
                && let Ok(candidates) = page.candidates(hash as u8)
            {
                return self.glance(&page, candidates, key);
            }
        }
        Glance::Unsure
    }

    #[inline(always)]
    pub(crate) fn glance<'p>(
        &self,
        page: &Page<'p>,
        candidates: (u64, usize),
        key: &[u8],
    ) -> Glance<'p> {
        let seen = page.glance(candidates, key);
        let may_be_cut = match seen {
            Glance::Whole(_, payload) => ends_in_zero(payload),
            Glance::Absent => true,
            Glance::Unsure => false,
        };
        if self.pages.is_whole() && (!may_be_cut || self.pages.has_end()) {
            seen
        } else {
            Glance::Unsure
        }
    }

    /// Does a look-up of the general case: pages not yet in memory, several pages, values outside
    /// of the page, damage.
    #[inline(never)]
    pub(crate) fn search(&self, hash: u64, key: &[u8], wait: bool) -> Result<Lookup<'_>> {
        for page in self.candidate_pages(hash, key).rev() {
            let found = match self.pages.obtain(page, wait)? {
                None => return Ok(Lookup::NotResident),
                Some(Cow::Borrowed(bytes)) => self.look_in_page(page, bytes, hash, key, wait)?,
                Some(Cow::Owned(bytes)) => own(self.look_in_page(page, &bytes, hash, key, wait)?),
            };
            if found != Lookup::Absent {
                return Ok(found);
            }
        }
        Ok(Lookup::Absent)
    }

    fn look_in_page<'p>(
        &self,
        number: usize,
        bytes: &'p [u8],
        hash: u64,
        key: &[u8],
        wait: bool,
    ) -> Result<Lookup<'p>> {
        let damaged = |what| self.pages.damaged(number, what);
        let page = Page::new(bytes);
        let found = match &self.index {
            Index::Hashed(_) => page.find_hashed(hash as u8, key),
            Index::Ordered(index) => find_ordered(&page, key, index.share(number, key)),
        };
        let mut may_be_cut = true;
        let answer = match found.map_err(damaged)? {
            None => Lookup::Absent,
            Some(slot) => match self.payload(number, &slot, wait)? {
                None => Lookup::NotResident,
                Some(payload) => {
                    may_be_cut = ends_in_zero(&payload);
                    Lookup::Found(FoundRecord::new(slot.tag, payload).map_err(damaged)?)
                }
            },
        };
        if may_be_cut || !self.pages.is_whole() {
            self.pages.check_whole()?;
        }
        Ok(answer)
    }

    /// Returns the whole payload of a record: in its page, partly in the next, or in the `.ext`
    /// file. `None`: it would have to wait.
    #[inline]
    pub(crate) fn payload<'p>(
        &self,
        page: usize,
        slot: &Slot<'p>,
        wait: bool,
    ) -> Result<Option<Cow<'p, [u8]>>> {
        if !slot.is_extent() && !slot.spills() {
            return Ok(Some(Cow::Borrowed(slot.payload)));
        }
        self.distant_payload(page, slot, wait)
            .map(|payload| payload.map(Cow::Owned))
    }

    #[inline(never)]
    fn distant_payload(&self, page: usize, slot: &Slot<'_>, wait: bool) -> Result<Option<Vec<u8>>> {
        let mut payload = slot.payload.to_vec();
        if slot.spills() {
            let next = page + 1;
            if next >= self.pages.count() {
                return Err(self
                    .pages
                    .damaged(page, "a value that continues after the last page"));
            }
            let Some(bytes) = self.pages.obtain(next, wait)? else {
                return Ok(None);
            };
            let spilled = Page::new(&bytes).spilled(self.order() == Order::Hashed);
            payload.extend_from_slice(spilled.map_err(|what| self.pages.damaged(next, what))?);
        }
        if !slot.is_extent() {
            return Ok(Some(payload));
        }
        if !wait {
            return Ok(None);
        }
        self.read_extent(page, &payload).map(Some)
    }

    fn read_extent(&self, page: usize, reference: &[u8]) -> Result<Vec<u8>> {
        let damaged = |what| self.pages.damaged(page, what);
        if reference.len() != 24 {
            return Err(damaged("a malformed reference to a large value"));
        }
        let (offset, len) = (word64(reference, 0), word64(reference, 8));
        let ext = self
            .ext
            .as_ref()
            .ok_or_else(|| damaged("a large value, but no .ext file"))?;
        if offset
            .checked_add(len)
            .is_none_or(|end| end > self.footer.summary.ext_bytes)
        {
            return Err(damaged("a reference beyond the .ext file"));
        }
        let mut value = vec![0; len as usize];
        let path = ext_path(&self.path);
        ext.read_exact_at(&mut value, offset)
            .map_err(|e| RunError::io(&path, "read", e))?;
        if xxh3_64(&value) != word64(reference, 16) {
            let place = format!("the {len} bytes at {offset}: their checksum does not match");
            return Err(RunError::damaged(&path, place));
        }
        Ok(value)
    }
}

/// Returns whether a payload may be truncated. After a truncation all bytes read as zeros, and a
/// value's last byte is the first that is lost. So the caller checks a file's mark after this. If
/// it saw a zero, or no record, it also checks the file's end.
#[inline(always)]
fn ends_in_zero(payload: &[u8]) -> bool {
    std::hint::black_box(payload.last().copied()).is_none_or(|byte| byte == 0)
}

fn own(lookup: Lookup<'_>) -> Lookup<'static> {
    match lookup {
        Lookup::Found(found) => Lookup::Found(found.into_owned()),
        Lookup::Absent => Lookup::Absent,
        Lookup::NotResident => Lookup::NotResident,
    }
}

fn find_ordered<'p>(page: &Page<'p>, key: &[u8], share: f32) -> PageResult<Option<Slot<'p>>> {
    page.prefetch_near(share);
    match page.lower_bound(key, share)? {
        (index, true) => page.slot(index, page.records()?, false).map(Some),
        (_, false) => Ok(None),
    }
}

fn read_footer(path: &Path, file: &dyn ReadFile) -> Result<(Footer, Vec<Section>)> {
    let file_bytes = file.len_bytes();
    let Some(footer_offset) = file_bytes.checked_sub(FOOTER_BYTES as u64) else {
        return Err(RunError::damaged(
            path,
            "footer: the file is too short to have one",
        ));
    };
    let read = |buffer: &mut [u8], offset| {
        file.read_exact_at(buffer, offset)
            .map_err(|e| RunError::io(path, "read", e))
    };
    let mut footer = [0; FOOTER_BYTES];
    read(&mut footer, footer_offset)?;
    let (footer, table_checksum) = Footer::decode(path, file_bytes, &footer)?;
    let mut table = vec![0; (footer_offset - footer.sections_offset) as usize];
    read(&mut table, footer.sections_offset)?;
    if xxh3_64(&table) != table_checksum {
        return Err(RunError::damaged(
            path,
            "section table: its checksum does not match",
        ));
    }
    let sections = Section::decode_all(path, &footer, &table)?;
    Ok((footer, sections))
}

fn read_section(
    path: &Path,
    file: &dyn ReadFile,
    sections: &[Section],
    kind: SectionKind,
) -> Result<Vec<u8>> {
    let damaged = |what| RunError::damaged(path, format!("section {kind:?}: {what}"));
    let section = sections.iter().find(|section| section.kind == kind as u32);
    let section = section.ok_or_else(|| damaged("it is missing"))?;
    let mut bytes = vec![0; section.len_bytes as usize];
    let read = file.read_exact_at(&mut bytes, section.offset);
    read.map_err(|e| RunError::io(path, "read", e))?;
    if xxh3_64(&bytes) != section.checksum {
        return Err(damaged("its checksum does not match"));
    }
    Ok(bytes)
}

fn decode_blocks(bytes: &[u8], footer: &Footer) -> Result<Blocks, &'static str> {
    let (entries, rest) = bytes.as_chunks::<8>();
    if !rest.is_empty() || entries.len() as u64 != footer.summary.pages {
        return Err("section Blocks: not one entry a page");
    }
    let mut end = 0u64;
    let mut blocks = Blocks::default();
    for entry in entries {
        let len_bytes = word32(entry, 0);
        if len_bytes == 0 || len_bytes > footer.page_bytes {
            return Err("section Blocks: a block's length is out of range");
        }
        end += u64::from(len_bytes);
        blocks.ends.push(end);
        blocks.checksums.push(word32(entry, 4));
    }
    if end != footer.pages_bytes {
        return Err("section Blocks: the lengths do not add up");
    }
    Ok(blocks)
}

fn open_ext(disk: &dyn Disk, run: &Path, footer: &Footer) -> Result<Option<Arc<dyn ReadFile>>> {
    let ext_bytes = footer.summary.ext_bytes;
    if ext_bytes == 0 {
        return Ok(None);
    }
    let path = ext_path(run);
    let ext = disk
        .open(&path)
        .map_err(|e| RunError::io(&path, "open", e))?;
    if ext.len_bytes() != ext_bytes {
        let place = format!(
            "the file has {} bytes, {ext_bytes} were written",
            ext.len_bytes()
        );
        return Err(RunError::damaged(&path, place));
    }
    Ok(Some(ext))
}
