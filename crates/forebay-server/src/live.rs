//! The live tables that a server has open: all of its store, which only one process can open.
//!
//! A node of a cluster receives those of which it has replicas from another component.
//!
//! A thread looks for new tables. A table that cannot be opened (another process has it, its log is
//! damaged) does not keep the others from being served. The server retries it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use forebay_engine::live::{Budget, LiveError, LiveTable};
use forebay_engine::{Store, TableName};
use forebay_io::start_within;
use tracing::{error, info, warn};

/// The interval of looks for new tables.
pub const LOOK: Duration = Duration::from_millis(200);
/// The longest time between two attempts to open a table.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// How often a slow opening logs its progress.
const REPORT: Duration = Duration::from_secs(2);

/// Open live tables by name.
pub type LiveMap = BTreeMap<TableName, LiveTable>;

/// The open live tables of a server, and the problems of the others.
pub struct LiveTables {
    map: Arc<ArcSwap<LiveMap>>,
    /// Whether another component opens and closes them.
    is_given: bool,
    budget: Arc<Budget>,
    /// Why existing tables are not open.
    problems: ArcSwap<BTreeMap<TableName, Problem>>,
}

/// A table that could not be opened.
#[derive(Clone)]
struct Problem {
    text: String,
    /// When it is retried, and how long after the previous attempt.
    again: Duration,
    pause: Duration,
}

impl LiveTables {
    /// Creates an empty set; all tables together may take this much memory.
    pub fn new(memory_bytes: usize) -> Self {
        Self {
            map: Arc::default(),
            is_given: false,
            budget: Budget::new(memory_bytes),
            problems: ArcSwap::default(),
        }
    }

    /// Creates a set that another component opens and closes.
    pub fn given(map: Arc<ArcSwap<LiveMap>>) -> Self {
        Self {
            map,
            is_given: true,
            ..Self::new(0)
        }
    }

    #[inline]
    pub fn load(&self) -> Guard<Arc<LiveMap>> {
        self.map.load()
    }

    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Closes a table when its last command has ended. It is opened again if no process waits for
    /// that.
    pub fn give_up(&self, name: &TableName) {
        self.map.rcu(|map| {
            let mut map = LiveMap::clone(map);
            map.remove(name);
            map
        });
    }

    pub fn problems(&self) -> BTreeMap<TableName, String> {
        let problems = self.problems.load();
        let reported = problems.iter();
        reported
            .map(|(name, problem)| (name.clone(), problem.text.clone()))
            .collect()
    }

    /// Returns whether a table of that name cannot be opened.
    pub fn is_problem(&self, name: &[u8]) -> bool {
        let problems = self.problems.load();
        !problems.is_empty()
            && std::str::from_utf8(name).is_ok_and(|name| problems.contains_key(name))
    }

    /// Returns whether the next look opens a table of that name.
    pub fn is_coming(&self, store: &Store, name: &[u8]) -> bool {
        let name = std::str::from_utf8(name).ok().map(TableName::new);
        let Some(Ok(name)) = name else { return false };
        !self.is_given
            && !self.problems.load().contains_key(&name)
            && store.is_live(&name).unwrap_or(false)
            && !store.is_to_be_given_up(&name).unwrap_or(true)
    }

    /// Updates the problems of tables that are not open. REQUIRES: one thread at a time does.
    fn change_problems(&self, change: impl FnOnce(&mut BTreeMap<TableName, Problem>)) {
        let mut problems = BTreeMap::clone(&self.problems.load());
        change(&mut problems);
        self.problems.store(Arc::new(problems));
    }

    /// Opens the tables that exist and are not open.
    pub fn look(&self, store: &Store) {
        let open = self.map.load();
        let new = match store.live_tables_but(|name| open.contains_key(name)) {
            Ok(new) => new,
            Err(error) => {
                warn!(%error, "cannot look for live tables");
                return;
            }
        };
        if !self.problems.load().is_empty() {
            self.change_problems(|problems| problems.retain(|name, _| new.contains(name)));
        }
        let now = store.clock().monotonic();
        let due = |name: &TableName| {
            let problems = self.problems.load();
            problems.get(name).is_none_or(|p| p.again <= now)
        };
        for name in new.iter().filter(|name| due(name)) {
            // If that is unknown, opening the table reports the reason.
            if store.is_to_be_given_up(name).unwrap_or(false) {
                continue;
            }
            match self.open_one(store, name) {
                Ok(table) => {
                    self.map.rcu(|map| {
                        let mut map = LiveMap::clone(map);
                        map.insert(name.clone(), table.clone());
                        map
                    });
                    self.change_problems(|problems| drop(problems.remove(name)));
                }
                Err(error) => self.note(name, error.to_string(), store.clock().monotonic()),
            }
        }
    }

    /// Records a problem. Each attempt waits twice as long as the previous one, because reading a
    /// long log only to find it damaged is expensive.
    fn note(&self, name: &TableName, text: String, now: Duration) {
        let problems = self.problems.load();
        let before = problems.get(name);
        if before.is_none_or(|before| before.text != text) {
            error!(table = %name, error = text, "a live table cannot be served");
        }
        let pause = before.map_or(LOOK, |before| (before.pause * 2).min(LONGEST_PAUSE));
        let again = now + pause;
        let problem = Problem { text, again, pause };
        self.change_problems(|problems| drop(problems.insert(name.clone(), problem)));
    }

    /// Opens a table. Replaying a long log takes a while, so the progress is logged.
    fn open_one(&self, store: &Store, name: &TableName) -> Result<LiveTable, LiveError> {
        let started = store.clock().monotonic();
        let (done, opened) = channel();
        let table = std::thread::scope(|scope| {
            let opening = start_within(scope, "forebay-open", move || {
                let table = store.live_table(name, &self.budget);
                // The waiting thread checks the end of this thread as well.
                let _ = done.send(());
                table
            });
            let opening = opening.map_err(|source| LiveError::Thread {
                table: name.clone(),
                source,
            })?;
            while let Err(RecvTimeoutError::Timeout) = opened.recv_timeout(REPORT) {
                let memory_bytes = self.budget.used_bytes();
                info!(table = %name, memory_bytes, "reading the log back");
            }
            opening.join().unwrap_or_else(|_| {
                Err(LiveError::Closed {
                    table: name.clone(),
                })
            })
        })?;
        let stats = table.stats();
        let time = store.clock().monotonic().saturating_sub(started);
        let (runs, log_bytes) = (stats.runs.iter().sum::<usize>(), stats.log_bytes);
        info!(table = %name, runs, log_bytes, ?time, "a live table is open");
        Ok(table)
    }

    /// Writes all memtables to runs and closes all tables, so that the next start replays no log.
    pub fn close(&self) {
        if self.is_given {
            return;
        }
        let tables = self.map.swap(Arc::default());
        for (name, table) in tables.iter() {
            if let Err(error) = table.flush() {
                warn!(table = %name, %error, "not flushed: the next start reads its log back");
            }
        }
    }
}

impl fmt::Debug for LiveTables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveTables")
            .field("map", &self.map.load())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_to_open_a_table_become_rarer() {
        let tables = LiveTables::new(0);
        let name = TableName::new("t").unwrap();
        let mut now = Duration::ZERO;
        for attempt in 0..10 {
            tables.note(&name, "damaged".to_owned(), now);
            let again = tables.problems.load()[&name].again;
            assert_eq!(again - now, (LOOK * (1 << attempt)).min(LONGEST_PAUSE));
            now = again;
        }
        assert_eq!(tables.problems()[&name], "damaged");
    }
}
