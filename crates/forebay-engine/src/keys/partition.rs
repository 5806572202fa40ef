//! The ids and bounds of partitions.
//!
//! A partition has an id, which identifies it for as long as its table, or version, has it, at any
//! position among the others. Its bounds define its part of the table's order. So a list of
//! partitions may omit some, as for a table that is only partly on this node.

use std::collections::BTreeSet;
use std::fmt;

use forebay_run::Order;
use serde::{Deserialize, Serialize};

use crate::keys::bound::Bound;

/// The most partitions that a table can have: one per slot.
pub const MAX_PARTITIONS: usize = 1 << 14;

/// The epoch of a partition that was created with its table.
pub(crate) const FIRST_EPOCH: u64 = 1;

/// The id of a partition. A push onto another version keeps its ids; a push of a whole table
/// numbers its partitions from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PartitionId(pub u32);

/// A range of a table's order: from `lower`, up to `upper`, which is excluded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bounds {
    pub lower: Bound,
    /// Absent: to the end of the order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upper: Option<Bound>,
}

/// A partition's id and its bounds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionRange {
    pub id: PartitionId,
    pub bounds: Bounds,
}

/// The partitions of a version that are open. Reads outside of them return
/// [`ReadError::NotHere`](crate::ReadError::NotHere).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OpenPartitions {
    All,
    Only(BTreeSet<PartitionId>),
}

impl Bounds {
    /// Returns whether the range contains a position.
    pub fn holds(&self, at: &Bound) -> bool {
        self.lower <= *at && self.upper.as_ref().is_none_or(|upper| at < upper)
    }

    /// Returns whether the range contains all of `other`.
    pub fn covers(&self, other: &Self) -> bool {
        let ends_behind = match (&self.upper, &other.upper) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(upper), Some(other)) => other <= upper,
        };
        self.lower <= other.lower && ends_behind
    }
}

impl OpenPartitions {
    pub fn holds(&self, id: PartitionId) -> bool {
        match self {
            OpenPartitions::All => true,
            OpenPartitions::Only(ids) => ids.contains(&id),
        }
    }
}

impl fmt::Display for PartitionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Bounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.upper {
            Some(upper) => write!(f, "from {} to below {upper}", self.lower),
            None => write!(f, "from {} on", self.lower),
        }
    }
}

/// Returns the beginning of an order.
pub(crate) fn first_bound(order: Order) -> Bound {
    match order {
        Order::Hashed => Bound::Slot(0),
        Order::Ordered => Bound::Key(Vec::new()),
    }
}

/// Returns the bounds of adjacent partitions: each ends where the next one begins.
pub(crate) fn side_by_side(lowers: Vec<Bound>) -> impl Iterator<Item = Bounds> {
    let mut lowers = lowers.into_iter().peekable();
    std::iter::from_fn(move || {
        let lower = lowers.next()?;
        let upper = lowers.peek().cloned();
        Some(Bounds { lower, upper })
    })
}

/// Returns adjacent partitions, numbered from 0.
pub(crate) fn numbered(lowers: Vec<Bound>) -> Vec<PartitionRange> {
    let bounds = side_by_side(lowers).zip(0..);
    let numbered = bounds.map(|(bounds, id)| PartitionRange {
        id: PartitionId(id),
        bounds,
    });
    numbered.collect()
}

