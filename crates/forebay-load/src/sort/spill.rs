//! Iterates over sorted records, in memory or spilled to runs.

use std::path::Path;
use std::sync::Arc;

use forebay_run::operation::Operation;
use forebay_run::scan::{Cursor, Direction, ScanRange};
use forebay_run::{Compression, Order, Run, RunError, RunOptions, RunScan, RunWriter};

use super::arena::SortedRecords;
use super::{SortError, SortPlan, operation_of};

/// The number of records that are prefetched into the cache ahead of the merge.
const AHEAD: usize = 12;

/// A spilled run. Each value in it is prefixed with the number of its unit (LEB128).
#[derive(Debug)]
pub struct Spill {
    pub run: Arc<Run>,
    with_operations: bool,
}

impl Spill {
    pub fn write(plan: &SortPlan, path: &Path, sorted: SortedRecords) -> Result<Self, SortError> {
        let order = plan.order();
        let options = RunOptions::new(order, Compression::None, &plan.run.hash_prefix)
            .for_keys_of(sorted.longest_key);
        let mut writer = RunWriter::create(&plan.disk, path, options)?;
        let mut stamped = Vec::new();
        for (index, entry) in sorted.entries.iter().enumerate() {
            if let Some(later) = sorted.entries.get(index + AHEAD) {
                sorted.arena.prefetch(later.place);
            }
            let (key, value) = sorted.arena.record(entry.place);
            stamped.clear();
            push_varint(&mut stamped, sorted.unit(entry.place));
            stamped.extend_from_slice(value);
            let hash = if order == Order::Hashed {
                entry.head
            } else {
                0
            };
            writer.push(hash, key, Operation::Update(&stamped))?;
        }
        drop(sorted);
        writer.finish_unsynced()?;
        Ok(Self {
            run: Arc::new(Run::open(&*plan.disk, path)?),
            with_operations: plan.with_operations,
        })
    }

    pub fn cursor(&self, range: ScanRange) -> SpillCursor {
        SpillCursor {
            scan: self.run.scan(range, Direction::Forward).releasing(),
            unit: 0,
            stamp_bytes: 0,
            with_operations: self.with_operations,
        }
    }
}

fn push_varint(out: &mut Vec<u8>, mut number: u32) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn read_varint(bytes: &[u8]) -> Option<(u32, usize)> {
    let mut number = 0;
    for (index, byte) in bytes.iter().enumerate().take(5) {
        number |= u32::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Some((number, index + 1));
        }
    }
    None
}

/// A cursor over a spilled run that removes the unit numbers from its values.
#[derive(Debug)]
pub struct SpillCursor {
    scan: RunScan,
    unit: u32,
    stamp_bytes: usize,
    with_operations: bool,
}

/// A cursor over a range of sorted records in memory.
#[derive(Debug)]
pub struct MemoryCursor {
    sorted: Arc<SortedRecords>,
    order: Order,
    with_operations: bool,
    /// The entry after the current one.
    next: usize,
    end: usize,
}

impl MemoryCursor {
    /// Creates a cursor; `range` is of entries.
    pub fn new(
        sorted: &Arc<SortedRecords>,
        plan: &SortPlan,
        range: std::ops::Range<usize>,
    ) -> Self {
        Self {
            sorted: Arc::clone(sorted),
            order: plan.order(),
            with_operations: plan.with_operations,
            next: range.start,
            end: range.end,
        }
    }

    fn place(&self) -> u64 {
        self.sorted.entries[self.next - 1].place
    }
}

/// A cursor of either kind, so that a merge needs no virtual calls.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "there are a handful at a time")]
pub enum SortedCursor {
    Memory(MemoryCursor),
    Spill(SpillCursor),
}

impl Cursor for SortedCursor {
    #[inline]
    fn advance(&mut self) -> Result<bool, RunError> {
        match self {
            Self::Memory(memory) => {
                if memory.next == memory.end {
                    return Ok(false);
                }
                memory.next += 1;
                if let Some(later) = memory.sorted.entries.get(memory.next + AHEAD) {
                    memory.sorted.arena.prefetch(later.place);
                }
                Ok(true)
            }
            Self::Spill(spill) => {
                if !spill.scan.advance()? {
                    return Ok(false);
                }
                let Operation::Update(stamped) = spill.scan.operation() else {
                    return Ok(false);
                };
                let stamp = read_varint(stamped).unwrap_or_default();
                (spill.unit, spill.stamp_bytes) = stamp;
                Ok(true)
            }
        }
    }

    #[inline]
    fn hash(&self) -> u64 {
        match self {
            Self::Memory(memory) if memory.order == Order::Ordered => 0,
            Self::Memory(memory) => memory.sorted.entries[memory.next - 1].head,
            Self::Spill(spill) => spill.scan.hash(),
        }
    }

    #[inline]
    fn head(&self) -> u64 {
        match self {
            Self::Memory(memory) => memory.sorted.entries[memory.next - 1].head,
            Self::Spill(spill) => spill.scan.head(),
        }
    }

    #[inline]
    fn key(&self) -> &[u8] {
        match self {
            Self::Memory(memory) => memory.sorted.arena.key(memory.place()),
            Self::Spill(spill) => spill.scan.key(),
        }
    }

    #[inline]
    fn operation(&self) -> Operation<'_> {
        match self {
            Self::Memory(memory) => {
                let collected = memory.sorted.arena.record(memory.place()).1;
                operation_of(memory.with_operations, collected)
            }
            Self::Spill(spill) => match spill.scan.operation() {
                Operation::Update(stamped) => {
                    operation_of(spill.with_operations, &stamped[spill.stamp_bytes..])
                }
                other => other,
            },
        }
    }

    fn age(&self) -> u64 {
        match self {
            Self::Memory(memory) => u64::from(memory.sorted.unit(memory.place())),
            Self::Spill(spill) => u64::from(spill.unit),
        }
    }
}
