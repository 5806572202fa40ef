//! Batch tables: a version, to be read.

use std::ops::RangeBounds;
use std::sync::Arc;

use forebay_engine::{Source, SwapReport, Table, Version, VersionInfo};
use forebay_run::row::Column;

use super::error::Error;
use super::records::{Moment, Records};
use super::shape::Shape;
use super::value::{Lifetime, Value};

/// One version of a batch table: all that is read through it agrees, whatever is pushed or swapped
/// meanwhile. [`BatchTable::refresh`] goes on to the version that serves by then. Clones share the
/// version's files and what is known of them.
#[derive(Debug, Clone)]
pub struct BatchTable {
    table: Table,
    version: Arc<Version>,
    shape: Arc<Shape>,
}

impl BatchTable {
    /// Opens a version, by default the one that serves.
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

    /// The table's name.
    pub fn name(&self) -> &str {
        self.table.name().as_str()
    }

    /// The number of the version that is read.
    pub fn version(&self) -> u64 {
        self.version.version()
    }

    /// The least and the greatest number of rows that there can be: the same, but where a version
    /// went on with the rows of another one.
    pub fn rows_between(&self) -> (u64, u64) {
        self.version.manifest().rows_between()
    }

    /// The columns of its rows; of a table of other values, its one column.
    pub fn columns(&self) -> &[Column] {
        self.shape.schema.columns()
    }

    /// The value of a key.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value<'_>>, Error> {
        let value = self.version.get(key.as_ref())?;
        value.map(|value| Value::of(&self.shape, value)).transpose()
    }

    /// The values of many keys, in their order: faster than one by one.
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

    /// Whether a key is there.
    pub fn contains_key(&self, key: impl AsRef<[u8]>) -> Result<bool, Error> {
        Ok(self.version.exists(key.as_ref())?)
    }

    /// How much longer a key lasts.
    pub fn lifetime(&self, key: impl AsRef<[u8]>) -> Result<Lifetime, Error> {
        let expires_ms = self.version.expires_ms(key.as_ref())?;
        Ok(Lifetime::of(
            expires_ms,
            self.table.store().clock().unix_ms(),
        ))
    }

    /// All records, in the table's order: that of the keys, or of their hashes.
    pub fn iter(&self) -> Records {
        self.moment().records(&self.shape)
    }

    /// The records of a range of keys. Only of an ordered table.
    pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<Records, Error> {
        self.moment().range(&self.shape, &range)
    }

    /// The records whose keys begin with `prefix`. Only of an ordered table.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Records, Error> {
        self.moment().prefix(&self.shape, prefix.as_ref())
    }

    /// Goes on to the version that serves now; gives whether that is another one. It costs a read
    /// of a small file where it is the same.
    pub fn refresh(&mut self) -> Result<bool, Error> {
        let serving = self.table.serving()?;
        let other = serving != self.version();
        if other {
            *self = Self::open(self.table.clone(), Some(serving))?;
        }
        Ok(other)
    }

    /// All versions, rising.
    pub fn versions(&self) -> Result<Vec<VersionInfo>, Error> {
        Ok(self.table.versions()?)
    }

    /// Lets a version serve, for all who read the store. This handle stays at its own until
    /// [`BatchTable::refresh`].
    pub fn swap(&self, version: u64) -> Result<SwapReport, Error> {
        Ok(self.table.swap(version)?)
    }

    /// Lets the version serve again that served before. Within a minute of another rollback it is
    /// refused: [`BatchTable::rollback_from`] says from which version to go back.
    pub fn rollback(&self) -> Result<SwapReport, Error> {
        Ok(self.table.rollback()?)
    }

    /// The same if version `from` serves; nothing is changed if another one does.
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
