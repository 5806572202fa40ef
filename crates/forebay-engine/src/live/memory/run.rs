//! A run of a partition, which may see only a part of the file.
//!
//! A split copies nothing: both children name the runs of the partition, each with its bounds. A
//! merge writes only what its partition sees, so the new run belongs to it alone. Look-ups need no
//! check: a key of a partition is in its part of the runs. A walk over a run needs one.

use std::ops::Bound as RangeBound;
use std::path::Path;
use std::sync::Arc;

use forebay_io::Disk;
use forebay_run::hash::first_hash_of;
use forebay_run::scan::{Cursor, Direction, Position, ScanRange};
use forebay_run::{Run, RunError, RunScan};

use crate::documents::layout::TableFiles;
use crate::documents::run_description::RunDescription;
use crate::keys::bound::Bound;
use crate::keys::partition::Bounds;
use crate::live::basics::error::LiveError;
use crate::live::basics::manifest::LiveRunRef;
use crate::live::basics::removed::is_void;
use crate::live::basics::shape::Shape;

/// A run as its partition sees it, with its entry in the manifest.
#[derive(Debug)]
pub(crate) struct LiveRun {
    pub run: Arc<Run>,
    pub reference: LiveRunRef,
    /// The part of it that the partition sees; without it, all.
    seen: Option<ScanRange>,
}

impl LiveRun {
    /// Creates a run. REQUIRES: the file is that of the described run.
    pub fn new(run: Arc<Run>, reference: LiveRunRef) -> Self {
        debug_assert_eq!(
            *run.summary(),
            reference.summary,
            "run {} is described by what another one holds",
            reference.id
        );
        let seen = reference.range.as_ref().map(scan_range);
        Self {
            run,
            reference,
            seen,
        }
    }

    /// Returns the parts of some ranges of the run that the partition sees.
    pub fn seen(&self, ranges: Vec<ScanRange>) -> Vec<ScanRange> {
        match &self.seen {
            None => ranges,
            Some(seen) => {
                let narrowed = ranges.iter().map(|range| narrowed(range, seen));
                narrowed.filter(|range| !is_void(range)).collect()
            }
        }
    }

    /// Returns about how many pages of the file the partition sees.
    pub fn pages_seen(&self) -> u64 {
        match &self.seen {
            None => self.run.summary().pages,
            Some(seen) => self.run.pages_in(seen),
        }
    }

    /// Returns whether a child with these bounds sees a record of it. Reads a page.
    pub fn counts_within(&self, bounds: &Bounds) -> Result<bool, RunError> {
        Ok(!self.reference.removed.is_empty() || has_records(&self.run, scan_range(bounds))?)
    }

    /// Returns the run as a partition with these bounds sees it. `is_shared`: another one has it,
    /// too. Reads a page or two.
    pub fn within(&self, bounds: &Bounds, is_shared: bool) -> Result<Arc<Self>, RunError> {
        let is_cut = is_shared || self.has_records_outside(bounds)?;
        let reference = LiveRunRef {
            range: is_cut.then(|| bounds.clone()),
            ..self.reference.clone()
        };
        Ok(Arc::new(Self::new(Arc::clone(&self.run), reference)))
    }

