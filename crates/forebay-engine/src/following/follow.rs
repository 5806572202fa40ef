//! Follows the pointers of a store: opens, keeps and closes versions.
//!
//! Each look has two steps. [`FollowerMemory::prepare`] opens the versions that pointers name and
//! changes nothing that is served. [`FollowerMemory::activate`] makes all of them serve at once,
//! over all tables, and cannot fail. Versions that were opened earlier for an activation are kept,
//! too, until they are requested (the module `activate`).

mod ahead;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tracing::{info, warn};

use crate::documents::layout::tables_dir;
use crate::documents::pointer::Pointer;
use crate::error::StoreError;
use crate::following::followed_table::{Follow, PointerSeen, Ready, Replaced, see};
use crate::following::serving_set::{Change, ServingState, Tables};
use crate::name::TableName;
use crate::tables::store::Store;
use crate::tables::table::Table;
use crate::tables::version::Version;

/// The pause after a failure to open a version, before the next try.
const RETRY: Duration = Duration::from_secs(1);
/// The number of looks that skip a live table. It has no pointer, and there may be a thousand of
/// them. If one is dropped and pushed as a batch table, it is still seen within half a second.
const PASSED_BY: u32 = 3;

/// The follower's own memory, used by one thread at a time.
#[derive(Debug)]
pub(crate) struct FollowerMemory {
    store: Store,
    tables: BTreeMap<TableName, Follow>,
    /// Live tables, and the number of looks that still skip each.
    live: BTreeMap<TableName, u32>,
    /// Dropped tables that serve until the next activation.
    gone: Vec<TableName>,
    /// Swapped out, but perhaps still read.
    retired: Vec<Arc<Version>>,
    problem: Option<String>,
    /// The open set differs from the last result of [`FollowerMemory::published`].
    changed: bool,
    /// Pointers are ignored; the caller that activates decides which versions serve.
    commanded: bool,
}

impl FollowerMemory {
    pub fn new(store: Store) -> Self {
        Self {
            store,
            tables: BTreeMap::new(),
            live: BTreeMap::new(),
            gone: Vec::new(),
            retired: Vec::new(),
            problem: None,
            changed: true,
            commanded: false,
        }
    }

    /// Returns a follower that serves only activated versions.
    pub fn commanded(store: Store) -> Self {
        Self {
            commanded: true,
            ..Self::new(store)
        }
    }

    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Makes the next look skip no table.
    pub fn look_at_all(&mut self) {
        self.live.clear();
    }

    /// Reads every pointer once and opens the versions that are to serve.
    pub fn prepare(&mut self) {
        if self.commanded {
            return self.look_after();
        }
        let names = match self.names() {
            Ok(names) => names,
            Err(error) => return self.store_problem(Some(error.to_string())),
        };
        self.store_problem(None);
        let gone = self.tables.keys().filter(|name| !names.contains(name));
        self.gone.extend(gone.cloned());
        let mut live = std::mem::take(&mut self.live);
        for name in names {
            let passed = live.remove(&name).and_then(|looks| looks.checked_sub(1));
            if let Some(left) = passed.or_else(|| self.is_live(&name).then_some(PASSED_BY)) {
                self.live.insert(name, left);
            } else {
                self.look_at(&name);
            }
        }
    }

