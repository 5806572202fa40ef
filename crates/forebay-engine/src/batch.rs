//! Looking up many keys of a version at a time.
//!
//! A look-up waits for memory three times over: for the page's header, for the record, and before
//! both for the index. Keys of a batch are independent, so each step is begun for all of them before
//! the next step of the first one needs its outcome. Partitions do not matter to this: the steps go
//! through the keys in order, whichever runs they lie in.

use forebay_run::run::{Ahead, BATCH};

use crate::error::ReadError;
use crate::version::Version;

impl Version {
    /// Calls `look_up(place, hash, partition, key)` for every key in order, with its page and record
    /// on the way into the cache.
    pub(crate) fn in_batches<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        mut look_up: impl FnMut(usize, u64, usize, &[u8]) -> Result<(), ReadError>,
    ) -> Result<(), ReadError> {
        for (chunk, keys) in keys.chunks(BATCH).enumerate() {
            let mut routes = [(0u64, 0usize); BATCH];
            for (route, key) in routes.iter_mut().zip(keys) {
                let hash = self.router.hash(key.as_ref());
                *route = (hash, self.router.partition(hash, key.as_ref()));
            }
            let routes = &routes[..keys.len()];
            if keys.len() > 1 {
                self.prefetch(routes);
            }
            for (place, (key, (hash, partition))) in keys.iter().zip(routes).enumerate() {
                look_up(chunk * BATCH + place, *hash, *partition, key.as_ref())?;
            }
        }
        Ok(())
    }

    /// The newest run of a partition stands for all of its runs: it is asked first.
    fn prefetch(&self, routes: &[(u64, usize)]) {
        let mut pages: [Option<Ahead<'_>>; BATCH] = [const { None }; BATCH];
        for (page, (hash, partition)) in pages.iter_mut().zip(routes) {
            *page = self.parts[*partition]
                .runs
                .last()
                .and_then(|run| run.ahead(*hash));
        }
        for (page, (hash, _)) in pages.iter().zip(routes) {
            if let Some(page) = page {
                page.prefetch_record(*hash);
            }
        }
    }
}
