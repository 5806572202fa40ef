//! A coordinator's summary of a version: its partitions, from which the nodes' proofs follow.

use forebay_engine::{Bounds, Manifest};
use forebay_run::Order;
use forebay_run::content::ContentSum;

use crate::ids::NodeId;
use crate::model::{Layout, Proof, RangeEntry, TableEntry};

/// The space that a disk must have left in addition to the data to fetch.
pub const SPARE_BYTES: u64 = 16 << 20;

/// The parts of a manifest that matter to a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionSummary {
    pub order: Order,
    pub partitions: Vec<PartitionSummary>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionSummary {
    pub bounds: Bounds,
    pub rows: u64,
    pub content: ContentSum,
    pub file_bytes: u64,
}

impl VersionSummary {
    pub fn of(manifest: &Manifest) -> Self {
        let partitions = manifest.partitions.iter().map(|partition| {
            let files = partition.runs.iter();
            let bytes = |sum: u64, run: &forebay_engine::RunRef| {
                sum.saturating_add(run.summary.file_bytes)
                    .saturating_add(run.summary.ext_bytes)
            };
            PartitionSummary {
                bounds: partition.bounds.clone(),
                rows: partition.totals.rows,
                content: partition.totals.content,
                file_bytes: files.fold(0, bytes),
            }
        });
        Self {
            order: manifest.order,
            partitions: partitions.collect(),
        }
    }

    fn held<'a>(&'a self, ranges: &'a [Bounds]) -> impl Iterator<Item = &'a PartitionSummary> {
        let partitions = self.partitions.iter();
        partitions.filter(|partition| overlaps_any(&partition.bounds, ranges))
    }

    /// Returns the proof that a node with these ranges has to give.
    pub fn proof(&self, ranges: &[Bounds]) -> Proof {
        let mut proof = Proof::default();
        for partition in self.held(ranges) {
            proof.partitions += 1;
            proof.rows = proof.rows.saturating_add(partition.rows);
            proof.content += partition.content;
        }
        proof
    }

    /// Returns the size of its files for these ranges.
    pub fn file_bytes(&self, ranges: &[Bounds]) -> u64 {
        let held = self.held(ranges);
        held.fold(0, |sum, partition| sum.saturating_add(partition.file_bytes))
    }
}

/// Returns the ranges of a table that a node holds or has to hold, with adjacent ranges joined.
pub fn ranges_of(layout: &Layout, entry: &TableEntry, node: NodeId) -> Vec<Bounds> {
    ranges_where(layout, |range| {
        range.holders(entry.holding()).any(|id| id == node)
    })
}

/// Returns the ranges of a table for which other nodes ask a node. It answers these before it
/// fetches more.
pub fn ranges_answered(layout: &Layout, entry: &TableEntry, node: NodeId) -> Vec<Bounds> {
    ranges_where(layout, |range| entry.of_list(&range.list).contains(&node))
}

fn ranges_where(layout: &Layout, is_held: impl Fn(&RangeEntry) -> bool) -> Vec<Bounds> {
    let mut held: Vec<Bounds> = Vec::new();
    let mut ranges = layout.ranges().peekable();
    while let Some(range) = ranges.next() {
        if !is_held(range) {
            continue;
        }
        let upper = ranges.peek().map(|next| next.lower.clone());
        match held.last_mut() {
            Some(last) if last.upper.as_ref() == Some(&range.lower) => last.upper = upper,
            _ => held.push(Bounds {
                lower: range.lower.clone(),
                upper,
            }),
        }
    }
    held
}

/// Returns whether a partition overlaps one of the ranges.
pub fn overlaps_any(partition: &Bounds, ranges: &[Bounds]) -> bool {
    let begins_before = |a: &Bounds, b: &Bounds| match &b.upper {
        Some(upper) => a.lower < *upper,
        None => true,
    };
    ranges
        .iter()
        .any(|range| begins_before(partition, range) && begins_before(range, partition))
}

#[cfg(test)]
mod tests {
    use forebay_engine::Bound;

    use super::*;
    use crate::model::LayoutName;