    /// Writes owed pointers and reopens stale versions.
    fn look_after(&mut self) {
        let due =
            |follow: &Follow| follow.owed.is_some() || (follow.stale && follow.serving.is_some());
        let tables = self.tables.iter().filter(|(_, follow)| due(follow));
        for name in tables.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            self.look_at(&name);
        }
    }

    /// Returns whether it is known to be a live table; if this is unknown, returns `false`.
    fn is_live(&self, name: &TableName) -> bool {
        !self.tables.contains_key(name) && self.store.is_live(name).unwrap_or(false)
    }

    /// Makes all prepared versions serve; returns the changes. [`FollowerMemory::published`]
    /// returns the resulting set.
    pub fn activate(&mut self) -> Vec<Change> {
        let gone = std::mem::take(&mut self.gone);
        let mut changes: Vec<Change> = gone
            .into_iter()
            .filter_map(|name| self.stop(name))
            .collect();
        for (name, follow) in &mut self.tables {
            if let Some(Ready { version, before }) = follow.ready.take() {
                self.changed = true;
                changes.extend(serve(name, follow, version, before));
            }
        }
        changes
    }

    /// Keeps open the versions that rollbacks would restore.
    pub fn settle(&mut self) {
        for (name, follow) in &mut self.tables {
            if let Some(Replaced { versions, before }) = follow.replaced.take() {
                self.changed = true;
                let table = self.store.any_table(name);
                follow.previous = follow.keep_previous(&table, before, &versions);
                self.retired.extend(versions);
            }
        }
    }

    /// Returns the directories of tables. Once there were some, none of our commands removes the
    /// whole directory.
    fn names(&self) -> Result<Vec<TableName>, StoreError> {
        let dir = tables_dir(self.store.root());
        let names = self.store.table_dirs()?;
        if names.is_empty() && !self.tables.is_empty() {
            let found = self.store.disk().list(&dir);
            found.map_err(|source| StoreError::Io {
                action: "list",
                path: dir,
                source,
            })?;
        }
        Ok(names)
    }

    fn look_at(&mut self, name: &TableName) {
        let table = self.store.any_table(name);
        let now = self.store.clock().monotonic();
        let known = self.tables.get(name);
        if let Some(owed) = known.and_then(|follow| follow.owed.clone()) {
            let retry_at = known.and_then(|follow| follow.retry_at);
            if retry_at.is_none_or(|at| at <= now) {
                // An error is noted as the table's problem.
                let _ = self.wrote(name, &owed, table.point_at(&owed));
            }
            return;
        }
        let is_known = known.is_some();
        match see(&table, known, now) {
            Ok(PointerSeen::Same) => {}
            Ok(PointerSeen::Nothing) => {
                if let Some(follow) = self.tables.get_mut(name) {
                    follow.problem = None;
                }
            }
            Ok(PointerSeen::Dropped) => self.gone.push(name.clone()),
            Ok(PointerSeen::Serve(pointer, version)) => self.open(&table, pointer, version, now),
            Err(error) if is_known => self.failed(name, &error.to_string(), now),
            Err(_) if table.is_plain_file() => {}
            Err(error) => {
                self.tables.insert(name.clone(), Follow::default());
                self.failed(name, &error.to_string(), now);
            }
        }
    }

    fn open(&mut self, table: &Table, pointer: Pointer, version: u64, now: Duration) {
        let name = table.name();
        let before = pointer.before();
        let follow = self.tables.entry(name.clone()).or_default();
        follow.pointer = Some(pointer);
        match follow.find_or_open(table, version) {
            Ok(version) => {
                follow.problem = None;
                follow.retry_at = None;
                follow.stale = false;
                follow.ready = Some(Ready { version, before });
            }
            Err(problem) => self.failed(name, &problem, now),
        }
    }

    /// Marks the versions of a table for reopening at the next look, and closes what is open.
    /// Returns the version that was open ahead.
    pub fn invalidate(&mut self, name: &TableName) -> Option<u64> {
        let follow = self.tables.get_mut(name)?;
        follow.pointer = None;
        follow.retry_at = None;
        follow.stale = true;
        let ahead = follow.ahead.take().map(|ahead| ahead.version);
        let number = ahead.as_ref().map(|version| version.version());
        self.retired.extend(follow.previous.take());
        self.retired.extend(ahead);
        self.changed = true;
        number
    }

    /// Stops serving a table; versions that are open ahead stay open.
    pub fn rest(&mut self, table: &TableName) -> Option<Change> {
        let follow = self.tables.get_mut(table)?;
        self.changed = true;
        (follow.owed, follow.pointer) = (None, None);
        self.retired.extend(follow.previous.take());
        let serving = follow.serving.take()?;
        let from = Some(serving.version());
        self.retired.push(serving);
        info!(%table, from, "the table serves nothing here");
        Some(Change {
            table: table.clone(),
            from,
            to: None,
        })
    }

    /// Stops serving a table that is gone.
    pub fn stop(&mut self, table: TableName) -> Option<Change> {
        let follow = self.tables.remove(&table)?;
        self.changed = true;
        self.retired.extend(follow.previous);
        self.retired.extend(follow.ahead.map(|ahead| ahead.version));
        let serving = follow.serving?;
        let from = Some(serving.version());
        self.retired.push(serving);
        info!(%table, from, "the table was dropped");
        Some(Change {
            table,
            from,
            to: None,
        })
    }

    fn failed(&mut self, name: &TableName, problem: &str, now: Duration) {
        let Some(follow) = self.tables.get_mut(name) else {
            return;
        };
        let same = follow.problem.as_deref() == Some(problem);
        if same && follow.retry_at.is_some_and(|at| now < at) {
            return;
        }
        follow.load_errors += 1;
        follow.retry_at = Some(now + RETRY);
        if follow.problem.as_deref() != Some(problem) {
            let serving = follow.serving.as_ref().map(|version| version.version());
            warn!(table = %name, serving, problem, "what serves, if anything does, still serves");
            follow.problem = Some(problem.to_owned());
        }
    }

    fn store_problem(&mut self, problem: Option<String>) {
        if let Some(problem) = problem.as_ref().filter(|_| self.problem.is_none()) {
            warn!(
                problem,
                "the store cannot be read; the serving versions keep serving"
            );
        }
        self.problem = problem;
    }

    /// Returns the open set, if it has changed since the last call.
    pub fn published(&mut self) -> Option<Tables> {
        if !std::mem::take(&mut self.changed) {
            return None;
        }
        let (mut serving, mut others) = (Vec::new(), Vec::new());
        for (name, follow) in &self.tables {
            let entry = |version: &Arc<Version>| (name.clone(), Arc::clone(version));
            serving.extend(follow.serving.as_ref().map(entry));
            let replaced = follow.replaced.iter().flat_map(|old| &old.versions);
            let beside = follow.open().chain(replaced);
            let is_other = |version: &&Arc<Version>| {
                let serving = follow.serving.as_ref();
                serving.is_none_or(|serving| !Arc::ptr_eq(serving, version))
            };
            others.extend(beside.filter(is_other).map(entry));
        }
        Some(Tables::new(serving, others))
    }

    /// Closes versions that nobody can reach any more. A reader of a version holds an `Arc` of it.
    pub fn close_unread(&mut self) {
        for follow in self.tables.values() {
            self.retired
                .retain(|old| follow.open().all(|version| !Arc::ptr_eq(version, old)));
        }
        self.retired
            .sort_by_key(|version| Arc::as_ptr(version) as usize);
        self.retired.dedup_by(|a, b| Arc::ptr_eq(a, b));
        self.retired
            .retain(|version| Arc::strong_count(version) > 1);
    }

    pub fn state(&self) -> ServingState {
        let tables = self
            .tables
            .iter()
            .map(|(name, follow)| (name.clone(), follow.state()));
        let (problem, retired) = (self.problem.clone(), self.retired.len());
        ServingState {
            tables: tables.collect(),
            problem,
            retired,
        }
    }
}

