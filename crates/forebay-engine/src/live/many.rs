//! Looking up many keys at once.
//!
//! Keys that have their outcome in memory, or lie in a partition of several runs, are looked up one
//! by one. The others, and after an compact that is nearly all, go through their run in step, so
//! that their waits for memory overlap: see [`forebay_run::batch`].

use std::borrow::Cow;
use std::sync::Arc;

use forebay_run::batch::{Ahead, BATCH};
use forebay_run::operation::CowOperation;

use crate::batch::look_ahead;
use crate::live::error::LiveError;
use crate::live::part::{LiveRun, PartFound, PartView};
use crate::live::shape::KeyPlace;
use crate::live::shared::LiveShared;

/// A key on its way.
struct LiveRoute {
    place: KeyPlace,
    newest: Option<CowOperation<'static>>,
    view: Arc<PartView>,
}

impl LiveRoute {
    /// The run that alone can say more of the key.
    fn only_run(&self) -> Option<&Arc<LiveRun>> {
        let view = &self.view;
        let in_memory = !view.minis.is_empty() || !view.frozen.is_empty();
        match &*view.runs {
            [run] if !in_memory && self.newest.is_none() => Some(run),
            _ => None,
        }
    }
}

impl LiveShared {
    /// See [`LiveTable::get_many`](crate::live::LiveTable::get_many).
    pub fn get_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Vec<u8>>>, LiveError> {
        let mut values = Vec::with_capacity(keys.len());
        for keys in keys.chunks(BATCH) {
            let routes = keys.iter().map(|key| self.route(key.as_ref()));
            let routes: Vec<LiveRoute> = routes.collect::<Result<_, _>>()?;
            let mut ahead: [Option<Ahead<'_>>; BATCH] = [None; BATCH];
            let only = |route| LiveRoute::only_run(route).map(|run| (&*run.run, route.place.hash));
            look_ahead(routes.iter().map(only), &mut ahead);
            for ((route, ahead), key) in routes.iter().zip(ahead).zip(keys) {
                values.push(self.finish(route, ahead, key.as_ref())?);
            }
        }
        Ok(values)
    }

    fn route(&self, key: &[u8]) -> Result<LiveRoute, LiveError> {
        let place = self.shape.place(key);
        let (newest, view) = self.newest(place, key)?;
        Ok(LiveRoute {
            place,
            newest,
            view,
        })
    }

    fn finish(
        &self,
        route: &LiveRoute,
        ahead: Option<Ahead<'_>>,
        key: &[u8],
    ) -> Result<Option<Vec<u8>>, LiveError> {
        if let (Some(run), Some(ahead)) = (route.only_run(), ahead) {
            let hash = route.place.hash;
            let value = run.run.visit_from(Some(ahead), hash, key, |found| {
                let value = found.into_value(|| self.shape.now_ms());
                value.map(Cow::into_owned)
            });
            let value = value.map_err(|source| self.shape.run_error(source))?;
            return Ok(value.flatten());
        }
        let newest = route.newest.clone();
        match route
            .view
            .get(&self.shape, route.place, key, newest, true)?
        {
            PartFound::Value(value) => Ok(value),
            PartFound::Waits => Ok(None),
        }
    }
}
