//! What all connections of a server share.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use forebay_engine::{Serving, Store, TableName};
use parking_lot::Mutex;

use crate::client::Client;
use crate::command::ScanCursors;
use crate::config::ServerConfig;
use crate::live::LiveTables;
use crate::metrics::Metrics;
use crate::slow_log::SlowLog;
use crate::table_view::TableView;
use crate::totals::Totals;
use crate::users::{Token, User, Users};

/// The version of Redis whose commands these are, as far as they go.
pub const REDIS_VERSION: &str = "7.2.0";

/// See the module's text.
#[derive(Debug)]
pub struct Shared {
    pub config: ServerConfig,
    pub store: Store,
    pub serving: Serving,
    pub live: LiveTables,
    /// `None`: everybody is [`Shared::anyone`].
    pub users: Option<Users>,
    pub anyone: Arc<User>,
    pub http_token: Option<Token>,
    pub metrics: Metrics,
    pub scan_cursors: ScanCursors,
    pub slow_log: SlowLog,
    /// What was counted before CONFIG RESETSTAT.
    pub totals_before: Mutex<Totals>,
    pub clients: Mutex<BTreeMap<u64, Arc<Client>>>,
    pub resp_address: SocketAddr,
    /// 40 hex digits, new with every start: INFO's run_id.
    pub run_id: String,
    pub started_unix_ms: u64,
    /// Set once, when the server is told to stop.
    pub stopping: AtomicBool,
    next_client: AtomicU64,
    coarse_ms: AtomicU64,
}

impl Shared {
    pub fn new(
        config: ServerConfig,
        store: Store,
        serving: Serving,
        secrets: (Option<Users>, Option<Token>),
        resp_address: SocketAddr,
    ) -> Self {
        let word = || store.random().next_u64();
        let run_id = format!("{:016x}{:016x}{:08x}", word(), word(), word() as u32);
        let shared = Self {
            metrics: Metrics::new(config.worker_threads()),
            users: secrets.0,
            anyone: Arc::new(User::anyone()),
            http_token: secrets.1,
            scan_cursors: ScanCursors::default(),
            slow_log: SlowLog::default(),
            totals_before: Mutex::default(),
            clients: Mutex::default(),
            resp_address,
            run_id,
            started_unix_ms: store.clock().unix_ms(),
            stopping: AtomicBool::new(false),
            next_client: AtomicU64::new(1),
            coarse_ms: AtomicU64::new(0),
            live: LiveTables::new(config.live_memory_bytes),
            config,
            store,
            serving,
        };
        shared.tick();
        shared
    }

    /// Sets the coarse clock, which the sweeps do every tenth of a second.
    pub fn tick(&self) {
        // From 1 on, so that 0 can mean "never".
        let now = self.store.clock().monotonic().as_millis() as u64 + 1;
        self.coarse_ms.store(now, Ordering::Relaxed);
    }

    /// Milliseconds, as of the last tick.
    #[inline]
    pub fn now_ms(&self) -> u64 {
        self.coarse_ms.load(Ordering::Relaxed)
    }

    /// All tables as they are now. Cheap: hold it for one command, not for long.
    #[inline]
    pub fn tables(&self) -> TableView {
        TableView {
            batch: self.serving.load(),
            live: self.live.load(),
        }
    }

    /// Whether there is a table of that name in the store that does not serve now.
    pub fn is_unserved(&self, name: &[u8]) -> bool {
        let by_name = |table: &TableName| table.as_str().as_bytes().cmp(name);
        let states = self.serving.states();
        let batch = states.tables.binary_search_by(|(table, _)| by_name(table));
        batch.is_ok() || self.live.is_problem(name)
    }

    pub fn uptime_seconds(&self) -> u64 {
        self.store
            .clock()
            .unix_ms()
            .saturating_sub(self.started_unix_ms)
            / 1000
    }

    /// What was counted since the start, or since CONFIG RESETSTAT.
    pub fn totals(&self) -> Totals {
        let before = self.totals_before.lock();
        Totals::of(&self.metrics).since(&before)
    }

    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Enters a new connection into the list of clients.
    pub fn register(&self, address: SocketAddr, local: SocketAddr) -> Arc<Client> {
        let id = self.next_client.fetch_add(1, Ordering::Relaxed);
        let client = Arc::new(Client::new(id, address, local, self.now_ms()));
        self.clients.lock().insert(id, Arc::clone(&client));
        client
    }

    /// Bytes of memory the process holds, files' pages in memory left out; 0 when unknown.
    pub fn resident_bytes(&self) -> (u64, u64) {
        let read = self.store.disk().read(Path::new("/proc/self/statm"));
        let text = read
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default();
        let pages: Vec<u64> = text
            .split(' ')
            .filter_map(|word| word.parse().ok())
            .collect();
        let (resident, file) = (pages.get(1).unwrap_or(&0), pages.get(2).unwrap_or(&0));
        (resident.saturating_sub(*file) * 4096, file * 4096)
    }
}
