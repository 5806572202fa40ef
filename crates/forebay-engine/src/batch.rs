//! Looking up many keys of a version at a time.
//!
//! A look-up waits for memory three times over: for the page's header, for the record, and before
//! both for the index. Keys of a batch are independent, so each step is begun for all of them
//! before the next step of the first one needs its outcome. Partitions do not matter to this: the
//! steps go through the keys in order, whichever runs they lie in.

use forebay_run::batch::BATCH;

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
            let mut routes = [Route::default(); BATCH];
            for (route, key) in routes.iter_mut().zip(keys) {
                *route = self.route(key.as_ref())?;
            }
            let routes = &mut routes[..keys.len()];
            if keys.len() > 1 {
                self.look_ahead(routes);
            }
            for (place, (key, route)) in keys.iter().zip(routes).enumerate() {
                look_up(chunk * BATCH + place, *route, key.as_ref())?;
            }
        }
        Ok(())
    }

    /// Of a partition with several runs none is looked ahead in: which of them answers is not
    /// known.
    fn look_ahead<'a>(&'a self, routes: &mut [Route<'a>]) {
        for route in routes.iter() {
            if let [run] = &*self.parts[route.partition].runs {
                run.approach(route.hash);
            }
        }
        for route in routes.iter_mut() {
            if let [run] = &*self.parts[route.partition].runs {
                route.ahead = run.ahead(route.hash);
            }
        }
        for route in routes {
            if let Some(ahead) = &mut route.ahead {
                ahead.match_records(route.hash);
            }
        }
    }
}
