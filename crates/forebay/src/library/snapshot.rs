//! A snapshot of a live table.

use std::borrow::Cow;
use std::ops::RangeBounds;
use std::sync::Arc;

use forebay_engine::live;

use super::error::Error;
use super::records::{Moment, Records};
use super::shape::Shape;
use super::value::Value;

/// A live table as of the call of [`LiveTable::snapshot`](crate::LiveTable::snapshot), readable at
/// any later time. Runs that are merged meanwhile keep their disk space.
#[derive(Debug, Clone)]
pub struct Snapshot {
    snapshot: live::Snapshot,
    shape: Arc<Shape>,
}

impl Snapshot {
    pub(super) fn new(snapshot: live::Snapshot, shape: &Arc<Shape>) -> Self {
        Self {
            snapshot,
            shape: Arc::clone(shape),
        }
    }

    /// Returns the value of a key.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value<'static>>, Error> {
        let value = self.snapshot.get(key.as_ref())?;
        let value = value.map(|value| Value::of(&self.shape, Cow::Owned(value)));
        value.transpose()
    }

    /// Returns all records, in the table's order.
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

    fn moment(&self) -> Moment {
        Moment::Live(self.snapshot.clone())
    }
}

impl IntoIterator for &Snapshot {
    type Item = <Records as Iterator>::Item;
    type IntoIter = Records;

    fn into_iter(self) -> Records {
        self.iter()
    }
}
