//! LMDB by heed: transactions of 20,000 writes in the order of keys, whose changed pages fit the
//! memory; nothing synced meanwhile. Of its mapping only the page tables count as memory here. So
//! they are released when they reach 40 MB while it writes (the pages themselves stay in the
//! system's cache).

use std::path::{Path, PathBuf};

use anyhow::Result;
use heed::types::Bytes;
use heed::{Database, Env, EnvFlags, EnvOpenOptions, RoTxn, WithoutTls};

use super::{Engine, Gathered, number};
use crate::machine::{release_mappings, status_bytes};

const MAPPED_LIMIT_BYTES: u64 = 40 << 20;
/// Looked at every so many operations: each may map 64 KiB.
const LOOK: usize = 512;

type Table = Database<Bytes, Bytes>;

pub struct Lmdb {
    path: PathBuf,
    env: Env<WithoutTls>,
    table: Table,
    gathered: Gathered,
    reading: Option<RoTxn<'static, WithoutTls>>,
}

impl Lmdb {
    pub fn create(path: &Path) -> Result<Self> {
        let mut options = EnvOpenOptions::new().read_txn_without_tls();
        options.map_size(64 << 30);
        // Safety: nobody else opens the file; without syncs only a crash of the system harms it.
        let env = unsafe {
            options.flags(EnvFlags::NO_SYNC | EnvFlags::NO_META_SYNC | EnvFlags::NO_READ_AHEAD);
            options.open(path)?
        };
        let mut transaction = env.write_txn()?;
        let table = env.create_database(&mut transaction, None)?;
        transaction.commit()?;
        Ok(Self {
            path: path.to_path_buf(),
            env,
            table,
            gathered: Gathered::default(),
            reading: None,
        })
    }

    fn write(&mut self) -> Result<()> {
        self.reading = None;
        self.gathered.sort();
        let (table, mut transaction) = (self.table, self.env.write_txn()?);
        for (place, (key, value)) in self.gathered.puts.iter().enumerate() {
            if place % LOOK == 0 {
                self.bound_memory()?;
            }
            table.put(&mut transaction, &key.to_be_bytes(), &value.to_le_bytes())?;
        }
        for key in &self.gathered.increments {
            let key = key.to_be_bytes();
            let found = table.get(&transaction, &key)?;
            let value = found.map(number).transpose()?.unwrap_or(0) + 1;
            table.put(&mut transaction, &key, &value.to_le_bytes())?;
        }
        transaction.commit()?;
        self.gathered.clear();
        self.bound_memory()
    }

    fn bound_memory(&self) -> Result<()> {
        if status_bytes("RssFile") > MAPPED_LIMIT_BYTES {
            release_mappings(&self.path)?;
        }
        Ok(())
    }
}

impl Engine for Lmdb {
    fn put(&mut self, key: u64, value: u64) -> Result<()> {
        if self.gathered.put(key, value) {
            self.write()?;
        }
        Ok(())
    }

    fn increment(&mut self, key: u64) -> Result<()> {
        if self.gathered.increment(key) {
            self.write()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        self.write()?;
        Ok(self.env.force_sync()?)
    }

    fn scan(&mut self, visit: &mut dyn FnMut(u64, u64) -> bool) -> Result<()> {
        let transaction = self.env.read_txn()?;
        for record in self.table.iter(&transaction)? {
            let (key, value) = record?;
            if !visit(number(key)?.swap_bytes(), number(value)?) {
                break;
            }
        }
        Ok(())
    }

    fn get(&mut self, key: u64) -> Result<Option<u64>> {
        let transaction = match &mut self.reading {
            Some(transaction) => transaction,
            none => none.insert(self.env.clone().static_read_txn()?),
        };
        let found = self.table.get(transaction, &key.to_be_bytes())?;
        found.map(number).transpose()
    }
}
