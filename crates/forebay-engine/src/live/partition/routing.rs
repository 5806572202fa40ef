//! The routing of a table's keys to partitions at one moment.

use std::sync::Arc;

use arc_swap::Guard;

use crate::keys::partition::PartitionId;
use crate::keys::route::Router;
use crate::live::partition::shared::LiveShared;

/// A fixed router of keys to partitions, as the table had it when this was taken. Use it to route
/// several keys by the same state.
#[derive(Debug)]
pub struct KeyRouting<'t> {
    shared: &'t LiveShared,
    router: Guard<Arc<Router>>,
}

impl<'t> KeyRouting<'t> {
    pub(crate) fn of(shared: &'t LiveShared) -> Self {
        Self {
            shared,
            router: shared.parts.routing(),
        }
    }

    /// Returns a number that changes whenever any key is routed to another partition. If it is the
    /// same before and after some reads, they were routed alike.
    pub fn number(&self) -> u64 {
        self.router.number()
    }

    /// Returns the partition that has a key; `None` if the table does not hold it.
    #[inline]
    pub fn partition_of(&self, key: &[u8]) -> Option<PartitionId> {
        let place = self.shared.shape.place(key);
        let found = self.router.partition(place.hash, key);
        found.map(|place| self.shared.parts.id_at(place))
    }
}
