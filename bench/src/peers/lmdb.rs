//! LMDB by heed: sorted keys appended (MDB_APPEND) in one transaction into a map without the
//! intermediate syncs; read through one long read transaction, without locks or readahead.

use std::path::Path;

use anyhow::{Context, Result};
use heed::types::Bytes;
use heed::{Database, Env, EnvFlags, EnvOpenOptions, PutFlags, RoTxn, WithoutTls};

use super::{Session, Stages, Store};
use crate::dataset::Dataset;

type Table = Database<Bytes, Bytes>;

pub fn build(data: &Dataset, path: &Path, stages: &mut Stages) -> Result<()> {
    let order = data.sorted_by_key();
    stages.reached("sorted");
    let mut options = EnvOpenOptions::new();
    options.map_size((data.payload_bytes() as usize * 2).next_multiple_of(1 << 20) + (64 << 20));
    // Safety: no one else opens the file; NO_SYNC and WRITE_MAP only risk it in a crash while
    // building.
    let env = unsafe {
        options.flags(EnvFlags::NO_SYNC | EnvFlags::WRITE_MAP);
        options.open(path)?
    };
    let mut transaction = env.write_txn()?;
    let table: Table = env.create_database(&mut transaction, None)?;
    for (_, key, value) in data.gather(&order, |&number| number) {
        table.put_with_flags(&mut transaction, PutFlags::APPEND, key, value)?;
    }
    transaction.commit()?;
    stages.reached("written");
    env.force_sync()?;
    let pages = env.info().last_page_number as u64 + 1;
    drop(env);
    // WRITE_MAP leaves the file as large as the map, sparse: cut it down to the pages in use.
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(path.join("data.mdb"))?;
    file.set_len(pages * 4096)?;
    Ok(file.sync_all()?)
}

pub struct Lmdb {
    env: Env<WithoutTls>,
    table: Table,
}

impl Store for Lmdb {
    type Session<'a> = Reader<'a>;

    fn open(path: &Path, _data: &Path) -> Result<Self> {
        let file_bytes = std::fs::metadata(path.join("data.mdb"))?.len() as usize;
        let mut options = EnvOpenOptions::new().read_txn_without_tls();
        options.map_size(file_bytes.next_multiple_of(1 << 20));
        // Safety: nobody writes the file any more.
        let env = unsafe {
            options.flags(EnvFlags::READ_ONLY | EnvFlags::NO_LOCK | EnvFlags::NO_READ_AHEAD);
            options.open(path)?
        };
        let transaction = env.read_txn()?;
        let table = env
            .open_database(&transaction, None)?
            .context("no database in the file")?;
        transaction.commit()?;
        Ok(Self { env, table })
    }

    fn session(&self) -> Result<Reader<'_>> {
        Ok(Reader {
            transaction: self.env.read_txn()?,
            table: self.table,
        })
    }

    fn index_bytes(&self) -> Option<u64> {
        Some(0)
    }
}

pub struct Reader<'a> {
    transaction: RoTxn<'a, WithoutTls>,
    table: Table,
}

impl Session for Reader<'_> {
    #[inline]
    fn get<R>(&mut self, key: &[u8], visit: impl FnOnce(&[u8]) -> R) -> Option<R> {
        self.table
            .get(&self.transaction, key)
            .ok()
            .flatten()
            .map(visit)
    }
}
