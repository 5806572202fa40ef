//! Follows the store in object storage: schedules requests, and applies its changes to the cache.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use forebay_engine::TableName;
use parking_lot::{Condvar, Mutex};
use tracing::{info, warn};

use super::all_tables::AllTables;
use super::pulled_store::PulledStore;
use super::turns::{Turn, Turns};
use super::watched::WatchedTable;
use super::{NodeAddress, PullError, ServedVersions};
use crate::announcing::pointer_name;

/// The time between two checks of the cache.
const LOOK: Duration = Duration::from_millis(500);
const LEAST: Duration = Duration::from_millis(10);
/// The time until a store that was not reached at the start is asked again, if polls are further
/// apart.
const BEGIN_AGAIN: Duration = Duration::from_secs(2);
/// The time until it is checked again whether a dropped table is gone; it doubles.
const GONE: Duration = Duration::from_secs(2);
const GONE_MOST: Duration = Duration::from_secs(600);

/// The pending hint that the store has changed, from a command or another node.
#[derive(Debug, Default)]
pub struct Hints {
    /// The stamp of the present document, if the hint has one; 0: it has none.
    stamp: Mutex<Option<u64>>,
    came: Condvar,
}

impl Hints {
    pub fn give(&self, stamp: u64) {
        *self.stamp.lock() = Some(stamp);
        self.came.notify_all();
    }

    /// Waits for a hint, at most for `limit`.
    pub fn wait(&self, limit: Duration) -> Option<u64> {
        let mut stamp = self.stamp.lock();
        if stamp.is_none() {
            self.came.wait_for(&mut stamp, limit);
        }
        stamp.take()
    }
}

pub struct Watcher {
    pulled: Arc<PulledStore>,
    poll: Duration,
    served: Arc<dyn ServedVersions>,
    stop: Arc<AtomicBool>,
    hints: Arc<Hints>,
    tables: BTreeMap<TableName, WatchedTable>,
    all: AllTables,
    /// Present once the store was reached.
    turns: Option<Turns>,
    begin_at: Duration,
    /// When it is next checked whether tables are gone, and the pause after that.
    gone_at: Option<Duration>,
    gone_pause: Duration,
}

impl Watcher {
    pub fn new(
        pulled: Arc<PulledStore>,
        (poll, node): (Duration, Option<NodeAddress>),
        served: Arc<dyn ServedVersions>,
        (stop, hints): (Arc<AtomicBool>, Arc<Hints>),
    ) -> Self {
        Self {
            all: AllTables::new(Arc::clone(&pulled), node),
            pulled,
            poll,
            served,
            stop,
            hints,
            tables: BTreeMap::new(),
            turns: None,
            begin_at: Duration::ZERO,
            gone_at: None,
            gone_pause: GONE,
        }
    }

    pub fn run(&mut self) {
        // The cache is maintained even if the object store is never reached.
        for table in self.pulled.fetcher.local().tables().unwrap_or_default() {
            self.tables.entry(table).or_default();
        }
        let clock = Arc::clone(self.pulled.fetcher.local().clock());
        let mut hint = None;
        while !self.stop.load(Ordering::Relaxed) {
            let now = clock.monotonic();
            self.look_here();
            self.look_there(now, hint);
            for (name, watched) in &mut self.tables {
                watched.work(&self.pulled, &self.served, name, now);
            }
            let now = clock.monotonic();
            let due = match &self.turns {
                Some(turns) => turns.due(),
                None => self.begin_at,
            };
            let rest = due.saturating_sub(now).clamp(LEAST, LOOK);
            hint = self.hints.wait(rest);
        }
        self.tables.values_mut().for_each(WatchedTable::stop);
        let is_reached = self.pulled.fetcher.shared.state.get().problem.is_none();
        if self.turns.is_some() && is_reached {
            self.all.leave();
        }
    }

    /// Handles damage that readers found.
    fn look_here(&mut self) {
        for watched in self.tables.values_mut() {
            watched.met = None;
        }
        for (name, version, runs) in self.served.damaged() {
            self.tables.entry(name).or_default().met = Some((version, runs));
        }
    }

