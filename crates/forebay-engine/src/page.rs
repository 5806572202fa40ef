//! A version page by page, for clients that hold nothing but a number between two pages.
//!
//! A Redis client's SCAN passes a cursor of 64 bits. In a hashed table that is the hash64 at which to
//! go on, so it means the same in any version, and keys that share a hash64 are never parted. In an
//! ordered table it is a page's number along with a few bits of the version's checksum: when another
//! version has come to serve since, the walk begins anew, for then the number means nothing (SCAN may
//! return a key twice, but must not leave out one that was there all the time). Ordered cursors stay
//! below 2^53, since some clients keep numbers as floats.

use std::ops::Bound;
use std::sync::Arc;

use forebay_run::Order;
use forebay_run::scan::{Direction, Position, ScanRange};

use crate::bound;
use crate::error::ReadError;
use crate::version::Version;

/// Bits of an ordered cursor that hold the number of a page.
const PAGE_BITS: u32 = 40;
/// Bits above them that hold a part of the version's checksum.
const TAG_BITS: u32 = 12;

impl Version {
    /// Visits the keys and values that follow `cursor`, which is 0 or what the last call returned: at
    /// least `count` of them where there are so many, and as many more as have to go with them.
    /// Returns the cursor to go on with; 0 when this was the end.
    pub fn scan_page(
        self: &Arc<Self>,
        cursor: u64,
        count: usize,
        mut visit: impl FnMut(&[u8], &[u8]),
    ) -> Result<u64, ReadError> {
        match self.order() {
            Order::Hashed => self.page_by_hash(cursor, count.max(1), &mut visit),
            Order::Ordered => self.page_by_number(cursor, count.max(1), &mut visit),
        }
    }

    fn page_by_hash(
        self: &Arc<Self>,
        cursor: u64,
        count: usize,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<u64, ReadError> {
        let mut scan = self.scan_range(ScanRange::hashes(cursor, None), Direction::Forward);
        let mut seen = 0;
        let mut last = 0;
        while scan.advance()? {
            if seen >= count && scan.hash() != last {
                return Ok(scan.hash());
            }
            last = scan.hash();
            seen += 1;
            visit(scan.key(), scan.value());
        }
        Ok(0)
    }

    fn page_by_number(
        self: &Arc<Self>,
        cursor: u64,
        count: usize,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<u64, ReadError> {
        let tag = self.tag() << PAGE_BITS;
        let number = cursor & ((1 << PAGE_BITS) - 1);
        let mut number = if cursor & !((1 << PAGE_BITS) - 1) == tag {
            number
        } else {
            0
        };
        let mut seen = 0;
        while let Some(from) = self.page_start(number) {
            number += 1;
            let to = self
                .page_start(number)
                .map_or(Bound::Unbounded, Bound::Excluded);
            let range = ScanRange {
                from: Bound::Included(from),
                to,
            };
            let mut scan = self.scan_range(range, Direction::Forward);
            while scan.advance()? {
                seen += 1;
                visit(scan.key(), scan.value());
            }
            if seen >= count && self.page_start(number).is_some() {
                return Ok(tag | number);
            }
        }
        Ok(0)
    }

    /// Never 0, so that no cursor of ours is.
    fn tag(&self) -> u64 {
        (self.sum() & ((1 << TAG_BITS) - 1)).max(1)
    }

    /// Where the page of that number begins, counting the pages of each partition's oldest run, and one
    /// for a partition without pages; `None` behind the last.
    fn page_start(&self, mut number: u64) -> Option<Position> {
        for (part, partition) in self.parts.iter().zip(&self.manifest().partitions) {
            let pages = part
                .runs
                .first()
                .map_or(0, |run| run.summary().pages)
                .max(1);
            if number >= pages {
                number -= pages;
                continue;
            }
            let lower = match &partition.lower {
                bound::Bound::Key(key) => &key[..],
                bound::Bound::Slot(_) => &[],
            };
            let separator = match number {
                0 => None,
                page => part
                    .runs
                    .first()
                    .and_then(|run| run.separator(page as usize)),
            };
            return Some(Position {
                hash: 0,
                key: separator.unwrap_or(lower).to_vec(),
            });
        }
        None
    }
}
