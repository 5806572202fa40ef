//! Finds the partitions of live tables by key, for routing commands.

use std::collections::BTreeMap;

use forebay_engine::{Bound, PartitionId, TableName, ValueKind};
use forebay_run::Order;
use forebay_run::hash::KeyHasher;

use crate::ids::NodeId;
use crate::model::Model;
use crate::routing::live::{LiveRoute, live_routes};
use forebay_replica::GroupId;

/// The live tables of a cluster. It is immutable: a server fetches it once per command.
#[derive(Debug, Default)]
pub struct LivePlaces {
    tables: BTreeMap<TableName, LivePlace>,
}

/// The routes to the partitions of one live table.
#[derive(Debug)]
pub struct LivePlace {
    pub order: Order,
    pub kind: ValueKind,
    hasher: KeyHasher,
    /// Adjacent routes, from the beginning of the order.
    routes: Vec<LiveRoute>,
    /// The index of each partition in `routes`, by its number.
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

    /// Returns the slot of a key; none in ordered tables.
    pub fn slot(&self, key: &[u8]) -> Option<u16> {
        (self.order == Order::Hashed).then(|| self.hasher.slot(key))
    }

    /// Returns the route of a key.
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

    /// Returns the route of a partition.
    pub fn route_of(&self, partition: PartitionId) -> Option<&LiveRoute> {
        let found = self
            .places
            .binary_search_by_key(&partition, |place| place.0);
        self.routes.get(self.places[found.ok()?].1)
    }

    /// Returns the route of the partition that begins at a bound.
    pub fn route_at(&self, place: &Bound) -> Option<&LiveRoute> {
        let at = self
            .routes
            .partition_point(|route| route.bounds.lower <= *place);
        self.routes.get(at.checked_sub(1)?)
    }
}