    fn look_there(&mut self, now: Duration, hint: Option<u64>) {
        let Some(turns) = &mut self.turns else {
            if now >= self.begin_at {
                self.begin_at = now + self.poll.min(BEGIN_AGAIN);
                self.begin(now);
            }
            return;
        };
        let is_news = hint.is_some_and(|stamp| !self.all.is_of(stamp));
        if is_news && turns.follows_hint(now) {
            turns.asked(now);
            self.look_at_all(now, false);
        }
        while let Some(turn) = self.next_turn(now) {
            match turn {
                Turn::Document => self.look_at_all(now, true),
                Turn::Pointer(name) => self.check(&name),
                Turn::List => {
                    self.check_list(now);
                    // Another process may have created it.
                    if !self.all.is_known() {
                        self.look_at_all(now, true);
                    }
                }
            }
        }
        if self.gone_at.is_some_and(|at| now >= at) {
            self.look_for_gone(now);
        }
        let renewed = self.all.renew(now);
        if let (true, Some(turns)) = (renewed, &mut self.turns) {
            turns.spend(now);
        }
    }

    fn next_turn(&mut self, now: Duration) -> Option<Turn> {
        let turns = self.turns.as_mut()?;
        turns.next(now, self.all.is_known(), self.tables.keys().cloned())
    }

    /// Records whether the store answered, and returns the answer.
    fn reached<T>(&self, answer: Result<T, PullError>) -> Option<T> {
        let text = answer.as_ref().err().map(|error| match error.is_absent() {
            true => format!("{error}: is there a store? A push makes one"),
            false => error.to_string(),
        });
        let now = self.pulled.fetcher.local().clock().monotonic();
        let state = &self.pulled.fetcher.shared.state;
        if let Some(lasted) = state.store(text.clone(), now) {
            match text {
                Some(problem) => warn!(
                    problem,
                    "the object store cannot be looked at; what is here serves on"
                ),
                None => {
                    let away_ms = lasted.as_millis() as u64;
                    info!(away_ms, "the object store can be looked at again");
                }
            }
        }
        answer.ok()
    }

    /// Makes the first requests: the list of tables, the document, and each pointer.
    fn begin(&mut self, now: Duration) {
        let names = match self.pulled.tables() {
            Ok(names) => names,
            error => {
                self.reached(error);
                return;
            }
        };
        self.all.begin(now);
        let listed = names.iter().cloned().chain(self.all.names());
        let all: BTreeSet<TableName> = listed.chain(self.tables.keys().cloned()).collect();
        if self.look_at(&all) {
            self.drop_gone(&names.into_iter().collect());
            self.turns = Some(Turns::new(self.poll, now));
            self.wait_for_gone(now);
        }
    }

    /// Checks tables' pointers; returns whether the store answered.
    fn look_at(&mut self, names: &BTreeSet<TableName>) -> bool {
        let wanted = names.iter().map(|name| {
            let watched = self.tables.get(name);
            let seen = watched.and_then(|watched| watched.seen.clone());
            (pointer_name(name), seen)
        });
        let answers = self.pulled.objects.news_of(wanted.collect());
        let mut failed = None;
        for (name, answer) in names.iter().zip(answers) {
            match answer {
                Ok(news) => {
                    let watched = self.tables.entry(name.clone()).or_default();
                    watched.received(&self.pulled, name, news);
                }
                Err(source) => {
                    let name = pointer_name(name);
                    failed.get_or_insert(PullError::Request { name, source });
                }
            }
        }
        self.reached(failed.map_or(Ok(()), Err)).is_some()
    }

    /// Checks the document, and each table whose entry has changed. Other nodes may not know of a
    /// change that this node found without a notification.
    fn look_at_all(&mut self, now: Duration, notify: bool) {
        let asked = self.all.ask();
        let Some(is_new) = self.reached(asked) else {
            return self.failed(now);
        };
        let known = |name: &TableName| self.tables.get(name).and_then(WatchedTable::entry);
        if is_new {
            let changed = self.all.differing(&known, self.tables.keys());
            if !self.look_at(&changed) {
                self.all.forget();
                return self.failed(now);
            }
            self.wait_for_gone(now);
            if notify && !changed.is_empty() {
                self.all.notify();
            }
        }
        let tables = &self.tables;
        self.all.repair(&|name| tables.get(name)?.pointer.clone());
    }

