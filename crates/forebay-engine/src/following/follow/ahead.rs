//! Open versions that pointers do not name: opened ahead, activated, or with other partitions.

use std::sync::Arc;

use super::{FollowerMemory, serve};
use crate::documents::pointer::Pointer;
use crate::error::StoreError;
use crate::following::followed_table::OpenAhead;
use crate::following::serving_set::Change;
use crate::keys::partition::OpenPartitions;
use crate::name::TableName;
use crate::tables::version::Version;

impl FollowerMemory {
    /// Makes an open version serve; returns the change.
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
        // Others may ask for the version that has just ended, because nodes do not switch at one
        // moment.
        if let Some(version) = ended.filter(|_| self.commanded && follow.ahead.is_none()) {
            let _pin = self.store.any_table(name).pin(version.version());
            follow.ahead = Some(OpenAhead { version, _pin });
        }
        change
    }

    /// Records the pointer of the serving version that was written, or should have been.
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
                // A look that finds a new pointer reopens stale versions.
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

    /// Returns an open version of a table.
    pub fn find_open(&self, name: &TableName, version: u64) -> Option<Arc<Version>> {
        let mut open = self.tables.get(name)?.open();
        open.find(|open| open.version() == version).cloned()
    }

    pub fn open_of(&self, name: &TableName) -> Vec<Arc<Version>> {
        let follow = self.tables.get(name);
        follow.map_or(Vec::new(), |follow| follow.open().cloned().collect())
    }

    /// Keeps a version open beside the serving one, in the place of another one.
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

    /// Returns the open versions of some tables whose partitions differ from those that the store
    /// holds now, with the new partitions.
    pub fn held_otherwise(&self, tables: &[TableName]) -> Vec<(Arc<Version>, OpenPartitions)> {
        let follows = tables.iter().filter_map(|name| self.tables.get(name));
        let open = follows.flat_map(|follow| follow.open().cloned());
        let held = |version: Arc<Version>| {
            let held = self.store.held(version.manifest());
            (!version.has_just(&held)).then_some((version, held))
        };
        open.filter_map(held).collect()
    }

    /// Replaces versions by the same ones with other partitions, unless further versions must be
    /// reopened by now; returns whether it did.
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
