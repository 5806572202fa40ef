//! Reads and writes a live table.

use std::borrow::Cow;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;
use std::time::Duration;

use forebay_engine::live;
use forebay_run::row::Column;

use super::batch::Batch;
use super::error::Error;
use super::open_table::OpenTable;
use super::operand::Operand;
use super::records::{Moment, Records};
use super::shape::Shape;
use super::snapshot::Snapshot;
use super::value::{Lifetime, Value};

/// An open live table.
///
/// Clones are handles to the same table, for any number of threads. The table is open in one
/// process at a time, until [`Store::close_live`](crate::Store::close_live) and the end of the last
/// handle.
///
/// A write returns when it is as durable as the table promises
/// ([`LiveOptions::durability`](crate::LiveOptions::durability)). Writes do not read, so they do
/// not return the previous value. Use [`LiveTable::transact`] for that.
#[derive(Debug, Clone)]
pub struct LiveTable {
    open: Arc<OpenTable>,
}

impl LiveTable {
    pub(super) fn new(open: OpenTable) -> Self {
        let open = Arc::new(open);
        Self { open }
    }

    pub(super) fn engine(&self) -> &live::LiveTable {
        &self.open.table
    }

    fn shape(&self) -> &Arc<Shape> {
        &self.open.shape
    }

    /// Returns the table's name.
    pub fn name(&self) -> &str {
        self.engine().name().as_str()
    }

    /// Returns the columns of its rows or, for a table of other values, its one column.
    pub fn columns(&self) -> &[Column] {
        self.shape().schema.columns()
    }

