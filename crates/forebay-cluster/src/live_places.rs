//! Where keys of live tables are, for whoever leads commands to them.

use std::collections::BTreeMap;

use forebay_engine::{Bound, PartitionId, TableName, ValueKind};
use forebay_run::Order;
use forebay_run::hash::KeyHasher;

use crate::ids::NodeId;
use crate::live::{LiveRoute, live_routes};
use crate::model::Model;
use forebay_replica::GroupId;

/// The live tables of a cluster. It never changes: a server takes it once a command.
#[derive(Debug, Default)]
pub struct LivePlaces {
    tables: BTreeMap<TableName, LivePlace>,
}

/// Where the partitions of a live table are.
#[derive(Debug)]
pub struct LivePlace {
    pub order: Order,
    pub kind: ValueKind,
    hasher: KeyHasher,
    /// Side by side, from the beginning of the order.
    routes: Vec<LiveRoute>,
    /// Where each partition's is among them, by its number.
    places: Vec<(PartitionId, usize)>,
}

impl LivePlaces {
    pub fn new(model: &Model, leaders: &BTreeMap<GroupId, NodeId>) -> Self {
        let routes = live_routes(model, leaders).into_iter();
        let place = |(name, mut routes): (TableName, Vec<LiveRoute>)| {
            let options = &model.table(&name)?.live()?.options;
            let (order, kind) = (options.order, options.value.clone());
            routes.sort_by(|one, other| one.bounds.lower.cmp(&other.bounds.lower));
            let hasher = KeyHasher::new(&name.wire_prefix());
            let partitions = routes.iter().map(|route| route.partition);
            let mut places: Vec<_> = partitions.zip(0..).collect();
            places.sort_unstable();
            let place = LivePlace {
                order,
                kind,
                hasher,
                routes,
                places,
            };
            Some((name, place))
        };
        Self {
            tables: routes.filter_map(place).collect(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }

    pub fn tables(&self) -> impl Iterator<Item = (&TableName, &LivePlace)> {
        self.tables.iter()
    }

    pub fn table(&self, name: &[u8]) -> Option<&LivePlace> {
        if self.tables.is_empty() {
            return None;
        }
        self.tables.get(std::str::from_utf8(name).ok()?)
    }
}

impl LivePlace {
    pub fn routes(&self) -> &[LiveRoute] {
        &self.routes
    }

    /// The slot of a key; none in ordered tables.
    pub fn slot(&self, key: &[u8]) -> Option<u16> {
        (self.order == Order::Hashed).then(|| self.hasher.slot(key))
    }

    /// Where a key is.
    pub fn route(&self, key: &[u8]) -> Option<&LiveRoute> {
        let slot = self.slot(key);
        let is_below = |lower: &Bound| match (lower, slot) {
            (Bound::Slot(lower), Some(slot)) => *lower <= slot,
            (Bound::Key(lower), None) => &lower[..] <= key,
            _ => false,
        };
        let at = self
            .routes
            .partition_point(|route| is_below(&route.bounds.lower));
        self.routes.get(at.checked_sub(1)?)
    }

    /// Where a partition is.
    pub fn route_of(&self, partition: PartitionId) -> Option<&LiveRoute> {
        let found = self
            .places
            .binary_search_by_key(&partition, |place| place.0);
        self.routes.get(self.places[found.ok()?].1)
    }

    /// Who has what begins at a place.
    pub fn route_at(&self, place: &Bound) -> Option<&LiveRoute> {
        let at = self
            .routes
            .partition_point(|route| route.bounds.lower <= *place);
        self.routes.get(at.checked_sub(1)?)
    }
}
