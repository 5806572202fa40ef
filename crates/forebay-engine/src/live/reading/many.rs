//! Looks up many keys at once, those of each partition at one moment.
//!
//! Keys whose outcome is in memory, or whose partition has several runs, are looked up one by one.
//! The others, nearly all after a compaction, search their run in step, so that their waits for
//! memory overlap: see [`forebay_run::batch`].

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use forebay_run::batch::{Ahead, BATCH};
use forebay_run::operation::CowOperation;

use crate::live::basics::error::LiveError;
use crate::live::basics::expiry::Stored;
use crate::live::basics::shape::{KeyPlace, PartTime};
use crate::live::basics::traffic::SampledRead;
use crate::live::memory::run::LiveRun;
use crate::live::partition::access::Attempt;
use crate::live::partition::part::{PartFound, PartView};
use crate::live::partition::shared::LiveShared;
use crate::tables::batch::look_ahead;

/// Some keys at one moment, those of one partition together: no write falls between two of them.
/// Made by [`LiveTable::snapshot_keys`](crate::live::LiveTable::snapshot_keys). It keeps what it
/// reads, as a [`Snapshot`](crate::live::Snapshot) does.
#[derive(Debug)]
pub struct KeySnapshot<'t, 'k> {
    table: &'t LiveShared,
    routes: Vec<LiveRoute<'k>>,
}

/// A key that is being looked up.
#[derive(Debug)]
struct LiveRoute<'k> {
    key: &'k [u8],
    place: KeyPlace,
    newest: Option<CowOperation<'static>>,
    view: Arc<PartView>,
    time: PartTime,
    /// Set if the length of its value is counted.
    sampled: Option<SampledRead>,
}

impl LiveRoute<'_> {
    /// Returns the only run that must be searched for the key.
    fn only_run(&self) -> Option<&Arc<LiveRun>> {
        let view = &self.view;
        let in_memory = !view.minis.is_empty() || !view.frozen.is_empty();
        match &*view.runs {
            [run] if !in_memory && self.newest.is_none() => Some(run),
            _ => None,
        }
    }
}

impl KeySnapshot<'_, '_> {
    /// Returns the value of the key given at `index`, and when it expires. `None` if that is not
    /// known without waiting for the device, and `wait` is not set.
    pub fn stored(&self, index: usize, wait: bool) -> Result<Option<Option<Stored>>, LiveError> {
        let route = &self.routes[index];
        let newest = route.newest.clone();
        let (view, shape) = (&route.view, (&*self.table.shape, route.time));
        let found = view.stored(shape, route.place, route.key, newest, wait)?;
        if let Some(Some(stored)) = &found {
            self.table.count_length(route.sampled, Some(&stored.value));
        }
        Ok(found)
    }
}

impl LiveShared {
    /// See [`LiveTable::get_many`](crate::live::LiveTable::get_many).
    pub fn get_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Vec<u8>>>, LiveError> {
        let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
        let routes = self.routes(&keys, true)?.unwrap_or_default();
        let mut values = Vec::with_capacity(keys.len());
        for routes in routes.chunks(BATCH) {
            let mut ahead: [Option<Ahead<'_>>; BATCH] = [None; BATCH];
            let only = |route| LiveRoute::only_run(route).map(|run| (&*run.run, route.place.hash));
            look_ahead(routes.iter().map(only), &mut ahead);
            for (route, ahead) in routes.iter().zip(ahead) {
                let value = self.finish(route, ahead)?;
                self.count_length(route.sampled, value.as_deref());
                values.push(value);
            }
        }
        Ok(values)
    }

    /// See [`LiveTable::snapshot_keys`](crate::live::LiveTable::snapshot_keys). `None` if it would
    /// have to wait and may not.
    pub fn snapshot_keys<'t, 'k>(
        &'t self,
        keys: &[&'k [u8]],
        wait: bool,
    ) -> Result<Option<KeySnapshot<'t, 'k>>, LiveError> {
        let routes = self.routes(keys, wait)?;
        Ok(routes.map(|routes| KeySnapshot {
            table: self,
            routes,
        }))
    }

    /// Returns the sources of some keys, those of a partition taken under its lock. `None` if it
    /// may not wait and a partition stays locked.
    fn routes<'k>(
        &self,
        keys: &[&'k [u8]],
        wait: bool,
    ) -> Result<Option<Vec<LiveRoute<'k>>>, LiveError> {
        loop {
            let mut placed = Vec::with_capacity(keys.len());
            for (index, key) in keys.iter().enumerate() {
                let place = self.shape.place(key);
                placed.push((self.partition_at(place, key)?, index, place));
            }
            placed.sort_unstable_by_key(|(partition, index, _)| (*partition, *index));
            match self.routes_of(keys, &placed, wait) {
                Attempt::Done(routes) => return Ok(Some(routes)),
                Attempt::Moved => {}
                Attempt::Waits => return Ok(None),
            }
        }
    }

    /// Like `routes`, for keys with their partitions, their numbers and places, sorted.
    fn routes_of<'k>(
        &self,
        keys: &[&'k [u8]],
        placed: &[(usize, usize, KeyPlace)],
        wait: bool,
    ) -> Attempt<Vec<LiveRoute<'k>>> {
        let mut routes: Vec<Option<LiveRoute<'k>>> = Vec::new();
        routes.resize_with(keys.len(), || None);
        for of_partition in placed.chunk_by(|a, b| a.0 == b.0) {
            let mut part = match self.lock_to_read(of_partition[0].0, wait) {
                Attempt::Done(part) => part,
                Attempt::Moved => return Attempt::Moved,
                Attempt::Waits => return Attempt::Waits,
            };
            for &(_, index, place) in of_partition {
                let key = keys[index];
                routes[index] = Some(LiveRoute {
                    key,
                    place,
                    newest: part.memtable.get(place, key).map(|found| found.to_owned()),
                    view: Arc::clone(&part.view),
                    time: part.time(),
                    sampled: None,
                });
            }
            let sampled = part
                .traffic
                .read_many(of_partition.len() as u64, of_partition[0].0);
            if let Some((_, index, _)) = of_partition.last()
                && let Some(route) = &mut routes[*index]
            {
                route.sampled = sampled;
            }
            let view = Arc::clone(&part.view);
            drop(part);
            if !self.counts.memory_is_read.load(Ordering::Relaxed) {
                self.memory_is_read(&view);
            }
        }
        Attempt::Done(routes.into_iter().flatten().collect())
    }

    fn finish(
        &self,
        route: &LiveRoute<'_>,
        ahead: Option<Ahead<'_>>,
    ) -> Result<Option<Vec<u8>>, LiveError> {
        if let (Some(run), Some(ahead)) = (route.only_run(), ahead) {
            let hash = route.place.hash;
            let value = run.run.visit_from(Some(ahead), hash, route.key, |found| {
                let value = found.into_value(|| self.shape.now_ms(route.time));
                value.map(Cow::into_owned)
            });
            let value = value.map_err(|source| self.shape.run_error(source))?;
            return Ok(value.flatten());
        }
        let newest = route.newest.clone();
        let (view, place) = (&route.view, route.place);
        match view.get((&self.shape, route.time), place, route.key, newest, true)? {
            PartFound::Value(value) => Ok(value),
            PartFound::Waits => Ok(None),
        }
    }
}
