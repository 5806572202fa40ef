//! The partitions of an open live table, and the router to them.
//!
//! A partition has a *place*, which it keeps for as long as the table is open. A thread that a
//! router has sent there may lock it, even if the router was replaced since. A released partition
//! stays at its place, empty, and says so under its lock.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use parking_lot::{Mutex, MutexGuard};

use crate::keys::partition::{Bounds, PartitionId, PartitionRange, first_bound};
use crate::keys::route::Router;
use crate::live::basics::shape::Shape;
use crate::live::partition::part::{Access, LivePart};

/// Routers number places by 16 bits. The last number means none.
const MOST_PLACES: usize = u16::MAX as usize;

/// All places of an open live table, with the router to the partitions that it holds.
pub(crate) struct LiveParts {
    /// Boxed, as capacity for several is allocated at once.
    all: boxcar::Vec<Box<LiveSlot>>,
    router: ArcSwap<Router>,
    /// The places that the router uses.
    places: ArcSwap<HashMap<PartitionId, usize>>,
}

struct LiveSlot {
    range: PartitionRange,
    part: Mutex<LivePart>,
}

impl LiveSlot {
    /// Creates a slot without a partition.
    fn void(shape: &Shape) -> Self {
        let lower = first_bound(shape.order);
        let bounds = Bounds { lower, upper: None };
        let id = PartitionId(u32::MAX);
        Self {
            range: PartitionRange { id, bounds },
            part: Mutex::new(LivePart::released()),
        }
    }
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
        if all.is_empty() {
            // A thread that locks all then holds at least one lock, and the router is not replaced.
            all.push(Box::new(LiveSlot::void(shape)));
        }
        let here = all.iter().filter(|(_, slot)| slot.part.lock().is_here());
        let held: PlacedRanges<'_> = here.map(|(place, slot)| (place, &slot.range)).collect();
        debug_assert_eq!(
            places_of(&held).len(),
            held.len(),
            "two partitions have one id: {held:?}"
        );
        let places = ArcSwap::from_pointee(places_of(&held));
        let router = ArcSwap::from_pointee(router_to(shape, held));
        Self {
            all,
            router,
            places,
        }
    }

    /// Returns the current router.
    pub fn router(&self) -> Arc<Router> {
        self.router.load_full()
    }

    /// Like the above, borrowed for a moment: for keys that one router must route.
    #[inline]
    pub fn routing(&self) -> Guard<Arc<Router>> {
        self.router.load()
    }

    /// Returns the place of the partition that has a key; `None` if this table does not hold it.
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

    /// Returns the number of places.
    pub fn places(&self) -> usize {
        self.all.count()
    }

    /// Returns the partitions by their places, including released ones.
    pub fn iter(&self) -> impl Iterator<Item = &Mutex<LivePart>> {
        self.all.iter().map(|(_, slot)| &slot.part)
    }

    /// Locks all partitions, by their places: a moment of the whole table. Partitions that are
    /// added while it waits are included, so the router of that moment uses only these.
    pub fn lock_all(&self) -> Vec<MutexGuard<'_, LivePart>> {
        let mut parts = Vec::with_capacity(self.places());
        while let Some(slot) = self.all.get(parts.len()) {
            parts.push(slot.part.lock());
        }
        parts
    }

    /// Returns the place of a partition that this table holds.
    pub fn find(&self, id: PartitionId) -> Option<usize> {
        let place = *self.places.load().get(&id)?;
        let is_here = self.at(place).lock().is_here();
        is_here.then_some(place)
    }

    /// Returns the ids and bounds of the partitions that this table holds, in the table's order, at
    /// one moment.
    pub fn ranges(&self) -> Vec<PartitionRange> {
        let parts = self.lock_all();
        let slots = self.all.iter().zip(&parts);
        let here = slots.filter(|(_, part)| part.is_here());
        let mut ranges: Vec<PartitionRange> =
            here.map(|((_, slot), _)| slot.range.clone()).collect();
        ranges.sort_by(|a, b| a.bounds.lower.cmp(&b.bounds.lower));
        ranges
    }

    /// Checks whether there are places for this many more partitions. The text says what to do.
    pub fn check_room(&self, for_partitions: usize) -> Result<(), String> {
        match self.places() + for_partitions <= MOST_PLACES {
            true => Ok(()),
            false => Err(format!(
                "{MOST_PLACES} partitions came and went since the table was opened: open it again"
            )),
        }
    }

    /// Adopts a partition. REQUIRES: its bounds are disjoint from the others', and the structure's
    /// lock, so that no other thread changes the list or installs a flushed generation.
    pub fn adopt(&self, shape: &Shape, range: PartitionRange, part: LivePart) {
        debug_assert!(
            !self.places.load().contains_key(&range.id),
            "partition {} is taken in and is here",
            range.id
        );
        let part = Mutex::new(part);
        let place = self.all.push(Box::new(LiveSlot { range, part }));
        let mut parts = self.lock_all();
        // It was in none of the generations that wait to be flushed, and counts them as all do.
        let waiting = parts[..place]
            .first()
            .map_or(0, |part| part.view.frozen.len());
        parts[place].wait_along(waiting);
        self.reroute(shape, &parts);
    }

    /// Releases a partition, in one moment for all readers and writers. REQUIRES: the structure's
    /// lock.
    pub fn release(&self, shape: &Shape, place: usize) {
        let mut parts = self.lock_all();
        let waiting = parts[place].view.frozen.len();
        parts[place].check_in_runs();
        *parts[place] = LivePart::released();
        parts[place].wait_along(waiting);
        self.reroute(shape, &parts);
    }

    /// Replaces one partition by several with bounds of their own, in one moment for all readers
    /// and writers. REQUIRES: their bounds are within its bounds, it has nothing in memory, and the
    /// structure's lock.
    pub fn exchange(&self, shape: &Shape, place: usize, own: Vec<(PartitionRange, LivePart)>) {
        let own = own.into_iter();
        let own = own.map(|(range, part)| (self.reserve(range), part));
        let own: Vec<(usize, LivePart)> = own.collect();
        let mut parts = self.lock_all();
        let waiting = parts[place].view.frozen.len();
        let mut whole = std::mem::replace(&mut *parts[place], LivePart::released());
        whole.check_in_runs();
        parts[place].wait_along(waiting);
        for (at, mut part) in own {
            part.wait_along(waiting);
            let bounds = self.bounds_at(at);
            debug_assert!(
                self.bounds_at(place).covers(bounds),
                "a part that goes {bounds} of a partition that goes {}",
                self.bounds_at(place)
            );
            part.watchers = whole.watchers.take(|key| bounds.holds(&shape.bound(key)));
            *parts[at] = part;
        }
        self.reroute(shape, &parts);
    }

    /// Replaces the content of a partition, for all readers and writers at once. REQUIRES: it has
    /// nothing in memory, its writes are paused, and the structure's lock.
    pub fn replace(&self, place: usize, mut part: LivePart) {
        let mut here = self.at(place).lock();
        here.check_in_runs();
        debug_assert!(
            here.access == Access::Paused,
            "the partition at {place} is replaced, and is {:?}",
            here.access
        );
        part.wait_along(here.view.frozen.len());
        part.access = here.access;
        // Dropping the old one notifies the watchers of its keys that these were written to.
        *here = part;
    }

    /// Reserves a place for a partition, which the table does not hold yet.
    fn reserve(&self, range: PartitionRange) -> usize {
        let part = Mutex::new(LivePart::released());
        self.all.push(Box::new(LiveSlot { range, part }))
    }

    fn reroute(&self, shape: &Shape, parts: &[MutexGuard<'_, LivePart>]) {
        debug_assert_eq!(
            parts.len(),
            self.places(),
            "a place was added while all were locked"
        );
        let waiting = |part: &MutexGuard<'_, LivePart>| part.view.frozen.len();
        debug_assert!(
            parts.iter().all(|part| waiting(part) == waiting(&parts[0])),
            "partitions count different generations as waiting: {:?}",
            parts.iter().map(waiting).collect::<Vec<_>>()
        );
        let slots = self.all.iter().zip(parts);
        let here = slots.filter(|(_, part)| part.is_here());
        let held: PlacedRanges<'_> = here
            .map(|((place, slot), _)| (place, &slot.range))
            .collect();
        debug_assert_eq!(
            places_of(&held).len(),
            held.len(),
            "two partitions have one id: {held:?}"
        );
        self.places.store(Arc::new(places_of(&held)));
        let router = router_to(shape, held);
        let number = self.router.load().number() + 1;
        self.router.store(Arc::new(router.numbered(number)));
    }
}

/// Partitions that the table holds, with their places.
type PlacedRanges<'a> = Vec<(usize, &'a PartitionRange)>;

fn places_of(held: &PlacedRanges<'_>) -> HashMap<PartitionId, usize> {
    held.iter()
        .map(|(place, range)| (range.id, *place))
        .collect()
}

fn router_to(shape: &Shape, mut held: PlacedRanges<'_>) -> Router {
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

/// A fixed router of keys to partitions, as the table had it when this was taken. Use it to route
/// several keys by the same state.
#[derive(Debug)]
pub struct KeyRouting<'t> {
    parts: &'t LiveParts,
    shape: &'t Shape,
    router: Guard<Arc<Router>>,
}

impl<'t> KeyRouting<'t> {
    pub(crate) fn of(parts: &'t LiveParts, shape: &'t Shape) -> Self {
        Self {
            parts,
            shape,
            router: parts.routing(),
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
        let place = self.shape.place(key);
        let found = self.router.partition(place.hash, key);
        found.map(|place| self.parts.id_at(place))
    }
}
