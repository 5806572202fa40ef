//! What is open beside what pointers name: opened ahead, activated, held otherwise.

use std::sync::Arc;

use super::{FollowerMemory, serve};
use crate::error::StoreError;
use crate::followed_table::OpenAhead;
use crate::name::TableName;
use crate::partition::OpenPartitions;
use crate::pointer::Pointer;
use crate::serving_set::Change;
use crate::version::Version;

impl FollowerMemory {
    /// Lets a version serve that is open; returns what changes by that.
    pub fn serve(
        &mut self,
        name: &TableName,
        version: Arc<Version>,
        before: Option<u64>,
    ) -> Option<Change> {
        let follow = self.tables.get_mut(name)?;
        self.changed = true;
        (follow.problem, follow.retry_at) = (None, None);
        let ended = follow.serving.clone();
        let change = serve(name, follow, version, before);
        // Others may ask for what has just ended: nodes do not change at one moment.
        if let Some(version) = ended.filter(|_| self.commanded && follow.ahead.is_none()) {
            let _pin = self.store.any_table(name).pin(version.version());
            follow.ahead = Some(OpenAhead { version, _pin });
        }
        change
    }

    /// Takes note of the pointer that was written, or was to be, of what serves.
    pub fn wrote(
        &mut self,
        name: &TableName,
        wanted: &Pointer,
        written: Result<Pointer, StoreError>,
    ) -> Result<(), StoreError> {
        let now = self.store.clock().monotonic();
        let Some(follow) = self.tables.get_mut(name) else {
            return written.map(drop);
        };
        match written {
            Ok(pointer) => {
                // What is stale is opened anew by a look that finds the pointer new.
                follow.pointer = (!follow.stale).then_some(pointer);
                follow.owed = None;
                (follow.problem, follow.retry_at) = (None, None);
                Ok(())
            }
            Err(error) => {
                follow.owed = Some(wanted.clone());
                self.failed(name, &error.to_string(), now);
                Err(error)
            }
        }
    }

    /// An open version of a table.
    pub fn find_open(&self, name: &TableName, version: u64) -> Option<Arc<Version>> {
        let mut open = self.tables.get(name)?.open();
        open.find(|open| open.version() == version).cloned()
    }

    pub fn open_of(&self, name: &TableName) -> Vec<Arc<Version>> {
        let follow = self.tables.get(name);
        follow.map_or(Vec::new(), |follow| follow.open().cloned().collect())
    }

    /// Keeps a version open beside what serves, in the place of another one.
    pub fn keep_ahead(&mut self, name: &TableName, ahead: OpenAhead) {
        let follow = self.tables.entry(name.clone()).or_default();
        let serving = follow.serving.as_ref();
        let serves = serving.is_some_and(|serving| Arc::ptr_eq(serving, &ahead.version));
        let given_up = match serves {
            true => follow.ahead.take(),
            false => follow.ahead.replace(ahead),
        };
        self.retired.extend(given_up.map(|ahead| ahead.version));
        self.changed = true;
    }

    pub fn close_ahead(&mut self, name: &TableName) {
        let follow = self.tables.get_mut(name);
        let given_up = follow.and_then(|follow| follow.ahead.take());
        self.retired.extend(given_up.map(|ahead| ahead.version));
        self.changed = true;
    }

    /// What is open of some tables with other partitions than the store holds now, and those.
    pub fn held_otherwise(&self, tables: &[TableName]) -> Vec<(Arc<Version>, OpenPartitions)> {
        let follows = tables.iter().filter_map(|name| self.tables.get(name));
        let open = follows.flat_map(|follow| follow.open().cloned());
        let held = |version: Arc<Version>| {
            let held = self.store.held(version.manifest());
            (!version.has_just(&held)).then_some((version, held))
        };
        open.filter_map(held).collect()
    }

    /// Puts versions in the place of others, each the same with other partitions, unless something
    /// else is to be opened anew by now; returns whether.
    pub fn exchange(
        &mut self,
        tables: &[TableName],
        anew: &[(Arc<Version>, Arc<Version>)],
    ) -> bool {
        let new_of = |old: &Arc<Version>| anew.iter().find(|(known, _)| Arc::ptr_eq(known, old));
        let left = self.held_otherwise(tables);
        let known = |old: &Arc<Version>, held: &OpenPartitions| {
            new_of(old).is_some_and(|(_, new)| new.has_just(held))
        };
        if !left.iter().all(|(old, held)| known(old, held)) {
            return false;
        }
        self.changed = true;
        for name in tables {
            let Some(follow) = self.tables.get_mut(name) else {
                continue;
            };
            for open in follow.open_mut() {
                if let Some((old, new)) = new_of(open) {
                    *open = Arc::clone(new);
                    self.retired.push(Arc::clone(old));
                }
            }
        }
        true
    }
}