    /// Returns the value of a key.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value<'static>>, Error> {
        let value = self.engine().get(key.as_ref())?;
        let value = value.map(|value| Value::of(self.shape(), Cow::Owned(value)));
        value.transpose()
    }

    /// Returns the values of many keys, in their order. Values of one partition are of one moment.
    /// For one moment of all partitions use a [`LiveTable::snapshot`].
    pub fn get_many<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
    ) -> Result<Vec<Option<Value<'static>>>, Error> {
        let values = self.engine().get_many(keys)?.into_iter();
        let decode = |value| Value::of(self.shape(), Cow::Owned(value));
        values.map(|value| value.map(decode).transpose()).collect()
    }

    /// Returns whether a key exists.
    pub fn contains_key(&self, key: impl AsRef<[u8]>) -> Result<bool, Error> {
        Ok(self.engine().get(key.as_ref())?.is_some())
    }

    /// Returns how much longer a key lasts.
    pub fn lifetime(&self, key: impl AsRef<[u8]>) -> Result<Lifetime, Error> {
        let expires_ms = self.engine().expires_ms(key.as_ref())?;
        Ok(Lifetime::of(expires_ms, self.open.now_ms()))
    }

    /// Returns all records as they are now, in the table's order: by key, or by the hash of the
    /// key.
    pub fn iter(&self) -> Records {
        self.moment().records(self.shape())
    }

    /// Returns the records of a range of keys as they are now. Only for an ordered table.
    pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<Records, Error> {
        self.moment().range(self.shape(), &range)
    }

    /// Returns the records whose keys begin with `prefix`, as they are now. Only for an ordered
    /// table.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Records, Error> {
        self.moment().prefix(self.shape(), prefix.as_ref())
    }

    /// Returns the table as it is now, for reading at any later time.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(self.engine().snapshot(), self.shape())
    }

    fn moment(&self) -> Moment {
        Moment::Live(self.engine().snapshot())
    }

    /// Sets a key's value.
    pub fn put<'o>(
        &self,
        key: impl AsRef<[u8]>,
        value: impl Into<Operand<'o>>,
    ) -> Result<(), Error> {
        let value = self.shape().encode(value.into())?;
        Ok(self.engine().update(key.as_ref(), &value)?.wait()?)
    }

    /// Sets a key's value, which expires after `ttl`, counted from now.
    pub fn put_for<'o>(
        &self,
        key: impl AsRef<[u8]>,
        value: impl Into<Operand<'o>>,
        ttl: Duration,
    ) -> Result<(), Error> {
        self.batch().put_for(key, value, ttl)?.commit()
    }

    /// Sets a key's value if the key is absent.
    pub fn insert<'o>(
        &self,
        key: impl AsRef<[u8]>,
        value: impl Into<Operand<'o>>,
    ) -> Result<(), Error> {
        let value = self.shape().encode(value.into())?;
        Ok(self.engine().insert(key.as_ref(), &value)?.wait()?)
    }

    /// Adds to a key's value, by the table's kind of deltas. An absent key gets the delta as its
    /// value.
    pub fn delta<'o>(
        &self,
        key: impl AsRef<[u8]>,
        delta: impl Into<Operand<'o>>,
    ) -> Result<(), Error> {
        let delta = self.shape().encode_delta(delta.into())?;
        Ok(self.engine().delta(key.as_ref(), &delta)?.wait()?)
    }

    /// Removes a key.
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<(), Error> {
        Ok(self.engine().delete(key.as_ref())?.wait()?)
    }

    /// Removes the keys of a range at one moment, by one record. Returns how many keys it removed,
    /// for which it reads them. Only for an ordered table.
    pub fn delete_range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<u64, Error> {
        let (from, to): (Bound<&K>, Bound<&K>) = (range.start_bound(), range.end_bound());
        let (from, to) = (from.map(AsRef::as_ref), to.map(AsRef::as_ref));
        let (deleted, commit) = self.engine().delete_range_counted(from, to)?;
        commit.wait()?;
        Ok(deleted)
    }

    /// Removes all keys at one moment, by one record.
    pub fn delete_all(&self) -> Result<(), Error> {
        Ok(self.engine().delete_all()?.wait()?)
    }

    /// Returns an empty batch of writes to this table.
    pub fn batch(&self) -> Batch<'_> {
        Batch::new(&self.open)
    }

    /// Reads keys of one partition, and does the writes to it that `decide` puts into the batch.
    /// All happens at once: no other write to the partition comes between. `decide` gets the values
    /// in the order of the keys. It must be short, because other writers wait, and must not use the
    /// table in any other way. If it fails, nothing is written.
    ///
    /// ```
    /// # use forebay::{DeltaKind, LiveOptions};
    /// # fn main() -> Result<(), forebay::Error> {
    /// # let dir = tempfile::tempdir().expect("a directory");
    /// # let store = forebay::open_or_create(dir.path())?;
    /// let stock = store.create_live("stock", LiveOptions::hashed().delta(DeltaKind::AddI64))?;
    /// stock.put("apples", 3)?;
    /// let sold = stock.transact(&["apples"], |values, batch| {
    ///     let there = values[0].as_ref().and_then(|value| value.as_i64()).unwrap_or(0);
    ///     if there >= 2 {
    ///         batch.delta("apples", -2)?;
    ///     }
    ///     Ok(there >= 2)
    /// })?;
    /// assert!(sold);
    /// assert_eq!(stock.get("apples")?.and_then(|value| value.as_i64()), Some(1));
    /// # Ok(())
    /// # }
    /// ```
    pub fn transact<K: AsRef<[u8]>, R>(
        &self,
        keys: &[K],
        decide: impl FnOnce(&[Option<Value<'static>>], &mut Batch<'_>) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
        let (commit, decided) = self.engine().transact(&keys, |stored| {
            let decode = |stored: live::Stored| Value::of(self.shape(), Cow::Owned(stored.value));
            let values = stored
                .into_iter()
                .map(|stored| stored.map(decode).transpose());
            let mut batch = self.batch();
            let values = values.collect::<Result<Vec<_>, Error>>();
            let decided = values.and_then(|values| decide(&values, &mut batch));
            match decided {
                Ok(_) => (batch.batch, decided),
                Err(_) => (live::Batch::new(), decided),
            }
        })?;
        commit.wait()?;
        decided
    }

    /// Writes everything in memory to runs, and returns when they are durable.
    pub fn flush(&self) -> Result<(), Error> {
        Ok(self.engine().flush()?)
    }

    /// Flushes, then merges each partition's runs into one. Writes during the merge are not in it.
    pub fn compact(&self) -> Result<(), Error> {
        Ok(self.engine().compact()?)
    }

    /// Returns what the table has in memory and on disk, and the state of its threads.
    pub fn stats(&self) -> live::LiveStats {
        self.engine().stats()
    }
}

impl IntoIterator for &LiveTable {
    type Item = <Records as Iterator>::Item;
    type IntoIter = Records;

    fn into_iter(self) -> Records {
        self.iter()
    }
}