    fn bounds(lower: u16, upper: Option<u16>) -> Bounds {
        Bounds {
            lower: Bound::Slot(lower),
            upper: upper.map(Bound::Slot),
        }
    }

    fn range(lower: u16, list: &[u32], next: Option<&[u32]>, before: Option<&[u32]>) -> RangeEntry {
        let ids = |list: &[u32]| list.iter().copied().map(NodeId).collect();
        RangeEntry {
            next: next.map(ids),
            before: before.map(ids),
            ..RangeEntry::new(Bound::Slot(lower), ids(list))
        }
    }

    fn table(replicas: usize) -> TableEntry {
        TableEntry::new(Order::Hashed, LayoutName::Main, replicas)
    }

    #[test]
    fn a_node_holds_the_ranges_that_list_it_among_the_first() {
        let ranges = vec![
            range(0, &[1, 2, 3], None, None),
            range(100, &[2, 3, 1], None, None),
            range(200, &[3, 1, 2], Some(&[4, 1]), None),
            range(300, &[3, 1, 2], None, Some(&[5, 6])),
        ];
        let layout = Layout::new(Order::Hashed, ranges);
        let held = |replicas, node| ranges_of(&layout, &table(replicas), NodeId(node));
        assert_eq!(held(1, 1), [bounds(0, Some(100))]);
        assert_eq!(held(2, 1), [bounds(0, Some(100)), bounds(200, None)]);
        assert_eq!(held(3, 1), [bounds(0, None)]);
        assert_eq!(held(1, 4), [bounds(200, Some(300))]);
        assert!(held(1, 6).is_empty());
        assert_eq!(held(2, 6), [bounds(300, None)]);
        assert!(held(3, 9).is_empty());
        let answered = |replicas, node| ranges_answered(&layout, &table(replicas), NodeId(node));
        assert!(answered(3, 4).is_empty());
        assert_eq!(answered(2, 1), [bounds(0, Some(100)), bounds(200, None)]);
        let growing = TableEntry {
            replicas_held: Some(2),
            ..table(1)
        };
        assert_eq!(
            ranges_of(&layout, &growing, NodeId(1)),
            held(2, 1),
            "more nodes will hold it"
        );
        assert_eq!(ranges_answered(&layout, &growing, NodeId(1)), held(1, 1));
    }

    #[test]
    fn changing_part_of_a_range_splits_it_and_joins_equal_ranges() {
        let mut layout = Layout::new(
            Order::Hashed,
            vec![range(0, &[1], None, None), range(100, &[2], None, None)],
        );
        let part = bounds(50, Some(150));
        layout.change([(&part, |range: &mut RangeEntry| {
            range.next = Some(vec![NodeId(3)])
        })]);
        let lowers = |layout: &Layout| -> Vec<Bound> {
            layout.ranges().map(|range| range.lower.clone()).collect()
        };
        assert_eq!(lowers(&layout), [0, 50, 100, 150].map(Bound::Slot));
        assert_eq!(layout.within(&part).count(), 2);
        let to_next = |range: &mut RangeEntry| range.list = range.next.take().unwrap_or_default();
        layout.change([(&part, to_next)]);
        assert_eq!(lowers(&layout), [0, 50, 150].map(Bound::Slot));
        let to_one = |range: &mut RangeEntry| range.list = vec![NodeId(7)];
        layout.change([(&bounds(0, None), to_one), (&bounds(50, Some(60)), to_one)]);
        assert_eq!(lowers(&layout), [Bound::Slot(0)]);
        assert_eq!(layout.within(&bounds(5, Some(6))).count(), 1);
    }

    #[test]
    fn partitions_overlap_ranges_that_share_a_place() {
        let ranges = [bounds(100, Some(200)), bounds(300, None)];
        for (partition, expected) in [
            (bounds(0, None), true),
            (bounds(0, Some(100)), false),
            (bounds(0, Some(101)), true),
            (bounds(199, Some(300)), true),
            (bounds(200, Some(300)), false),
            (bounds(16000, None), true),
        ] {
            assert_eq!(overlaps_any(&partition, &ranges), expected, "{partition}");
        }
        assert!(!overlaps_any(&bounds(0, None), &[]));
    }
}
