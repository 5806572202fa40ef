//! The state that all connections of a server share.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use forebay_engine::{Serving, Store, TableName};
use parking_lot::Mutex;
use tracing::{error, warn};

use crate::client::Client;
use crate::cluster::{Cluster, NOT_HERE};
use crate::command::ScanCursors;
use crate::config::ServerConfig;
use crate::descriptors::{self, Descriptors};
use crate::live::LiveTables;
use crate::metrics::Metrics;
use crate::port::Port;
use crate::reply_memory::{Clients, ReplyMemory};
use crate::samples::Sampler;
use crate::secrets::SecretFiles;
use crate::slow_log::SlowLog;
use crate::table_view::TableView;
use crate::totals::Totals;
use crate::users::User;

/// The version of Redis whose commands these are, as far as they are implemented.
pub const REDIS_VERSION: &str = "7.2.0";

/// The time between two counts of the files that are open.
const COUNT_PAUSE_MS: u64 = 5000;

/// The time between two log lines of a kind.
const LINE_PAUSE_MS: u64 = 1000;

/// The shared state of a server.
#[derive(Debug)]
pub struct Shared {
    pub config: ServerConfig,
    pub store: Store,
    pub serving: Arc<Serving>,
    pub live: LiveTables,
    pub secrets: SecretFiles,
    pub anyone: Arc<User>,
    pub metrics: Metrics,
    pub scan_cursors: ScanCursors,
    pub slow_log: SlowLog,
    pub sampler: Arc<Sampler>,
    /// The counts before CONFIG RESETSTAT.
    pub totals_before: Mutex<Totals>,
    pub clients: Arc<Clients>,
    pub reply_memory: Arc<ReplyMemory>,
    /// Limits log lines about connections that were dropped.
    pub drops_reported: Seldom,
    /// Limits log lines about reads that found damage.
    damage_reported: Seldom,
    /// Limits log lines about connections beyond the limit.
    pub refusals_reported: Seldom,
    /// Limits log lines about wrong passwords.
    pub wrong_reported: Seldom,
    pub resp_address: SocketAddr,
    /// The cluster, if the server is a node of one.
    pub cluster: Option<Cluster>,
    /// 40 hex digits, new with every start: INFO's run_id.
    pub run_id: String,
    pub started_unix_ms: u64,
    /// On the clock of [`Shared::clock_ms`].
    pub started_ms: u64,
    pub descriptors: Descriptors,
    /// The current limit of connections.
    max_connections: AtomicUsize,
    counted_ms: AtomicU64,
    /// Whether a check of `/ready` has once found everything that the start waits for.
    pub has_started: AtomicBool,
    /// Set once, when the server begins to stop.
    pub stopping: AtomicBool,
    next_client: AtomicU64,
    coarse_ms: Arc<AtomicU64>,
}

impl Shared {
    /// Logs damage that a read found; many reads may find the same.
    pub fn notify_damage(&self, error: &str) {
        if let Some(left_out) = self.damage_reported.due(self.now_ms()) {
            error!(error, left_out, "a read met damage");
            let replicas = self
                .cluster
                .as_ref()
                .map(|cluster| cluster.member().replicas());
            if let Some(Some(replicas)) = replicas {
                replicas.damage_met();
            }
        }
    }

    /// Returns the error for another node that asks for keys which this node lacks.
    pub fn not_here(&self, words: &str) -> String {
        let revision = self.cluster.as_ref().map_or(0, |c| c.map().revision);
        format!("{NOT_HERE} {revision} {words}")
    }

