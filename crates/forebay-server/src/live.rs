//! The live tables that a server has open: all of its store, each in this process alone. A
//! node of a cluster is given those of which it has replicas.
//!
//! A thread looks for tables that were made meanwhile. A table that cannot be opened (another
//! process has it, its log is damaged) does not keep the others from being served; it is tried
//! again.

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

/// How often new tables are looked for.
pub const LOOK: Duration = Duration::from_millis(200);
/// The longest time between two attempts to open a table.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// How often an opening that takes long tells how far it is.
const REPORT: Duration = Duration::from_secs(2);

/// Open live tables by name.
pub type LiveMap = BTreeMap<TableName, LiveTable>;

/// See the module's text.
pub struct LiveTables {
    map: Arc<ArcSwap<LiveMap>>,
    /// Somebody else opens and closes them.
    is_given: bool,
    budget: Arc<Budget>,
    /// Why tables that are there are not open.
    problems: ArcSwap<BTreeMap<TableName, Problem>>,
}

/// A table that could not be opened.
#[derive(Clone)]
struct Problem {
    text: String,
    /// When it is tried again, and how long after the last time that is.
    again: Duration,
    pause: Duration,
}

impl LiveTables {
    /// None yet; all of them may take so many bytes of memory together.
    pub fn new(memory_bytes: usize) -> Self {
        Self {
            map: Arc::default(),
            is_given: false,
            budget: Budget::new(memory_bytes),
            problems: ArcSwap::default(),
        }
    }

    /// Those that somebody else opens and closes.
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

    /// Closes a table when its last command has ended; it is opened again when nobody waits for
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

    /// Whether there is a table of that name that cannot be opened.
    pub fn is_problem(&self, name: &[u8]) -> bool {
        let problems = self.problems.load();
        !problems.is_empty()
            && std::str::from_utf8(name).is_ok_and(|name| problems.contains_key(name))
    }

    /// Whether there is a table of that name that the next look opens.
    pub fn is_coming(&self, store: &Store, name: &[u8]) -> bool {
        let name = std::str::from_utf8(name).ok().map(TableName::new);
        let Some(Ok(name)) = name else { return false };
        !self.is_given
            && !self.problems.load().contains_key(&name)
            && store.is_live(&name).unwrap_or(false)
            && !store.is_to_be_given_up(&name).unwrap_or(true)
    }

    /// Changes what is known of tables that are not open. REQUIRES: one thread at a time does.
    fn change_problems(&self, change: impl FnOnce(&mut BTreeMap<TableName, Problem>)) {
        let mut problems = BTreeMap::clone(&self.problems.load());
        change(&mut problems);
        self.problems.store(Arc::new(problems));
    }

    /// Opens what is there and not open.
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
            // Where that cannot be known, opening the table tells why.
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

    /// Reading a long log back only to find it damaged is not to be done all the time: each attempt
    /// waits twice as long as the one before.
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

    /// Reading back a long log takes a while; the log tells how far it is.
    fn open_one(&self, store: &Store, name: &TableName) -> Result<LiveTable, LiveError> {
        let started = store.clock().monotonic();
        let (done, opened) = channel();
        let table = std::thread::scope(|scope| {
            let opening = start_within(scope, "forebay-open", move || {
                let table = store.live_table(name, &self.budget);
                // Whoever waits looks at the thread's end as well.
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

    /// Writes what is in memory to runs and closes all tables, so that the next start reads no log
    /// back.
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
