//! Looking up many keys at a time.
//!
//! A look-up waits for memory three times over: for the page's header, for the record, and before
//! both for the index. Keys of a batch are independent, so each step is begun for all of them
//! before the next step of the first one needs its outcome. Partitions do not matter to this: the
//! steps go through the keys in order, whichever runs they lie in.

use forebay_run::Run;
use forebay_run::batch::{Ahead, BATCH};

use crate::error::ReadError;
use crate::route::Route;
use crate::version::Version;

impl Version {
    /// Calls `look_up(place, route, key)` for every key in order, with its page and record on the
    /// way into the cache.
    pub(crate) fn in_batches<'a, K: AsRef<[u8]>>(
        &'a self,
        keys: &[K],
        mut look_up: impl FnMut(usize, Route<'a>, &[u8]) -> Result<(), ReadError>,
    ) -> Result<(), ReadError> {
        for (chunk, keys) in keys.chunks(BATCH).enumerate() {
            let mut routes = [None; BATCH];
            for (route, key) in routes.iter_mut().zip(keys) {
                *route = self.find_route(key.as_ref());
            }
            let routes = &routes[..keys.len()];
            let mut ahead = [None; BATCH];
            if keys.len() > 1 {
                let only_run = |route: &Option<Route<'_>>| self.only_run(route.as_ref()?);
                look_ahead(routes.iter().map(only_run), &mut ahead);
            }
            let found = keys.iter().zip(routes).zip(ahead).enumerate();
            for (place, ((key, route), ahead)) in found {
                let key = key.as_ref();
                let route = route.ok_or_else(|| self.not_here(key))?;
                look_up(chunk * BATCH + place, Route { ahead, ..route }, key)?;
            }
        }
        Ok(())
    }

    /// The run that alone has what there is of a key: of a partition with several it is not known
    /// which of them answers.
    fn only_run(&self, route: &Route<'_>) -> Option<(&Run, u64)> {
        match &*self.parts[route.partition].runs {
            [run] => Some((run, route.hash)),
            _ => None,
        }
    }
}

/// Begins the look-ups of a batch: `runs` are those that keys are looked up in and the keys'
/// hashes, none where a key's look-up cannot begin ahead. `ahead` gets how far each came.
pub(crate) fn look_ahead<'a>(
    runs: impl Iterator<Item = Option<(&'a Run, u64)>> + Clone,
    ahead: &mut [Option<Ahead<'a>>],
) {
    for (run, hash) in runs.clone().flatten() {
        run.approach(hash);
    }
    for (ahead, run) in ahead.iter_mut().zip(runs.clone()) {
        *ahead = run.and_then(|(run, hash)| run.ahead(hash));
    }
    for (ahead, run) in ahead.iter_mut().zip(runs) {
        if let (Some(ahead), Some((_, hash))) = (ahead, run) {
            ahead.match_records(hash);
        }
    }
}
