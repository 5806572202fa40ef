//! The configuration of a server, and the checks that refuse an unsafe one.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use forebay_engine::{Serving, Store, TableName};
use forebay_io::{Net, OsNet};

use crate::cluster::ClusterConfig;
use crate::events::EventRing;
use crate::pulls::Pulls;
use crate::resp::RequestLimits;

/// The default port of RESP.
pub const DEFAULT_RESP_PORT: u16 = 7379;
/// The default port of HTTP.
pub const DEFAULT_HTTP_PORT: u16 = 7380;

/// Replies of this size are sent before more are made.
pub const HIGH_WATER: usize = 256 << 10;

/// A server's addresses, credentials, limits and other inputs.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// The address of the RESP port; port 0 takes any free one.
    pub resp: SocketAddr,
    /// The address of the HTTP port; `None` for no HTTP.
    pub http: Option<SocketAddr>,
    /// Threads that serve RESP; 0 for one per core.
    pub threads: usize,
    /// Certificate chain and key, PEM. If set, both ports accept only TLS.
    pub tls: Option<TlsFiles>,
    /// The users file; see [`crate::Users`]. Without it every client may read every table.
    pub users: Option<PathBuf>,
    /// A file with the bearer token for administration by HTTP. Without it, only users with the
    /// verb `admin` may swap and roll back.
    pub http_token: Option<PathBuf>,
    /// Host names that HTTP requests may use, beside `localhost`, the loopback addresses and the
    /// bound address.
    pub http_hosts: Vec<String>,
    /// The last events of the log, which HTTP serves.
    pub events: Arc<EventRing>,
    /// The table of keys that name none; without it every key must name its table.
    pub default_table: Option<TableName>,
    /// Memory for the memtables of live tables, and for the filters and indexes of their runs.
    pub live_memory_bytes: usize,
    /// The component that pulls versions into the store, if there is one.
    pub pulls: Option<Arc<dyn Pulls>>,
    /// The serving versions, if another component manages them. `None` if the server follows the
    /// store's pointers.
    pub serving: Option<Arc<Serving>>,
    /// The store whose versions HTTP administration lists and swaps, if it is not the served store.
    pub administered: Option<Store>,
    /// The cluster configuration, if the server is a node.
    pub cluster: Option<ClusterConfig>,
    /// How many files the process may have open; `None`: there is no limit.
    pub open_files: Option<usize>,
    /// The network of both ports.
    pub net: Arc<dyn Net>,
    pub limits: Limits,
}

/// The files of a certificate and its key.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// Certificates of authorities. If set, clients must show a certificate that one of them
    /// signed.
    pub client_ca: Option<PathBuf>,
}

/// Limits that keep one client from harming the others.
#[derive(Debug, Clone)]
pub struct Limits {
    pub request: RequestLimits,
    /// Connections at a time; further ones get an error and are closed. The limit of open files may
    /// lower it.
    pub connections: usize,
    /// The largest reply to one command. Replies to pipelined commands are sent in between.
    pub reply_bytes: usize,
    /// Unsent replies of all connections together. Beyond it, the connection that holds the most is
    /// dropped.
    pub reply_memory_bytes: usize,
    /// From connecting to a successful AUTH, if that is required; a TLS handshake included.
    pub auth_time: Duration,
    /// The pause before a wrong password is answered. It doubles with each further one on a
    /// connection, up to 16 times.
    pub auth_pause: Duration,
    /// A client that takes longer than this for 256 KiB of replies is dropped.
    pub slow_reader_time: Duration,
    /// A client that sends nothing for this long is dropped; `None`: never.
    pub idle_time: Option<Duration>,
    /// The time for running commands to end after the server begins to stop.
    pub shutdown_time: Duration,
    /// HTTP connections at a time, for scrapers and operators.
    pub http_connections: usize,
    /// The largest body of one HTTP request.
    pub http_body_bytes: usize,
    /// The time for an HTTP request's header to arrive.
    pub http_header_time: Duration,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            resp: SocketAddr::from(([127, 0, 0, 1], DEFAULT_RESP_PORT)),
            http: Some(SocketAddr::from(([127, 0, 0, 1], DEFAULT_HTTP_PORT))),
            threads: 0,
            tls: None,
            users: None,
            http_token: None,
            http_hosts: Vec::new(),
            events: Arc::new(EventRing::new(1)),
            default_table: None,
            live_memory_bytes: 256 << 20,
            pulls: None,
            serving: None,
            administered: None,
            cluster: None,
            open_files: None,
            net: Arc::new(OsNet),
            limits: Limits::default(),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            request: RequestLimits {
                bulk_bytes: 16 << 20,
                arguments: 1 << 20,
                command_bytes: 64 << 20,
            },
            connections: 10_000,
            reply_bytes: 256 << 20,
            reply_memory_bytes: 1 << 30,
            auth_time: Duration::from_secs(10),
            auth_pause: Duration::from_millis(250),
            slow_reader_time: Duration::from_secs(30),
            idle_time: None,
            shutdown_time: Duration::from_secs(10),
            http_connections: 256,
            http_body_bytes: 64 << 10,
            http_header_time: Duration::from_secs(10),
        }
    }
}

