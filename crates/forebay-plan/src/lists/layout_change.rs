//! The change from one layout to another: its ranges, its copies and drops, and its batches.
//!
//! It can stop between two batches. Batches go through the line from its first place to its last.
//! After a batch, places below a boundary have their new lists and the others their old ones. So
//! each intermediate layout has at most the classes of both together. A node heads at most as many
//! as it does before and after.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::{Class, Line};

/// A new layout and the change that leads to it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayoutChange {
    /// The number of places of the line.
    pub places: u32,
    pub old: Vec<Class>,
    pub classes: Vec<Class>,
    /// The ranges whose list changes, in the order of the line.
    pub ranges: Vec<RangeChange>,
    /// What each node copies and drops, by id; nodes that do neither are left out.
    pub nodes: Vec<NodeCopies>,
    /// The total amount copied, in the line's weights.
    pub copied: f64,
    /// An estimate of the copying needed: the weight by which nodes are below their shares
    /// (differences below one mean place ignored), or the missing replicas when lists grow. Not a
    /// lower bound.
    pub lacking: f64,
}

/// A range of places that gets another list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RangeChange {
    pub places: Range<u32>,
    /// The old nodes. Each one that is alive can be copied from.
    pub old: Vec<u32>,
    pub new: Vec<u32>,
    /// The size of one copy, in the line's weights.
    pub weight: f64,
}

impl RangeChange {
    /// Returns the nodes that copy the range. They have to be done before others drop it.
    pub fn copying(&self) -> impl Iterator<Item = u32> + '_ {
        self.new.iter().copied().filter(|id| !self.old.contains(id))
    }

    pub fn dropping(&self) -> impl Iterator<Item = u32> + '_ {
        self.old.iter().copied().filter(|id| !self.new.contains(id))
    }

    /// Returns the size of all copies of the range.
    pub fn copied(&self) -> f64 {
        self.weight * self.copying().count() as f64
    }
}

/// What a node copies from others and what it drops, in the line's weights.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeCopies {
    pub id: u32,
    pub copied: f64,
    pub dropped: f64,
}

/// Ranges that are changed together. After the batch, the layout is [`LayoutChange::layout_at`]
/// `until`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListBatch {
    pub ranges: Vec<RangeChange>,
    /// The first place that keeps its old list.
    pub until: u32,
    pub bytes: f64,
}

impl LayoutChange {
    /// Creates the change between two layouts of a line. Without `lacking`, it is the sum of the
    /// copies.
    pub(super) fn new(old: &[Class], new: Vec<Class>, line: &Line, lacking: Option<f64>) -> Self {
        let ranges = ranges(old, &new, line);
        let mut nodes: BTreeMap<u32, NodeCopies> = BTreeMap::new();
        let mut of = |id: u32, copied: f64, dropped: f64| {
            let node = nodes.entry(id).or_insert(NodeCopies {
                id,
                copied: 0.0,
                dropped: 0.0,
            });
            node.copied += copied;
            node.dropped += dropped;
        };
        for range in &ranges {
            range.copying().for_each(|id| of(id, range.weight, 0.0));
            range.dropping().for_each(|id| of(id, 0.0, range.weight));
        }
        let copied = ranges.iter().map(RangeChange::copied).sum();
        Self {
            places: line.places() as u32,
            old: old.to_vec(),
            classes: new,
            ranges,
            nodes: nodes.into_values().collect(),
            copied,
            lacking: lacking.unwrap_or(copied),
        }
    }

    /// Returns the layout in which places below this one have their new lists, and the others the
    /// old ones.
    pub fn layout_at(&self, place: u32) -> Vec<Class> {
        if place >= self.places {
            return self.classes.clone();
        }
        let mut layout: Vec<Class> = Vec::new();
        let new = self.classes.iter().filter(|class| class.start < place);
        layout.extend(new.cloned());
        let at = self.old.partition_point(|class| class.start <= place);
        let end = self.old.len();
        for class in &self.old[at.saturating_sub(1).min(end)..] {
            layout.push(Class {
                start: class.start.max(place),
                list: class.list.clone(),
            });
        }
        layout.dedup_by(|next, class| next.list == class.list);
        layout
    }

    /// Returns the ranges in batches that copy at most this many bytes each. A place that exceeds
    /// this is alone. The weights of `line`, the line of the layouts, times `bytes_per_weight` are
    /// bytes.
    pub fn batches(&self, line: &Line, bytes_per_weight: f64, most_bytes: f64) -> Vec<ListBatch> {
        let mut batches: Vec<ListBatch> = Vec::new();
        let mut open: Option<ListBatch> = None;
        for range in &self.ranges {
            let copies = range.copying().count() as f64 * bytes_per_weight;
            let mut start = range.places.start;
            while start < range.places.end {
                let room = most_bytes - open.as_ref().map_or(0.0, |batch| batch.bytes);
                let end = fitting(line, start..range.places.end, copies, room);
                if end == start && open.is_some() {
                    batches.extend(open.take());
                    continue;
                }
                let end = end.max(start + 1);
                let batch = open.get_or_insert(ListBatch {
                    ranges: Vec::new(),
                    until: start,
                    bytes: 0.0,
                });
                let weight = line.weight(start..end);
                batch.ranges.push(RangeChange {
                    places: start..end,
                    weight,
                    ..range.clone()
                });
                batch.bytes += weight * copies;
                batch.until = end;
                start = end;
            }
        }
        batches.extend(open);
        batches
    }
}

/// Returns the end of the places, from the first on, whose copies fit.
fn fitting(line: &Line, places: Range<u32>, copies: f64, room: f64) -> u32 {
    let mut bytes = 0.0;
    let fits = |&place: &u32| {
        bytes += line.weight(place..place + 1) * copies;
        bytes > room
    };
    places.clone().find(fits).unwrap_or(places.end)
}

/// Returns the ranges between the boundaries of both layouts whose lists differ.
fn ranges(old: &[Class], new: &[Class], line: &Line) -> Vec<RangeChange> {
    let places = line.places() as u32;
    let end =
        |classes: &[Class], index: usize| classes.get(index + 1).map_or(places, |next| next.start);
    let mut ranges = Vec::new();
    let (mut before, mut after, mut start) = (0, 0, 0);
    while start < places {
        let ends = (end(old, before), end(new, after));
        let next = ends.0.min(ends.1);
        if old[before].list != new[after].list {
            ranges.push(RangeChange {
                places: start..next,
                old: old[before].list.clone(),
                new: new[after].list.clone(),
                weight: line.weight(start..next),
            });
        }
        before += usize::from(ends.0 == next);
        after += usize::from(ends.1 == next);
        start = next;
    }
    ranges
}
