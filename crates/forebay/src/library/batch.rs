//! A batch of writes to a live table.

use std::time::Duration;

use forebay_engine::live;
use forebay_run::operation::Operation;
use forebay_run::times::Times;

use super::error::Error;
use super::open_table::OpenTable;
use super::operand::Operand;
use super::problem::Problem;

/// A batch of writes, done together.
///
/// [`Batch::commit`] does all writes at once or none, [`Batch::commit_each`] one after the other. A
/// batch that is dropped does nothing.
///
/// ```
/// # use forebay::LiveOptions;
/// # fn main() -> Result<(), forebay::Error> {
/// # let dir = tempfile::tempdir().expect("a directory");
/// # let store = forebay::open_or_create(dir.path())?;
/// let users = store.create_live("users", LiveOptions::hashed())?;
/// let mut batch = users.batch();
/// // The same text in braces keeps keys in one partition.
/// batch.put("{u1}:name", "Ada")?.put("{u1}:city", "Rome")?.delete("{u1}:draft");
/// batch.commit()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a batch does nothing until it is committed"]
pub struct Batch<'t> {
    table: &'t OpenTable,
    pub(super) batch: live::Batch,
}

impl<'t> Batch<'t> {
    pub(super) fn new(table: &'t OpenTable) -> Self {
        let batch = live::Batch::new();
        Self { table, batch }
    }

    /// Returns the number of writes.
    pub fn len(&self) -> usize {
        self.batch.len()
    }

    /// Returns whether there are no writes.
    pub fn is_empty(&self) -> bool {
        self.batch.is_empty()
    }

    /// Sets a key's value.
    pub fn put<'o>(
        &mut self,
        key: impl AsRef<[u8]>,
        value: impl Into<Operand<'o>>,
    ) -> Result<&mut Self, Error> {
        let value = self.table.shape.encode(value.into())?;
        self.batch.update(key.as_ref(), &value);
        Ok(self)
    }

    /// Sets a key's value, which expires after `ttl`, counted from now.
    pub fn put_for<'o>(
        &mut self,
        key: impl AsRef<[u8]>,
        value: impl Into<Operand<'o>>,
        ttl: Duration,
    ) -> Result<&mut Self, Error> {
        let value = self.table.shape.encode(value.into())?;
        let times = self.until(ttl)?;
        let operation = Operation::Update(&value).with_times(times);
        self.batch.push(key.as_ref(), operation);
        Ok(self)
    }

    /// Sets a key's value if the key is absent.
    pub fn insert<'o>(
        &mut self,
        key: impl AsRef<[u8]>,
        value: impl Into<Operand<'o>>,
    ) -> Result<&mut Self, Error> {
        let value = self.table.shape.encode(value.into())?;
        self.batch.insert(key.as_ref(), &value);
        Ok(self)
    }

    /// Sets a key's value if the key is absent. The value then expires after `ttl`, counted from
    /// now.
    pub fn insert_for<'o>(
        &mut self,
        key: impl AsRef<[u8]>,
        value: impl Into<Operand<'o>>,
        ttl: Duration,
    ) -> Result<&mut Self, Error> {
        let value = self.table.shape.encode(value.into())?;
        let times = self.until(ttl)?;
        let operation = Operation::Insert(&value).with_times(times);
        self.batch.push(key.as_ref(), operation);
        Ok(self)
    }

    /// Adds to a key's value, by the table's kind of deltas. An absent key gets the delta as its
    /// value.
    pub fn delta<'o>(
        &mut self,
        key: impl AsRef<[u8]>,
        delta: impl Into<Operand<'o>>,
    ) -> Result<&mut Self, Error> {
        let delta = self.table.shape.encode_delta(delta.into())?;
        self.batch.delta(key.as_ref(), &delta);
        Ok(self)
    }

    /// Adds to a key's value, which expires after `ttl`, counted from now. Only for a table that
    /// was created with expiry.
    pub fn delta_for<'o>(
        &mut self,
        key: impl AsRef<[u8]>,
        delta: impl Into<Operand<'o>>,
        ttl: Duration,
    ) -> Result<&mut Self, Error> {
        let delta = self.table.shape.encode_delta(delta.into())?;
        let times = self.until(ttl)?;
        let operation = Operation::Delta(&delta).with_times(times);
        self.batch.push(key.as_ref(), operation);
        Ok(self)
    }

    /// Removes a key.
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> &mut Self {
        self.batch.delete(key.as_ref());
        self
    }

    /// Does all writes at once, in their order: no reader and no crash sees only some of them. All
    /// keys must be in one partition. In hashed tables keys with the same text in braces are.
    /// Returns when the writes are as durable as the table promises.
    pub fn commit(&self) -> Result<(), Error> {
        let table = &self.table.table;
        Ok(table.write(&self.batch)?.wait()?)
    }

    /// Does the writes one after the other, in any partitions, and waits for the device once. After
    /// an error, the writes before the refused one are done.
    pub fn commit_each(&self) -> Result<(), Error> {
        let table = &self.table.table;
        Ok(table.write_each(&self.batch)?.wait()?)
    }

    fn until(&self, ttl: Duration) -> Result<Times, Error> {
        let ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        if ms == 0 {
            return Err(Problem::NoTime.into());
        }
        let now_ms = self.table.now_ms();
        Ok(Times::until(now_ms.saturating_add(ms).min(u64::MAX - 1)))
    }
}