    pub fn new(
        config: ServerConfig,
        store: Store,
        serving: Arc<Serving>,
        secrets: SecretFiles,
        resp_address: SocketAddr,
        descriptors: Descriptors,
    ) -> Self {
        let word = || store.random().next_u64();
        let run_id = format!("{:016x}{:016x}{:08x}", word(), word(), word() as u32);
        let clients = Arc::<Clients>::default();
        let coarse_ms = Arc::<AtomicU64>::default();
        let limit = config.limits.reply_memory_bytes;
        let reply_memory = ReplyMemory::new(limit, Arc::clone(&clients), Arc::clone(&coarse_ms));
        let cluster = config.cluster.clone().map(|cluster| {
            let (workers, bytes) = (config.worker_threads(), config.limits.reply_bytes);
            Cluster::new(cluster, &config.net, store.clock(), workers, bytes)
        });
        let live = match &cluster {
            None => LiveTables::new(config.live_memory_bytes),
            Some(cluster) => match cluster.member().replicas() {
                Some(replicas) => LiveTables::given(Arc::clone(replicas.tables())),
                None => LiveTables::given(Arc::default()),
            },
        };
        let shared = Self {
            cluster,
            metrics: Metrics::new(config.worker_threads()),
            secrets,
            anyone: Arc::new(User::anyone()),
            scan_cursors: ScanCursors::default(),
            slow_log: SlowLog::default(),
            sampler: Arc::default(),
            totals_before: Mutex::default(),
            clients,
            reply_memory: Arc::new(reply_memory),
            drops_reported: Seldom::default(),
            damage_reported: Seldom::default(),
            refusals_reported: Seldom::default(),
            wrong_reported: Seldom::default(),
            resp_address,
            run_id,
            started_unix_ms: store.clock().unix_ms(),
            started_ms: store.clock().monotonic().as_millis() as u64 + 1,
            max_connections: AtomicUsize::new(descriptors.connections(0)),
            counted_ms: AtomicU64::new(0),
            descriptors,
            has_started: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            next_client: AtomicU64::new(1),
            coarse_ms,
            live,
            config,
            store,
            serving,
        };
        shared.tick();
        shared
    }

    /// Returns milliseconds on the monotonic clock, from 1 on, so that 0 can mean "never".
    pub fn clock_ms(&self) -> u64 {
        self.store.clock().monotonic().as_millis() as u64 + 1
    }

    /// Sets the coarse clock, which the sweeps do every tenth of a second. Returns it.
    pub fn tick(&self) -> u64 {
        let now = self.clock_ms();
        self.coarse_ms.store(now, Ordering::Relaxed);
        now
    }

    /// Returns milliseconds as of the last tick.
    #[inline]
    pub fn now_ms(&self) -> u64 {
        self.coarse_ms.load(Ordering::Relaxed)
    }

    /// Returns all tables as they are now. It is cheap: hold it for one command, not for long.
    #[inline]
    pub fn tables(&self) -> TableView {
        TableView {
            batch: self.serving.load(),
            live: self.live.load(),
            in_cluster: self.cluster.is_some(),
        }
    }

    /// Returns whether a table of that name is in the store but does not serve now.
    pub fn is_unserved(&self, name: &[u8]) -> bool {
        let by_name = |table: &TableName| table.as_str().as_bytes().cmp(name);
        let states = self.serving.states();
        let batch = states.tables.binary_search_by(|(table, _)| by_name(table));
        let is_elsewhere = |cluster: &Cluster| cluster.member().live().table(name).is_some();
        batch.is_ok()
            || self.live.is_problem(name)
            || self.cluster.as_ref().is_some_and(is_elsewhere)
    }

    /// Returns whether a live table of that name is in the store but is not open yet.
    pub fn is_coming(&self, name: &[u8]) -> bool {
        self.live.is_coming(&self.store, name)
    }

    /// Warns if the default table is not in the store: a name may be misspelt, or the table may be
    /// created later.
    pub fn warn_of_default_table(&self) {
        if let Some(table) = &self.config.default_table
            && self.tables().get(table.as_str().as_bytes()).is_none()
            && !self.is_unserved(table.as_str().as_bytes())
        {
            let who = match self.cluster {
                Some(_) => "a push".to_owned(),
                None => format!("'forebay create {table}' or a push"),
            };
            warn!(
                %table,
                "--default-table: there is no such table yet: keys that name no table are refused until {who} makes it"
            );
        }
    }

