//! Looks up many keys at a time.
//!
//! A look-up waits for memory three times: for the index, for the page's header and for the record.
//! Keys of a batch are independent. So each step starts for all keys before the first key's next
//! step needs its result. The steps take the keys in order, whichever partitions they belong to.

use forebay_run::Run;
use forebay_run::batch::{Ahead, BATCH};

use crate::error::ReadError;
use crate::keys::route::Route;
use crate::tables::version::Version;

impl Version {
    /// Calls `look_up(place, route, key)` for every key in order, after prefetching its page and
    /// record.
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

    /// Returns the only run of the key's partition. With several runs, the run that answers is not
    /// known.
    fn only_run(&self, route: &Route<'_>) -> Option<(&Run, u64)> {
        match &*self.parts[route.partition].runs {
            [run] => Some((run, route.hash)),
            _ => None,
        }
    }
}

/// Starts the look-ups of a batch. `runs` are the runs to look up, with the keys' hashes, or `None`
/// where a look-up cannot start early. `ahead` receives the progress of each.
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