impl ServerConfig {
    /// Refuses a configuration that is reachable from other machines without encryption and
    /// credentials. Returns what is missing.
    pub fn check_exposure(&self) -> Result<(), String> {
        let mut open = vec![("RESP", self.resp)];
        open.extend(self.http.map(|address| ("HTTP", address)));
        if let Some(cluster) = &self.cluster {
            open.extend(cluster.gateway.map(|address| ("the gateway", address)));
            if cluster.peer_tls.is_none() && !is_loopback(&cluster.peer) {
                return Err(format!(
                    "refusing to serve other nodes on {}, which other machines may reach, without their                      certificates: give TLS for them, or bind to 127.0.0.1",
                    cluster.peer
                ));
            }
        }
        for (what, address) in open
            .into_iter()
            .filter(|(_, address)| !is_loopback(address))
        {
            let mut missing = Vec::new();
            if self.tls.is_none() {
                missing.push("a TLS certificate and key");
            }
            if self.users.is_none() {
                missing.push("a users file");
            }
            if !missing.is_empty() {
                return Err(format!(
                    "refusing to serve {what} on {address}, which other machines may reach, without \
                     {}: give them, or bind to 127.0.0.1",
                    missing.join(" and ")
                ));
            }
        }
        Ok(())
    }

    /// Returns the number of threads to start.
    pub fn worker_threads(&self) -> usize {
        match self.threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            threads => threads,
        }
    }
}

/// Returns whether only this machine can reach the address.
pub fn is_loopback(address: &SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_is_served_in_the_clear() {
        let mut config = ServerConfig::default();
        assert_eq!(config.check_exposure(), Ok(()));
        config.resp = "[::1]:0".parse().expect("an address");
        assert_eq!(config.check_exposure(), Ok(()));

        config.resp = "0.0.0.0:7379".parse().expect("an address");
        let refused = config.check_exposure().expect_err("refused");
        assert!(
            refused.contains("TLS") && refused.contains("users"),
            "{refused}"
        );

        config.tls = Some(TlsFiles {
            certificate: "a".into(),
            key: "b".into(),
            client_ca: None,
        });
        let refused = config.check_exposure().expect_err("refused");
        assert!(
            !refused.contains("TLS") && refused.contains("users"),
            "{refused}"
        );

        config.users = Some("users.json".into());
        assert_eq!(config.check_exposure(), Ok(()));
    }

    #[test]
    fn the_http_port_has_the_same_restriction() {
        let http = Some("192.0.2.1:7380".parse().expect("an address"));
        let refused = ServerConfig {
            http,
            ..ServerConfig::default()
        }
        .check_exposure();
        assert!(refused.expect_err("refused").contains("HTTP"));
    }
}
