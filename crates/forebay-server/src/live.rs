//! The live tables that a server has open: all of its store, each in this process alone.
//!
//! A thread looks for tables that were made meanwhile. A table that cannot be opened (another process has
//! it, its log is damaged) does not keep the others from being served; it is tried again.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use forebay_engine::live::{Budget, LiveError, LiveTable};
use forebay_engine::{Store, TableName};
use parking_lot::Mutex;
use tracing::{error, info, warn};

/// How often new tables are looked for.
pub const LOOK: Duration = Duration::from_millis(200);
/// How often an opening that takes long tells how far it is.
const REPORT: Duration = Duration::from_secs(2);

/// Open live tables by name.
pub type LiveMap = BTreeMap<TableName, LiveTable>;

/// See the module's text.
pub struct LiveTables {
    map: ArcSwap<LiveMap>,
    budget: Arc<Budget>,
    /// Why tables that are there are not open.
    problems: Mutex<BTreeMap<TableName, String>>,
}

impl LiveTables {
    /// None yet; all of them may take so many bytes of memory together.
    pub fn new(memory_bytes: usize) -> Self {
        Self {
            map: ArcSwap::default(),
            budget: Budget::new(memory_bytes),
            problems: Mutex::default(),
        }
    }

    #[inline]
    pub fn load(&self) -> Guard<Arc<LiveMap>> {
        self.map.load()
    }

    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    pub fn problems(&self) -> BTreeMap<TableName, String> {
        self.problems.lock().clone()
    }

    /// Opens what is there and not open.
    pub fn look(&self, store: &Store) {
        let names = match store.live_tables() {
            Ok(names) => names,
            Err(error) => {
                warn!(%error, "cannot look for live tables");
                return;
            }
        };
        let open = self.map.load();
        let new: Vec<_> = names
            .iter()
            .filter(|name| !open.contains_key(*name))
            .collect();
        self.problems.lock().retain(|name, _| new.contains(&name));
        for name in new {
            match self.open_one(store, name) {
                Ok(table) => {
                    self.problems.lock().remove(name);
                    let mut map = LiveMap::clone(&self.map.load());
                    map.insert(name.clone(), table);
                    self.map.store(Arc::new(map));
                }
                Err(error) => {
                    let text = error.to_string();
                    let before = self.problems.lock().insert(name.clone(), text.clone());
                    if before.as_ref() != Some(&text) {
                        error!(table = %name, error = text, "a live table cannot be served");
                    }
                }
            }
        }
    }

    /// Reading back a long log takes a while; the log tells how far it is.
    fn open_one(&self, store: &Store, name: &TableName) -> Result<LiveTable, LiveError> {
        let started = store.clock().monotonic();
        let (done, opened) = channel();
        let table = std::thread::scope(|scope| {
            let opening = scope.spawn(move || {
                let table = store.live_table(name, &self.budget);
                // Whoever waits looks at the thread's end as well.
                let _ = done.send(());
                table
            });
            while let Err(RecvTimeoutError::Timeout) = opened.recv_timeout(REPORT) {
                let memory_bytes = self.budget.used_bytes();
                info!(table = %name, memory_bytes, "reading the log back");
            }
            opening.join()
        });
        let table = table.unwrap_or_else(|_| {
            Err(LiveError::Closed {
                table: name.clone(),
            })
        })?;
        let stats = table.stats();
        let time = store.clock().monotonic().saturating_sub(started);
        let (runs, log_bytes) = (stats.runs.iter().sum::<usize>(), stats.log_bytes);
        info!(table = %name, runs, log_bytes, ?time, "a live table is open");
        Ok(table)
    }

    /// Writes what is in memory to runs and closes all tables, so that the next start reads no log back.
    pub fn close(&self) {
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