/// Checks that these can be partitions of one table: of its order, rising, without overlap. The
/// text describes the fault.
pub(crate) fn check_apart<'a>(
    order: Order,
    partitions: impl Iterator<Item = (PartitionId, &'a Bounds)> + Clone,
) -> Result<(), String> {
    let count = partitions.clone().count();
    if count > MAX_PARTITIONS {
        return Err(format!(
            "{count} partitions: there can be {MAX_PARTITIONS} at most"
        ));
    }
    let mut ids = BTreeSet::new();
    let mut before: Option<&Bounds> = None;
    for (id, bounds) in partitions {
        if !ids.insert(id) {
            return Err(format!("two partitions have the id {id}"));
        }
        check_bounds(order, bounds).map_err(|problem| format!("partition {id}: {problem}"))?;
        match before.map(|before| &before.upper) {
            Some(None) => return Err(format!("partition {id} begins after the end of the order")),
            Some(Some(upper)) if *upper > bounds.lower => {
                let lower = &bounds.lower;
                return Err(format!(
                    "partition {id} begins at {lower}, but the one before ends at {upper}"
                ));
            }
            _ => {}
        }
        before = Some(bounds);
    }
    Ok(())
}

fn check_bounds(order: Order, bounds: &Bounds) -> Result<(), String> {
    let first = first_bound(order);
    let kind = std::mem::discriminant(&first);
    let foreign = std::iter::once(&bounds.lower)
        .chain(&bounds.upper)
        .find(|bound| std::mem::discriminant(*bound) != kind);
    if let Some(bound) = foreign {
        return Err(format!("a bound of the wrong kind: {bound}"));
    }
    match &bounds.upper {
        Some(upper) if *upper <= bounds.lower => Err(format!(
            "its bounds do not rise: {}, then {upper}",
            bounds.lower
        )),
        _ => Ok(()),
    }
}

/// Checks that the partitions, which passed [`check_apart`], cover the whole order.
pub(crate) fn check_whole<'a>(
    order: Order,
    bounds: impl Iterator<Item = &'a Bounds>,
) -> Result<(), String> {
    let first = first_bound(order);
    let mut end = Some(&first);
    for bounds in bounds {
        if end != Some(&bounds.lower) {
            let end = end.unwrap_or(&first);
            return Err(format!(
                "no partition holds the range from {end} to {}",
                bounds.lower
            ));
        }
        end = bounds.upper.as_ref();
    }
    match end {
        Some(end) => Err(format!("no partition holds the range from {end} on")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(id: u32, lower: u16, upper: Option<u16>) -> (PartitionId, Bounds) {
        let bounds = Bounds {
            lower: Bound::Slot(lower),
            upper: upper.map(Bound::Slot),
        };
        (PartitionId(id), bounds)
    }

    fn checked(ranges: &[(PartitionId, Bounds)]) -> (bool, bool) {
        let apart = check_apart(Order::Hashed, ranges.iter().map(|(id, at)| (*id, at))).is_ok();
        let whole = check_whole(Order::Hashed, ranges.iter().map(|(_, bounds)| bounds)).is_ok();
        (apart, whole)
    }

    #[test]
    fn partitions_may_leave_places_out_but_not_overlap() {
        let (low, high) = (range(7, 0, Some(100)), range(3, 100, None));
        assert_eq!(checked(&[low.clone(), high.clone()]), (true, true));
        assert_eq!(checked(std::slice::from_ref(&low)), (true, false));
        assert_eq!(checked(std::slice::from_ref(&high)), (true, false));
        assert_eq!(checked(&[low.clone(), range(3, 101, None)]), (true, false));
        assert_eq!(checked(&[]), (true, false));
        for bad in [
            [low.clone(), range(7, 100, None)],
            [low.clone(), range(3, 99, None)],
            [high.clone(), low.clone()],
            [low.clone(), range(3, 200, Some(200))],
            [range(7, 0, None), high.clone()],
        ] {
            assert!(!checked(&bad).0, "{bad:?}");
        }
    }

    #[test]
    fn each_ends_where_the_next_begins() {
        let lowers = [0, 5, 9].map(Bound::Slot).to_vec();
        let bounds: Vec<Bounds> = side_by_side(lowers).collect();
        assert_eq!(bounds[1].upper, Some(Bound::Slot(9)));
        assert_eq!(bounds[2].upper, None);
        assert_eq!(check_whole(Order::Hashed, bounds.iter()), Ok(()));
    }
}