/// Makes a version of a table serve.
fn serve(
    name: &TableName,
    follow: &mut Follow,
    version: Arc<Version>,
    before: Option<u64>,
) -> Option<Change> {
    let to = version.version();
    let (is_other, from) = follow.serve(version, before);
    is_other.then(|| {
        info!(table = %name, from, to, "another version serves");
        Change {
            table: name.clone(),
            from,
            to: Some(to),
        }
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use forebay_io::sim::SimDisk;
    use forebay_io::{SystemClock, SystemRandom};

    use super::*;
    use crate::live::{Budget, LiveDraft};

    #[test]
    fn live_tables_are_seldom_looked_at() {
        let disk = SimDisk::new();
        let (clock, random) = (Arc::new(SystemClock), Arc::new(SystemRandom));
        let store = Store::open_or_create(Arc::new(disk.clone()), clock, random, Path::new("/s"));
        let store = store.unwrap();
        let name = TableName::new("t").unwrap();
        let table = store.create_live(&name, LiveDraft::hashed(), &Budget::new(1 << 20));
        let mut followed = FollowerMemory::new(store.clone());
        let mut look = || {
            let before = disk.calls();
            followed.prepare();
            disk.calls() - before
        };
        // One listing of the tables, and one look at this table.
        assert_eq!([look(), look(), look(), look()], [2, 1, 1, 1]);
        assert_eq!([look(), look(), look(), look()], [2, 1, 1, 1]);
        drop(table.unwrap());
        followed.look_at_all();
        followed.prepare();
        assert_eq!(followed.live.len(), 1);
        store.drop_table(&name).unwrap();
        followed.look_at_all();
        followed.prepare();
        assert!(followed.live.is_empty() && followed.tables.is_empty());
    }
}
