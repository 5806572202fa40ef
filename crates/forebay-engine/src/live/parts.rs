//! The partitions of an open live table, and the router to them.
//!
//! A partition has a *place*, which stays its own for as long as the table is open: who was led
//! there by a router may lock it, whatever router has replaced that one since. A partition that was
//! released stays at its place, empty, and says so under its lock.

use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::{Mutex, MutexGuard};

use crate::live::part::LivePart;
use crate::live::shape::Shape;
use crate::partition::{Bounds, PartitionId, PartitionRange};
use crate::route::Router;

/// See the module's text.
pub(crate) struct LiveParts {
    /// Boxed, as room for several is set aside at once.
    all: boxcar::Vec<Box<LiveSlot>>,
    router: ArcSwap<Router>,
}

struct LiveSlot {
    range: PartitionRange,
    part: Mutex<LivePart>,
}

impl LiveParts {
    pub fn new(shape: &Shape, parts: Vec<(PartitionRange, LivePart)>) -> Self {
        let slots = parts.into_iter().map(|(range, part)| {
            Box::new(LiveSlot {
                range,
                part: Mutex::new(part),
            })
        });
        let all: boxcar::Vec<Box<LiveSlot>> = slots.collect();
        let held = all.iter().map(|(place, slot)| (place, &slot.range));
        let router = ArcSwap::from_pointee(router_to(shape, held.collect()));
        Self { all, router }
    }

    /// The router as it is now.
    pub fn router(&self) -> Arc<Router> {
        self.router.load_full()
    }

    /// The place of the partition that a key lies in; `None`: it is not here.
    #[inline]
    pub fn place_of(&self, hash: u64, key: &[u8]) -> Option<usize> {
        self.router.load().partition(hash, key)
    }

    #[inline]
    pub fn at(&self, place: usize) -> &Mutex<LivePart> {
        &self.all[place].part
    }

    pub fn id_at(&self, place: usize) -> PartitionId {
        self.all[place].range.id
    }

    pub fn bounds_at(&self, place: usize) -> &Bounds {
        &self.all[place].range.bounds
    }

    /// How many places there are.
    pub fn places(&self) -> usize {
        self.all.count()
    }

    /// By their places; those that were released are among them.
    pub fn iter(&self) -> impl Iterator<Item = &Mutex<LivePart>> {
        self.all.iter().map(|(_, slot)| &slot.part)
    }

    /// All locked, by their places: a moment of the whole table.
    pub fn lock_all(&self) -> Vec<MutexGuard<'_, LivePart>> {
        self.iter().map(Mutex::lock).collect()
    }

    /// The place of a partition that is here.
    pub fn find(&self, id: PartitionId) -> Option<usize> {
        let mut all = self.all.iter();
        let found = all.find(|(_, slot)| slot.range.id == id && !slot.part.lock().is_released);
        found.map(|(place, _)| place)
    }

    /// The ids and bounds of the partitions that are here, in the table's order.
    pub fn ranges(&self) -> Vec<PartitionRange> {
        let here = |slot: &LiveSlot| !slot.part.lock().is_released;
        let slots = self.all.iter().filter(|(_, slot)| here(slot));
        let mut ranges: Vec<PartitionRange> = slots.map(|(_, slot)| slot.range.clone()).collect();
        ranges.sort_by(|a, b| a.bounds.lower.cmp(&b.bounds.lower));
        ranges
    }

    /// Takes a partition in. REQUIRES: its bounds lie apart from the others', and nobody else
    /// changes the list.
    pub fn adopt(&self, shape: &Shape, range: PartitionRange, part: LivePart) {
        let part = Mutex::new(part);
        self.all.push(Box::new(LiveSlot { range, part }));
        self.reroute(shape, &self.lock_all());
    }

    /// Gives a partition up, in one moment for all readers and writers. REQUIRES: nobody else
    /// changes the list.
    pub fn release(&self, shape: &Shape, place: usize) {
        let mut parts = self.lock_all();
        *parts[place] = LivePart {
            is_released: true,
            ..LivePart::default()
        };
        self.reroute(shape, &parts);
    }

    fn reroute(&self, shape: &Shape, parts: &[MutexGuard<'_, LivePart>]) {
        let slots = self.all.iter().zip(parts);
        let here = slots.filter(|(_, part)| !part.is_released);
        let held = here.map(|((place, slot), _)| (place, &slot.range));
        self.router
            .store(Arc::new(router_to(shape, held.collect())));
    }
}

fn router_to(shape: &Shape, mut held: Vec<(usize, &PartitionRange)>) -> Router {
    held.sort_by(|(_, a), (_, b)| a.bounds.lower.cmp(&b.bounds.lower));
    let held = held
        .into_iter()
        .map(|(place, range)| (place, &range.bounds));
    Router::new(&shape.table, shape.order, held)
}

impl std::fmt::Debug for LiveParts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list()
            .entries(self.all.iter().map(|(_, slot)| &slot.range))
            .finish()
    }
}
