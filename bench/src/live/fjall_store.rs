//! fjall: batches of 1,000 into its journal (which it always has, left to the system to write) and
//! a memtable of 32 MB; a block cache of 16 MB; nothing compressed.

use std::path::Path;

use anyhow::Result;
use fjall::config::BlockSizePolicy;
use fjall::{Database, Keyspace, KeyspaceCreateOptions, OwnedWriteBatch};

use super::{BATCH_RECORDS, Engine, number};

pub struct Fjall {
    database: Database,
    table: Keyspace,
    batch: OwnedWriteBatch,
}

impl Fjall {
    pub fn create(path: &Path) -> Result<Self> {
        let database = Database::builder(path)
            .cache_size(16 << 20)
            .worker_threads(2)
            .max_journaling_size(512 << 20)
            .open()?;
        let table = database.keyspace("t", || {
            KeyspaceCreateOptions::default()
                .max_memtable_size(32 << 20)
                .data_block_size_policy(BlockSizePolicy::all(4096))
        })?;
        Ok(Self {
            batch: database.batch(),
            database,
            table,
        })
    }

    fn write_batch(&mut self) -> Result<()> {
        let next = self.database.batch();
        Ok(std::mem::replace(&mut self.batch, next).commit()?)
    }
}

impl Engine for Fjall {
    fn put(&mut self, key: u64, value: u64) -> Result<()> {
        self.batch
            .insert(&self.table, key.to_be_bytes(), value.to_le_bytes());
        if self.batch.len() == BATCH_RECORDS {
            self.write_batch()?;
        }
        Ok(())
    }

    fn increment(&mut self, key: u64) -> Result<()> {
        let value = self.get(key)?.unwrap_or(0) + 1;
        Ok(self.table.insert(key.to_be_bytes(), value.to_le_bytes())?)
    }

    fn flush(&mut self) -> Result<()> {
        self.write_batch()?;
        self.table.rotate_memtable()?;
        Ok(())
    }

    fn is_busy(&self) -> bool {
        self.table.sealed_memtable_count() > 0 || self.database.active_compactions() > 0
    }

    fn optimize(&mut self) -> Result<()> {
        Ok(self.table.major_compact()?)
    }

    fn scan(&mut self, visit: &mut dyn FnMut(u64, u64) -> bool) -> Result<()> {
        for record in self.table.iter() {
            let (key, value) = record.into_inner()?;
            if !visit(number(&key)?.swap_bytes(), number(&value)?) {
                break;
            }
        }
        Ok(())
    }

    fn get(&mut self, key: u64) -> Result<Option<u64>> {
        let found = self.table.get(key.to_be_bytes())?;
        found.map(|value| Ok(number(&value)?)).transpose()
    }
}
