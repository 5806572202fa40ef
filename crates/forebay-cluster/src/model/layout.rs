//! Layouts: the nodes that hold each range of an order.
//!
//! A layout divides an order into ranges. Each range has a preference list: the nodes that hold it,
//! the primary first. A table of R replicas is on the first R nodes of each list.
//!
//! All hashed tables share the layout `main`, as the stores of a Voldemort cluster share its ring
//! (Spock, 3.1.2). Each ordered table has its own layout. So does a batch table that was placed by
//! its load. The length of its lists depends on how much their ranges are read, and all nodes of a
//! list hold the range.

use std::fmt;

use forebay_engine::{Bound, Bounds, TableName};
use forebay_run::Order;
use serde::{Deserialize, Serialize};

use super::doc::{Doc, DocRef};
use crate::ids::NodeId;

/// The number of ranges in one document.
const CHUNK_RANGES: usize = 256;

/// The name of a layout: `main`, or the table that alone uses it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LayoutName {
    Main,
    Table(TableName),
}

/// A layout: a root document, and the documents of its ranges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    pub order: Order,
    chunks: Vec<Doc<LayoutChunk>>,
    root: Option<DocRef>,
}

/// The content of a layout's root document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayoutRoot {
    pub order: Order,
    pub chunks: Vec<DocRef>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayoutChunk {
    pub ranges: Vec<RangeEntry>,
}

/// A range of an order, from `lower` to the next range's `lower`, with its preference list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RangeEntry {
    pub lower: Bound,
    /// The preference list, the primary first.
    pub list: Vec<NodeId>,
    /// The next preference list, while its nodes copy the range.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Vec<NodeId>>,
    /// The previous preference list, while some node may not know the new one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Vec<NodeId>>,
}

impl fmt::Display for LayoutName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // No table has a colon in its name.
            LayoutName::Main => f.write_str(":main"),
            LayoutName::Table(table) => table.fmt(f),
        }
    }
}

impl LayoutName {
    /// Parses what [`Display`](fmt::Display) writes.
    pub(super) fn parse(text: &str) -> Option<Self> {
        match text {
            ":main" => Some(LayoutName::Main),
            table => TableName::new(table).ok().map(LayoutName::Table),
        }
    }
}

impl RangeEntry {
    /// Creates a range that does not move.
    pub fn new(lower: Bound, list: Vec<NodeId>) -> Self {
        Self {
            lower,
            list,
            next: None,
            before: None,
        }
    }

    /// Returns the nodes that hold the range, or are to hold it, for a table of so many replicas. A
    /// node may appear twice.
    pub fn holders(&self, replicas: usize) -> impl Iterator<Item = NodeId> {
        let lists = [Some(&self.list), self.next.as_ref(), self.before.as_ref()];
        let lists = lists.into_iter().flatten();
        lists.flat_map(move |list| list.iter().take(replicas).copied())
    }

    fn is_like(&self, other: &Self) -> bool {
        (&self.list, &self.next, &self.before) == (&other.list, &other.next, &other.before)
    }
}

/// Makes a range begin at this bound, and returns the range's index.
fn cut(ranges: &mut Vec<RangeEntry>, at: &Bound) -> usize {
    let next = ranges.partition_point(|range| range.lower < *at);
    let begins = ranges.get(next).is_some_and(|range| range.lower == *at);
    if let Some(before) = next.checked_sub(1)
        && !begins
    {
        let lower = at.clone();
        let cut = RangeEntry {
            lower,
            ..ranges[before].clone()
        };
        ranges.insert(next, cut);
    }
    next
}

impl Layout {
    /// Creates a layout. REQUIRES: the ranges rise, and the first begins where the order does.
    pub fn new(order: Order, ranges: Vec<RangeEntry>) -> Self {
        let mut layout = Self {
            order,
            chunks: Vec::new(),
            root: None,
        };
        layout.replace(ranges);
        layout
    }

    pub fn ranges(&self) -> impl Iterator<Item = &RangeEntry> + Clone {
        self.chunks.iter().flat_map(|chunk| &chunk.ranges)
    }

    /// Replaces the ranges. Chunks that do not change are not written again.
    pub fn replace(&mut self, ranges: Vec<RangeEntry>) {
        let known = std::mem::take(&mut self.chunks);
        let mut known = known.into_iter();
        let chunks = ranges.chunks(CHUNK_RANGES).map(|ranges| {
            let chunk = LayoutChunk {
                ranges: ranges.to_vec(),
            };
            match known.next() {
                Some(same) if *same == chunk => same,
                _ => Doc::new(chunk),
            }
        });
        self.chunks = chunks.collect();
        self.root = None;
    }

    /// Applies changes to parts of the order, one after the other. Splits ranges at the parts'
    /// bounds, and joins adjacent ranges whose lists are equal.
    pub fn change<'a, C: Fn(&mut RangeEntry)>(
        &mut self,
        changes: impl IntoIterator<Item = (&'a Bounds, C)>,
    ) {
        let mut ranges: Vec<RangeEntry> = self.ranges().cloned().collect();
        for (bounds, change) in changes {
            let first = cut(&mut ranges, &bounds.lower);
            let end = match &bounds.upper {
                Some(upper) => cut(&mut ranges, upper),
                None => ranges.len(),
            };
            ranges[first..end.max(first)].iter_mut().for_each(change);
        }
        ranges.dedup_by(|next, range| next.is_like(range));
        self.replace(ranges);
    }

    /// Returns the ranges that overlap these bounds.
    pub fn within<'a>(&'a self, bounds: &'a Bounds) -> impl Iterator<Item = &'a RangeEntry> {
        // The chunk in which the bounds begin, and the later ones.
        let begins = |chunk: &Doc<LayoutChunk>| {
            let first = chunk.ranges.first();
            first.is_none_or(|first| first.lower <= bounds.lower)
        };
        let behind = self.chunks.partition_point(begins);
        let chunks = self.chunks[behind.saturating_sub(1)..].iter();
        let mut ranges = chunks.flat_map(|chunk| &chunk.ranges).peekable();
        std::iter::from_fn(move || {
            let range = ranges.next()?;
            let next = ranges.peek().map(|next| &next.lower);
            let is_before = next.is_some_and(|next| *next <= bounds.lower);
            let upper = bounds.upper.as_ref();
            if upper.is_some_and(|upper| range.lower >= *upper) {
                return None;
            }
            Some((!is_before).then_some(range))
        })
        .flatten()
    }

    /// Creates a layout from documents that were read.
    pub fn read(root: DocRef, order: Order, chunks: Vec<Doc<LayoutChunk>>) -> Self {
        Self {
            order,
            chunks,
            root: Some(root),
        }
    }

    pub fn root(&self) -> Option<&DocRef> {
        self.root.as_ref()
    }

    pub fn chunks(&self) -> &[Doc<LayoutChunk>] {
        &self.chunks
    }

    pub(super) fn chunks_mut(&mut self) -> &mut [Doc<LayoutChunk>] {
        &mut self.chunks
    }

    pub(super) fn root_written(&mut self, reference: DocRef) {
        self.root = Some(reference);
    }
}
