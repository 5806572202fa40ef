//! redb: sorted keys inserted in one write transaction; its cache as large as the file, since it
//! does not map; one long read transaction.

use std::path::Path;

use anyhow::Result;
use redb::{Builder, Database, ReadOnlyTable, ReadableDatabase, TableDefinition};

use super::{Session, Stages, Store};
use crate::dataset::Dataset;

const TABLE: TableDefinition<&[u8], &[u8]> = TableDefinition::new("records");

pub fn build(data: &Dataset, path: &Path, stages: &mut Stages) -> Result<()> {
    let order = data.sorted_by_key();
    stages.reached("sorted");
    let mut database = Builder::new()
        .set_cache_size(1 << 30)
        .create(path.join("store.redb"))?;
    let transaction = database.begin_write()?;
    {
        let mut table = transaction.open_table(TABLE)?;
        for (_, key, value) in data.gather(&order, |&number| number) {
            table.insert(key, value)?;
        }
    }
    transaction.commit()?;
    stages.reached("written");
    database.compact()?;
    Ok(())
}

pub struct Redb {
    _database: Database,
    table: ReadOnlyTable<&'static [u8], &'static [u8]>,
}

impl Store for Redb {
    type Session<'a> = &'a Redb;

    fn open(path: &Path, _data: &Path) -> Result<Self> {
        let database = Builder::new()
            .set_cache_size(8 << 30)
            .open(path.join("store.redb"))?;
        let table = database.begin_read()?.open_table(TABLE)?;
        Ok(Self {
            _database: database,
            table,
        })
    }

    fn session(&self) -> Result<&Redb> {
        Ok(self)
    }
}

impl Session for &Redb {
    #[inline]
    fn get<R>(&mut self, key: &[u8], visit: impl FnOnce(&[u8]) -> R) -> Option<R> {
        self.table
            .get(key)
            .ok()
            .flatten()
            .map(|value| visit(value.value()))
    }
}