    fn failed(&mut self, now: Duration) {
        if let Some(turns) = &mut self.turns {
            turns.failed(now);
        }
    }

    /// Checks a pointer in turn: the document must agree with it.
    fn check(&mut self, name: &TableName) {
        if self.look_at(&BTreeSet::from([name.clone()])) {
            let found = self.tables.get(name).and_then(WatchedTable::entry);
            self.all.compare(name, found);
        }
    }

    /// Checks the list of tables in turn.
    fn check_list(&mut self, now: Duration) {
        let names = self.pulled.objects.list("tables");
        let names = names.map_err(|source| PullError::Request {
            name: "tables".to_owned(),
            source,
        });
        let Some(names) = self.reached(names) else {
            return;
        };
        let names = names.iter().filter_map(|name| TableName::new(name).ok());
        let names: BTreeSet<TableName> = names.collect();
        let is_lacking = self.tables.keys().any(|name| !names.contains(name));
        // Their pointers have their own turns.
        for name in names {
            self.tables.entry(name).or_default();
        }
        if is_lacking {
            self.gone_at = Some(now);
        }
    }

    /// Returns the tables of the cache, or on their way to it, that were dropped in the store.
    fn gone(&self) -> BTreeSet<TableName> {
        let here = self.pulled.fetcher.local().tables().unwrap_or_default();
        let gone = self.tables.iter().filter(|(name, watched)| {
            watched.is_dropping() || watched.absent && here.contains(name)
        });
        gone.map(|(name, _)| name.clone()).collect()
    }

    /// Schedules checks of such tables until they are gone.
    fn wait_for_gone(&mut self, now: Duration) {
        if self.gone_at.is_none() && !self.gone().is_empty() {
            self.gone_at = Some(now);
        }
    }

    fn look_for_gone(&mut self, now: Duration) {
        self.look_at(&self.gone());
        if let Some(names) = self.reached(self.pulled.tables()) {
            self.drop_gone(&names.into_iter().collect());
        }
        let is_any = !self.gone().is_empty();
        self.gone_at = is_any.then(|| now + self.gone_pause);
        self.gone_pause = match is_any {
            true => (self.gone_pause * 2).min(GONE_MOST),
            false => GONE,
        };
    }

    /// Drops tables from the cache that are no longer in the store, while the store itself exists.
    fn drop_gone(&mut self, there: &BTreeSet<TableName>) {
        for name in self.pulled.fetcher.local().tables().unwrap_or_default() {
            let absent = self.tables.get(&name).is_some_and(|watched| watched.absent);
            if there.contains(&name) && !(absent && self.is_emptied(&name)) {
                continue;
            }
            match self.pulled.fetcher.local().drop_table(&name) {
                Ok(()) => info!(table = %name, "it was dropped in the object store"),
                Err(error) => warn!(table = %name, %error, "a dropped table stays for now"),
            }
            self.forget(&name);
        }
        let names: Vec<TableName> = self.tables.keys().cloned().collect();
        for name in names.iter().filter(|name| !there.contains(*name)) {
            self.forget(name);
        }
    }

    fn forget(&mut self, name: &TableName) {
        if let Some(mut watched) = self.tables.remove(name) {
            watched.stop();
        }
        self.pulled.fetcher.shared.state.forget(name);
    }

    /// Returns whether only locks are left of a table in the store: some stores list empty
    /// directories.
    fn is_emptied(&self, name: &TableName) -> bool {
        let objects = &self.pulled.objects;
        let none = |dir: &str| {
            let found = objects.list(&format!("tables/{name}/{dir}"));
            found.is_ok_and(|names| names.is_empty())
        };
        none("versions") && none("runs")
    }
}
