//! Reads a version of a batch table.

use std::ops::RangeBounds;
use std::sync::Arc;

use forebay_engine::{Source, SwapReport, Table, Version, VersionInfo};
use forebay_run::row::Column;

use super::error::Error;
use super::records::{Moment, Records};
use super::shape::Shape;
use super::value::{Lifetime, Value};

/// One version of a batch table. Everything read through it is of that version, whatever is pushed
/// or swapped meanwhile. [`BatchTable::refresh`] changes to the serving version. Clones share the
/// version's files and what is cached of them.
#[derive(Debug, Clone)]
pub struct BatchTable {
    table: Table,
    version: Arc<Version>,
    shape: Arc<Shape>,
}

impl BatchTable {
    /// Opens a version, by default the serving one.
    pub(super) fn open(table: Table, version: Option<u64>) -> Result<Self, Error> {
        let number = version.map_or_else(|| table.serving(), Ok)?;
        let version = table.open_version(number)?;
        let shape = Shape::of(Source::Batch(&version));
        Ok(Self {
            table,
            version,
            shape,
        })
    }

    /// Returns the table's name.
    pub fn name(&self) -> &str {
        self.table.name().as_str()
    }

    /// Returns the number of the version that is read.
    pub fn version(&self) -> u64 {
        self.version.version()
    }

    /// Returns the least and the greatest possible number of rows. They are equal, unless the
    /// version reuses the runs of another one.
    pub fn rows_between(&self) -> (u64, u64) {
        self.version.manifest().rows_between()
    }

    /// Returns the columns of its rows or, for a table of other values, its one column.
    pub fn columns(&self) -> &[Column] {
        self.shape.schema.columns()
    }

    /// Returns the value of a key.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value<'_>>, Error> {
        let value = self.version.get(key.as_ref())?;
        value.map(|value| Value::of(&self.shape, value)).transpose()
    }

    /// Returns the values of many keys, in their order. This is faster than single reads.
    pub fn get_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Value<'_>>>, Error> {
        let mut values: Vec<Option<Value<'_>>> = Vec::with_capacity(keys.len());
        let mut failed = None;
        self.version.get_many(keys, |_, value| {
            match value.map(|value| Value::of(&self.shape, value)).transpose() {
                Ok(value) => values.push(value),
                Err(error) => failed = Some(error),
            }
        })?;
        failed.map_or(Ok(values), Err)
    }

    /// Returns whether a key exists.
    pub fn contains_key(&self, key: impl AsRef<[u8]>) -> Result<bool, Error> {
        Ok(self.version.exists(key.as_ref())?)
    }

    /// Returns how much longer a key lasts.
    pub fn lifetime(&self, key: impl AsRef<[u8]>) -> Result<Lifetime, Error> {
        let expires_ms = self.version.expires_ms(key.as_ref())?;
        Ok(Lifetime::of(
            expires_ms,
            self.table.store().clock().unix_ms(),
        ))
    }

    /// Returns all records, in the table's order: by key, or by the hash of the key.
    pub fn iter(&self) -> Records {
        self.moment().records(&self.shape)
    }

    /// Returns the records of a range of keys. Only for an ordered table.
    pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<Records, Error> {
        self.moment().range(&self.shape, &range)
    }

    /// Returns the records whose keys begin with `prefix`. Only for an ordered table.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Records, Error> {
        self.moment().prefix(&self.shape, prefix.as_ref())
    }

    /// Changes to the version that serves now. Returns whether it is another one. If it is the
    /// same, the call costs a read of a small file.
    pub fn refresh(&mut self) -> Result<bool, Error> {
        let serving = self.table.serving()?;
        let other = serving != self.version();
        if other {
            *self = Self::open(self.table.clone(), Some(serving))?;
        }
        Ok(other)
    }

    /// Returns all versions in ascending order.
    pub fn versions(&self) -> Result<Vec<VersionInfo>, Error> {
        Ok(self.table.versions()?)
    }

    /// Makes a version the serving one, for all readers of the store. This handle keeps its own
    /// version until [`BatchTable::refresh`].
    pub fn swap(&self, version: u64) -> Result<SwapReport, Error> {
        Ok(self.table.swap(version)?)
    }

    /// Makes the version that served before the serving one again. Within a minute of another
    /// rollback it is refused; [`BatchTable::rollback_from`] names the version to roll back from.
    pub fn rollback(&self) -> Result<SwapReport, Error> {
        Ok(self.table.rollback()?)
    }

    /// Rolls back if version `from` serves. If another version serves, nothing is changed.
    pub fn rollback_from(&self, from: u64) -> Result<SwapReport, Error> {
        Ok(self.table.rollback_from(from)?)
    }

    fn moment(&self) -> Moment {
        Moment::Batch(Arc::clone(&self.version))
    }
}

impl IntoIterator for &BatchTable {
    type Item = <Records as Iterator>::Item;
    type IntoIter = Records;

    fn into_iter(self) -> Records {
        self.iter()
    }
}
