//! Determines which partitions of the table are on this node.
//!
//! Records of other partitions are refused.

use forebay_engine::live::Load;
use forebay_engine::{Bound, PartitionId, show_key};
use forebay_run::Order;
use forebay_run::operation::Operation;

use crate::sort::{Boundaries, Finish, SortError};

/// The table's order, split into the partitions on this node and the gaps between them.
#[derive(Debug)]
pub struct LoadRanges {
    /// The lower bound of each, from the very start of the order.
    pub boundaries: Boundaries,
    /// The partition of each; `None` for a gap.
    partitions: Vec<Option<PartitionId>>,
    /// Whether the runs get filters.
    filters: bool,
}

impl LoadRanges {
    pub fn of(load: &Load) -> Self {
        let mut begins: Vec<(Bound, Option<PartitionId>)> = Vec::new();
        // The upper bound of the previous partition.
        let mut end = Some(match load.options().order {
            Order::Hashed => Bound::Slot(0),
            Order::Ordered => Bound::Key(Vec::new()),
        });
        for range in load.partitions() {
            let gap = end.take().filter(|end| *end != range.bounds.lower);
            begins.extend(gap.map(|gap| (gap, None)));
            begins.push((range.bounds.lower.clone(), Some(range.id)));
            end.clone_from(&range.bounds.upper);
        }
        begins.extend(end.map(|gap| (gap, None)));
        let (bounds, partitions) = begins.into_iter().unzip();
        Self {
            boundaries: Boundaries::at(bounds),
            partitions,
            filters: false,
        }
    }

    pub fn with_filters(self, filters: bool) -> Self {
        Self { filters, ..self }
    }

    pub fn partition(&self, number: usize) -> Option<PartitionId> {
        self.partitions[number]
    }
}

impl Finish for LoadRanges {
    fn finish<'a>(
        &self,
        partition: usize,
        key: &[u8],
        operation: Operation<'a>,
    ) -> Result<Option<Operation<'a>>, SortError> {
        match self.partition(partition) {
            Some(_) => Ok(Some(operation)),
            None => Err(SortError::NotHere { key: show_key(key) }),
        }
    }

    fn wants_filter(&self, _partition: usize) -> bool {
        self.filters
    }
}
