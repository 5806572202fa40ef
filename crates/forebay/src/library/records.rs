//! Scans as iterators.

use std::borrow::Cow;
use std::fmt;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use forebay_engine::live::Snapshot;
use forebay_engine::{Scan, SourceError, Version};
use forebay_run::scan::{Direction, ScanRange};

use super::error::Error;
use super::shape::Shape;
use super::value::Value;

/// The source of a scan.
#[derive(Debug, Clone)]
pub(super) enum Moment {
    Batch(Arc<Version>),
    Live(Snapshot),
}

/// An iterator over the records of a range, in the table's order: pairs of a key and its value. It
/// reads one version, or one moment of a live table: no write and no swap changes its records.
/// After an error it ends.
pub struct Records {
    moment: Moment,
    shape: Arc<Shape>,
    range: ScanRange,
    scan: Scan,
    ended: bool,
}

impl Moment {
    fn scan(&self, range: ScanRange, direction: Direction) -> Scan {
        match self {
            Moment::Batch(version) => Scan::Batch(version.scan_range(range, direction)),
            Moment::Live(snapshot) => Scan::Live(snapshot.scan_range(range, direction)),
        }
    }

    fn scan_keys(&self, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Result<Scan, SourceError> {
        Ok(match self {
            Moment::Batch(version) => {
                Scan::Batch(version.scan_keys(from, to, Direction::Forward)?)
            }
            Moment::Live(snapshot) => {
                Scan::Live(snapshot.scan_keys(from, to, Direction::Forward)?)
            }
        })
    }

    /// Returns all records.
    pub fn records(self, shape: &Arc<Shape>) -> Records {
        let scan = self.scan(ScanRange::all(), Direction::Forward);
        Records::new(self, shape, ScanRange::all(), scan)
    }

    /// Returns the records of a range of keys.
    pub fn range<K: AsRef<[u8]>>(
        self,
        shape: &Arc<Shape>,
        range: &impl RangeBounds<K>,
    ) -> Result<Records, Error> {
        let (from, to) = (range.start_bound(), range.end_bound());
        let (from, to) = (from.map(AsRef::as_ref), to.map(AsRef::as_ref));
        self.between(shape, from, to)
    }

    /// Returns the records whose keys begin with a prefix.
    pub fn prefix(self, shape: &Arc<Shape>, prefix: &[u8]) -> Result<Records, Error> {
        let behind = ScanRange::behind_prefix(prefix);
        let behind = behind.as_ref().map(Vec::as_slice);
        self.between(shape, Bound::Included(prefix), behind)
    }

    fn between(
        self,
        shape: &Arc<Shape>,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
    ) -> Result<Records, Error> {
        let scan = self.scan_keys(from, to)?;
        Ok(Records::new(self, shape, ScanRange::keys(from, to), scan))
    }
}

impl Records {
    fn new(moment: Moment, shape: &Arc<Shape>, range: ScanRange, scan: Scan) -> Self {
        Self {
            moment,
            shape: Arc::clone(shape),
            range,
            scan,
            ended: false,
        }
    }

    /// Returns the same records from the last to the first, even if some were read already.
    #[must_use]
    pub fn rev(mut self) -> Self {
        self.scan = self.moment.scan(self.range.clone(), Direction::Backward);
        self.ended = false;
        self
    }
}

impl Iterator for Records {
    type Item = Result<(Vec<u8>, Value<'static>), Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let record = match self.scan.advance() {
            Ok(true) => {
                let value = Value::of(&self.shape, Cow::Owned(self.scan.value().to_vec()));
                Some(value.map(|value| (self.scan.key().to_vec(), value)))
            }
            Ok(false) => None,
            Err(error) => Some(Err(error.into())),
        };
        self.ended = !matches!(record, Some(Ok(_)));
        record
    }
}

impl std::iter::FusedIterator for Records {}

impl fmt::Debug for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.scan.fmt(f)
    }
}
