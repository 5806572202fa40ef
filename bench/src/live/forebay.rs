//! Forebay's live engine: an ordered table of one partition with a budget of 96 MiB, merged by a
//! factor of 8; one operation a call without a log, batches of 1,000 with one.

use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use forebay_engine::live::{Batch, Budget, Durability, LiveDraft, LiveTable};
use forebay_engine::{Store, TableName};
use forebay_io::{OsDisk, SystemClock, SystemRandom};
use forebay_run::operation::DeltaKind;
use forebay_run::scan::Direction;

use super::{BATCH_RECORDS, Engine, number};

/// What is left of 200 MB when the program itself, buffers and mapped pages have taken theirs.
const BUDGET_BYTES: usize = 96 << 20;
/// More runs than usual are merged at once, as befits bulk writing: each record once less often.
const FACTOR: u32 = 8;

pub struct Forebay {
    table: LiveTable,
    /// What is gathered for the log; absent without one.
    batch: Option<Batch>,
}

impl Forebay {
    /// `durability`: none is without a log. `without_maps`: files are read by calls, so that what
    /// is read does not count as memory of this process, as mapped pages do.
    pub fn create(path: &Path, durability: Option<Durability>, without_maps: bool) -> Result<Self> {
        let store = Store::open_or_create(
            Arc::new(OsDisk { without_maps }),
            Arc::new(SystemClock),
            Arc::new(SystemRandom),
            path,
        )?;
        let mut draft = LiveDraft::ordered(Vec::new()).delta(DeltaKind::AddI64);
        draft.options.durability = durability;
        draft.options.factor = FACTOR;
        let name: TableName = "bench".parse()?;
        let table = store.create_live(&name, draft, &Budget::new(BUDGET_BYTES))?;
        Ok(Self {
            table,
            batch: durability.map(|_| Batch::new()),
        })
    }
}

impl Forebay {
    fn write_batch(&mut self) -> Result<()> {
        if let Some(batch) = &mut self.batch {
            self.table.write(batch)?.wait()?;
            batch.clear();
        }
        Ok(())
    }
}

impl Engine for Forebay {
    #[inline]
    fn put(&mut self, key: u64, value: u64) -> Result<()> {
        let (key, value) = (key.to_be_bytes(), value.to_le_bytes());
        let Some(batch) = &mut self.batch else {
            return Ok(self.table.update(&key, &value)?.wait()?);
        };
        batch.update(&key, &value);
        if batch.len() == BATCH_RECORDS {
            self.write_batch()?;
        }
        Ok(())
    }

    #[inline]
    fn increment(&mut self, key: u64) -> Result<()> {
        let commit = self.table.delta(&key.to_be_bytes(), &1u64.to_le_bytes())?;
        Ok(commit.wait()?)
    }

    fn flush(&mut self) -> Result<()> {
        self.write_batch()?;
        Ok(self.table.flush()?)
    }

    fn is_busy(&self) -> bool {
        self.table.stats().is_merge_due
    }

    fn optimize(&mut self) -> Result<()> {
        Ok(self.table.compact()?)
    }

    fn scan(&mut self, visit: &mut dyn FnMut(u64, u64) -> bool) -> Result<()> {
        let all = (Bound::Unbounded, Bound::Unbounded);
        let mut scan = self.table.scan(all.0, all.1, Direction::Forward)?;
        while scan.advance()? {
            if !visit(number(scan.key())?.swap_bytes(), number(scan.value())?) {
                break;
            }
        }
        Ok(())
    }

    fn get(&mut self, key: u64) -> Result<Option<u64>> {
        let found = self.table.get(&key.to_be_bytes())?;
        found.map(|value| number(&value)).transpose()
    }
}
