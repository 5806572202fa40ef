//! redb: transactions of 20,000 writes in the order of keys, a cache of 140 MB. Every tenth
//! transaction makes them durable (it reuses pages only after that).

use std::path::Path;

use anyhow::Result;
use redb::{
    Builder, Database, Durability, ReadOnlyTable, ReadableDatabase, ReadableTable, Table,
    TableDefinition,
};

use super::{Engine, Gathered};

const DURABLE_EVERY: u64 = 10;
const TABLE: TableDefinition<u64, u64> = TableDefinition::new("t");

pub struct Redb {
    database: Database,
    gathered: Gathered,
    reading: Option<ReadOnlyTable<u64, u64>>,
    commits: u64,
}

impl Redb {
    pub fn create(path: &Path) -> Result<Self> {
        Ok(Self {
            database: Builder::new()
                .set_cache_size(140 << 20)
                .create(path.join("store.redb"))?,
            gathered: Gathered::default(),
            reading: None,
            commits: 0,
        })
    }

    fn transaction(
        &mut self,
        durable: bool,
        work: impl FnOnce(&mut Table<u64, u64>, &Gathered) -> Result<()>,
    ) -> Result<()> {
        self.reading = None;
        self.gathered.sort();
        self.commits += 1;
        let mut transaction = self.database.begin_write()?;
        if !durable && self.commits % DURABLE_EVERY != 0 {
            transaction.set_durability(Durability::None)?;
        }
        work(&mut transaction.open_table(TABLE)?, &self.gathered)?;
        transaction.commit()?;
        self.gathered.clear();
        Ok(())
    }

    fn write(&mut self, durable: bool) -> Result<()> {
        self.transaction(durable, |table, gathered| {
            for &(key, value) in &gathered.puts {
                table.insert(key, value)?;
            }
            for &key in &gathered.increments {
                let value = table.get(key)?.map_or(0, |value| value.value()) + 1;
                table.insert(key, value)?;
            }
            Ok(())
        })
    }

    fn read(&mut self) -> Result<&ReadOnlyTable<u64, u64>> {
        match &mut self.reading {
            Some(table) => Ok(table),
            none => Ok(none.insert(self.database.begin_read()?.open_table(TABLE)?)),
        }
    }
}

impl Engine for Redb {
    fn put(&mut self, key: u64, value: u64) -> Result<()> {
        if self.gathered.put(key, value) {
            self.write(false)?;
        }
        Ok(())
    }

    fn increment(&mut self, key: u64) -> Result<()> {
        if self.gathered.increment(key) {
            self.write(false)?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        self.write(true)
    }

    fn optimize(&mut self) -> Result<()> {
        self.reading = None;
        self.database.compact()?;
        Ok(())
    }

    fn scan(&mut self, visit: &mut dyn FnMut(u64, u64) -> bool) -> Result<()> {
        for record in self.read()?.iter()? {
            let (key, value) = record?;
            if !visit(key.value(), value.value()) {
                break;
            }
        }
        Ok(())
    }

    fn get(&mut self, key: u64) -> Result<Option<u64>> {
        Ok(self.read()?.get(key)?.map(|value| value.value()))
    }
}