    fn has_records_outside(&self, bounds: &Bounds) -> Result<bool, RunError> {
        let before = ScanRange {
            from: RangeBound::Unbounded,
            to: RangeBound::Excluded(position(&bounds.lower)),
        };
        let behind = bounds.upper.as_ref().map(|upper| ScanRange {
            from: RangeBound::Included(position(upper)),
            to: RangeBound::Unbounded,
        });
        for range in std::iter::once(before).chain(behind) {
            if has_records(&self.run, range)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Opens the file of a run and compares it with its entry in the manifest.
pub(crate) fn open_file(
    disk: &dyn Disk,
    files: &TableFiles,
    shape: &Shape,
    reference: &LiveRunRef,
) -> Result<Arc<Run>, LiveError> {
    let path = files.run(&reference.id);
    let run = Run::open(disk, &path).map_err(|source| shape.run_error(source))?;
    match differs(shape, reference, &run) {
        Some(what) => Err(refused(shape, &path, what)),
        None => Ok(Arc::new(run)),
    }
}

fn differs(shape: &Shape, reference: &LiveRunRef, run: &Run) -> Option<String> {
    let described = RunDescription {
        summary: &reference.summary,
        order: shape.order,
        hasher: &shape.hasher,
    };
    let foreign = || "it was made for a table of another name".to_owned();
    let differs = described.differs(run);
    differs.or_else(|| (run.hasher() != &shape.hasher).then(foreign))
}

fn refused(shape: &Shape, path: &Path, what: String) -> LiveError {
    shape.run_error(RunError::refused(path, what))
}

fn has_records(run: &Arc<Run>, range: ScanRange) -> Result<bool, RunError> {
    if is_void(&range) {
        return Ok(false);
    }
    RunScan::new(Arc::clone(run), range, Direction::Forward).advance()
}

/// Returns the range of positions between the bounds of a partition.
fn scan_range(bounds: &Bounds) -> ScanRange {
    ScanRange {
        from: RangeBound::Included(position(&bounds.lower)),
        to: match &bounds.upper {
            Some(upper) => RangeBound::Excluded(position(upper)),
            None => RangeBound::Unbounded,
        },
    }
}

fn position(bound: &Bound) -> Position {
    match bound {
        Bound::Slot(slot) => Position {
            hash: first_hash_of(u32::from(*slot)).unwrap_or(u64::MAX),
            key: Vec::new(),
        },
        Bound::Key(key) => Position {
            hash: 0,
            key: key.clone(),
        },
    }
}

/// Returns the intersection of two ranges.
fn narrowed(range: &ScanRange, within: &ScanRange) -> ScanRange {
    ScanRange {
        from: later(&range.from, &within.from).clone(),
        to: earlier(&range.to, &within.to).clone(),
    }
}

type End = RangeBound<Position>;

fn later<'a>(a: &'a End, b: &'a End) -> &'a End {
    use RangeBound::{Excluded, Included, Unbounded};
    match (a, b) {
        (Unbounded, other) | (other, Unbounded) => other,
        (Included(at) | Excluded(at), Included(other)) => match at >= other {
            true => a,
            false => b,
        },
        (Included(at) | Excluded(at), Excluded(other)) => match at > other {
            true => a,
            false => b,
        },
    }
}

fn earlier<'a>(a: &'a End, b: &'a End) -> &'a End {
    use RangeBound::{Excluded, Included, Unbounded};
    match (a, b) {
        (Unbounded, other) | (other, Unbounded) => other,
        (Included(at) | Excluded(at), Included(other)) => match at <= other {
            true => a,
            false => b,
        },
        (Included(at) | Excluded(at), Excluded(other)) => match at < other {
            true => a,
            false => b,
        },
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn end(kind: u8, hash: u64, key: u8) -> End {
        let at = Position {
            hash,
            key: vec![key],
        };
        match kind % 3 {
            0 => End::Unbounded,
            1 => End::Included(at),
            _ => End::Excluded(at),
        }
    }

    fn holds(range: &ScanRange, hash: u64, key: &[u8]) -> bool {
        !range.is_below(hash, key) && !range.is_above(hash, key)
    }

    proptest! {
        #[test]
        fn a_place_in_both_ranges_lies_in_their_intersection(
            ends in proptest::collection::vec((any::<u8>(), 0u64..3, 0u8..4), 4),
        ) {
            let ends: Vec<End> = ends.into_iter().map(|(k, hash, key)| end(k, hash, key)).collect();
            let range = |from: &End, to: &End| ScanRange { from: from.clone(), to: to.clone() };
            let (a, b) = (range(&ends[0], &ends[1]), range(&ends[2], &ends[3]));
            let both = narrowed(&a, &b);
            for hash in 0..3 {
                for key in 0..4 {
                    let wanted = holds(&a, hash, &[key]) && holds(&b, hash, &[key]);
                    prop_assert_eq!(holds(&both, hash, &[key]), wanted);
                    prop_assert!(!wanted || !is_void(&both));
                }
            }
        }
    }

    #[test]
    fn slots_are_ranges_of_hashes() {
        let bounds = Bounds {
            lower: Bound::Slot(3),
            upper: Some(Bound::Slot(5)),
        };
        let range = scan_range(&bounds);
        let first = |slot| first_hash_of(slot).unwrap();
        assert!(holds(&range, first(3), b"a") && holds(&range, first(5) - 1, b"a"));
        assert!(!holds(&range, first(3) - 1, b"a") && !holds(&range, first(5), b""));
        let open = Bounds {
            upper: None,
            ..bounds
        };
        assert!(holds(&scan_range(&open), u64::MAX, b"z"));
    }
}