    pub fn uptime_seconds(&self) -> u64 {
        self.store
            .clock()
            .unix_ms()
            .saturating_sub(self.started_unix_ms)
            / 1000
    }

    /// Returns the counts since the start, or since CONFIG RESETSTAT.
    pub fn totals(&self) -> Totals {
        let before = self.totals_before.lock();
        Totals::of(&self.metrics).since(&before)
    }

    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Returns whether clients have to authenticate.
    #[inline]
    pub fn has_users(&self) -> bool {
        self.config.users.is_some()
    }

    /// Counts and logs a wrong password or token.
    pub fn note_wrong_secret(&self, address: SocketAddr, user: &str) {
        self.metrics.auth_failures.fetch_add(1, Ordering::Relaxed);
        if let Some(left_out) = self.wrong_reported.due(self.clock_ms()) {
            warn!(%address, user, left_out, "wrong password or token");
        }
    }

    /// Returns the limit of RESP connections.
    pub fn max_connections(&self) -> usize {
        self.max_connections.load(Ordering::Relaxed)
    }

    /// Recomputes the limit of connections from the number of open files. Counting them has a cost,
    /// so it happens every few seconds.
    pub fn share_descriptors(&self) {
        let now = self.clock_ms();
        let counted = self.counted_ms.load(Ordering::Relaxed);
        if counted > 0 && now < counted + COUNT_PAUSE_MS {
            return;
        }
        self.counted_ms.store(now, Ordering::Relaxed);
        let connected = self.metrics.connected.load(Ordering::Relaxed).max(0) as usize;
        let connected = connected + self.metrics.http_connected.load(Ordering::Relaxed);
        let Some(open) = descriptors::open(&**self.store.disk()) else {
            return;
        };
        let most = self.descriptors.connections(open.saturating_sub(connected));
        let before = self.max_connections.swap(most, Ordering::Relaxed);
        let wanted = self.config.limits.connections;
        if most < wanted && before >= wanted {
            let limit = self.descriptors.limit();
            warn!(
                wanted,
                most, limit, "fewer connections, for the limit of open files (ulimit -n)"
            );
        }
    }

    /// Makes connections check the cluster's changed classes.
    pub fn look_at_classes(&self) {
        if let Some(cluster) = &self.cluster
            && cluster.changes.look(&cluster.map())
        {
            self.secrets.touch();
        }
    }

    /// Adds a new connection to the list of clients.
    pub fn register(&self, addresses: (SocketAddr, SocketAddr), port: Port) -> Arc<Client> {
        let id = self.next_client.fetch_add(1, Ordering::Relaxed);
        let client = Arc::new(Client::new(id, addresses, port, self.now_ms()));
        self.clients.lock().insert(id, Arc::clone(&client));
        client
    }

    /// Returns the memory of the process in bytes: without cached pages of files, and those pages;
    /// 0 if unknown.
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

/// Limits the rate of log lines that many clients could cause. At most one line of a kind is
/// written each second, with the number of those left out. Times are milliseconds from 1 on.
#[derive(Debug, Default)]
pub struct Seldom {
    last_ms: AtomicU64,
    left_out: AtomicU64,
}

impl Seldom {
    /// Returns how many lines were left out since the last one, if another line is due. Otherwise
    /// this line is left out, too.
    pub fn due(&self, now_ms: u64) -> Option<u64> {
        let last = self.last_ms.load(Ordering::Relaxed);
        let waits = last > 0 && now_ms < last + LINE_PAUSE_MS;
        let (set, seen) = (Ordering::Relaxed, Ordering::Relaxed);
        if waits
            || self
                .last_ms
                .compare_exchange(last, now_ms.max(1), set, seen)
                .is_err()
        {
            self.left_out.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        Some(self.left_out.swap(0, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_a_second_counts_the_suppressed_ones() {
        let seldom = Seldom::default();
        assert_eq!(seldom.due(1), Some(0));
        assert_eq!((seldom.due(1), seldom.due(1000)), (None, None));
        assert_eq!(seldom.due(1001), Some(2));
        assert_eq!(seldom.due(9000), Some(0));
    }
}
