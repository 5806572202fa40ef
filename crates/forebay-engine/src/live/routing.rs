//! Where keys of a table lie at one moment.

use std::sync::Arc;

use arc_swap::Guard;

use crate::live::shared::LiveShared;
use crate::partition::PartitionId;
use crate::route::Router;

/// Leads keys as the table did when it was taken: for several keys that is looked up once.
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

    /// A number that is another one once any key is led to another partition than before. Where it
    /// is the same before and after, all that was read between was led alike.
    pub fn number(&self) -> u64 {
        self.router.number()
    }

    /// The partition that a key lies in; `None`: it is not here.
    #[inline]
    pub fn partition_of(&self, key: &[u8]) -> Option<PartitionId> {
        let place = self.shared.shape.place(key);
        let found = self.router.partition(place.hash, key);
        found.map(|place| self.shared.parts.id_at(place))
    }
}
