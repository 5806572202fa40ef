//! What a coordinator has to know of a version: its partitions, and so what nodes have to prove.

use forebay_engine::{Bounds, Manifest};
use forebay_run::Order;
use forebay_run::content::ContentSum;

use crate::ids::NodeId;
use crate::model::{Layout, Proof, RangeEntry};

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

    /// What a node has to prove that holds these ranges.
    pub fn proof(&self, ranges: &[Bounds]) -> Proof {
        let mut proof = Proof::default();
        for partition in self.held(ranges) {
            proof.partitions += 1;
            proof.rows = proof.rows.saturating_add(partition.rows);
            proof.content += partition.content;
        }
        proof
    }

    /// What its files take there.
    pub fn file_bytes(&self, ranges: &[Bounds]) -> u64 {
        let held = self.held(ranges);
        held.fold(0, |sum, partition| sum.saturating_add(partition.file_bytes))
    }
}

/// The ranges that a node holds of a table of so many replicas, or is to hold; neighbours joined.
pub fn ranges_of(layout: &Layout, replicas: usize, node: NodeId) -> Vec<Bounds> {
    let mut held: Vec<Bounds> = Vec::new();
    let mut ranges = layout.ranges().peekable();
    while let Some(range) = ranges.next() {
        if !holds(range, replicas, node) {
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

fn holds(range: &RangeEntry, replicas: usize, node: NodeId) -> bool {
    let lists = std::iter::once(&range.list).chain(&range.next);
    lists
        .flat_map(|list| list.iter().take(replicas))
        .any(|id| *id == node)
}

/// Whether a partition has a part in one of the ranges.
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

    fn bounds(lower: u16, upper: Option<u16>) -> Bounds {
        Bounds {
            lower: Bound::Slot(lower),
            upper: upper.map(Bound::Slot),
        }
    }

    fn entry(lower: u16, list: &[u32], next: Option<&[u32]>) -> RangeEntry {
        let ids = |list: &[u32]| list.iter().copied().map(NodeId).collect();
        RangeEntry {
            lower: Bound::Slot(lower),
            list: ids(list),
            next: next.map(ids),
        }
    }

    #[test]
    fn a_node_holds_what_lists_it_among_the_first() {
        let layout = Layout::new(
            Order::Hashed,
            vec![
                entry(0, &[1, 2, 3], None),
                entry(100, &[2, 3, 1], None),
                entry(200, &[3, 1, 2], Some(&[4, 1])),
            ],
        );
        let ranges = |replicas, node| ranges_of(&layout, replicas, NodeId(node));
        assert_eq!(ranges(1, 1), [bounds(0, Some(100))]);
        assert_eq!(ranges(2, 1), [bounds(0, Some(100)), bounds(200, None)]);
        assert_eq!(ranges(3, 1), [bounds(0, None)]);
        assert_eq!(ranges(1, 4), [bounds(200, None)]);
        assert!(ranges(3, 9).is_empty());
    }

    #[test]
    fn partitions_overlap_what_they_share_a_place_with() {
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
