//! Starts and stops a server.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

use forebay_engine::{DEFAULT_POLL, RunId, Serving, Store, StoreError, TableName};
use forebay_io::{Listener, Net, start_answering, start_thread};
use thiserror::Error;
use tracing::{error, info, warn};

use crate::background_share::BackgroundShare;
use crate::config::ServerConfig;
use crate::descriptors::Descriptors;
use crate::http::HttpServer;
use crate::live::LOOK;
use crate::loads::Loads;
use crate::port::Port;
use crate::secrets::{SecretFiles, SecretsError};
use crate::shared::Shared;
use crate::worker::{Open, workers};

/// A server of one store's tables.
#[derive(Debug)]
pub struct Server;

/// A running server. Dropping it stops it as [`Handle::shutdown`] does.
#[derive(Debug)]
pub struct Handle {
    shared: Arc<Shared>,
    resp_address: SocketAddr,
    http_address: Option<SocketAddr>,
    /// For a node of a cluster: its ports beside the ordinary one.
    more_addresses: Addresses,
    threads: Vec<JoinHandle<()>>,
}

/// A running server's reads, for the component that pulls versions into its store.
#[derive(Debug, Clone)]
pub struct ServerInside {
    shared: Arc<Shared>,
}

/// The reason why a server does not start.
#[derive(Debug, Error)]
pub enum StartError {
    #[error("{0}")]
    Exposed(String),
    #[error("cannot listen on {address} for {what}: {source}; choose another address or port")]
    Listen {
        what: &'static str,
        address: SocketAddr,
        source: io::Error,
    },
    #[error(
        "the limit of open files is {limit}, and a server of so many threads wants {needed} at least: raise \
         it (ulimit -n {needed}), or give fewer --threads"
    )]
    Descriptors { limit: usize, needed: usize },
    #[error(
        "cannot begin to serve: {0}; where files are too many, raise the limit of open files (ulimit -n)"
    )]
    Runtime(io::Error),
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
    #[error(transparent)]
    Secrets(#[from] SecretsError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Server {
    /// Opens the serving versions and begins to serve them. Returns when both ports listen. A table
    /// that cannot be opened does not keep the others from being served.
    pub fn start(config: ServerConfig, store: Store) -> Result<Handle, StartError> {
        config.check_exposure().map_err(StartError::Exposed)?;
        let descriptors =
            Descriptors::share(config.open_files, config.worker_threads(), &config.limits);
        let descriptors = descriptors.map_err(|needed| StartError::Descriptors {
            limit: config.open_files.unwrap_or(usize::MAX),
            needed,
        })?;
        let secrets = SecretFiles::read(&config, &**store.disk())?;
        if secrets.load().ended(store.clock().unix_ms()) {
            error!("the certificate has ended: clients that check it do not connect");
        }
        let (open, addresses) = open_ports(&config)?;
        let http = config
            .http
            .map(|address| listen(&*config.net, "HTTP", address))
            .transpose()?;
        let resp_address = addresses[0].1;
        let http_address = http
            .as_ref()
            .map(|listener| listener.address())
            .transpose()
            .map_err(StartError::Thread)?;
        let serving = match config.serving.clone() {
            Some(serving) => serving,
            None => Arc::new(Serving::open(store.clone(), DEFAULT_POLL)?),
        };
        let shared = Arc::new(Shared::new(
            config,
            store,
            serving,
            secrets,
            resp_address,
            descriptors,
        ));

        // A node receives those that it has replicas of.
        let has_live = shared.cluster.is_none();
        if has_live {
            shared.live.look(&shared.store);
        }
        shared.warn_of_default_table();
        shared.share_descriptors();
        shared.look_at_classes();
        let mut handle = Handle {
            shared: Arc::clone(&shared),
            resp_address,
            http_address,
            more_addresses: addresses[1..].to_vec(),
            threads: Vec::new(),
        };
        let workers = workers(&shared, open).map_err(StartError::Runtime)?;
        let http = http.map(|listener| HttpServer::new(&shared, listener));
        let http = http.transpose().map_err(StartError::Runtime)?;
        for (worker, runtime) in workers {
            let name = format!("forebay-resp-{}", worker.index);
            handle.keep(start_answering(name, move || worker.run(runtime)))?;
        }
        handle.follow(has_live)?;
        if let Some(http) = http {
            handle.keep(start_answering("forebay-http", move || http.run()))?;
        }
        let http = http_address.map(|address| address.to_string());
        info!(resp = %resp_address, http, "serving");
        Ok(handle)
    }
}

impl Handle {
    /// Returns the address of the RESP port.
    pub fn resp_address(&self) -> SocketAddr {
        self.resp_address
    }

    /// Returns the address of a node's gateway, if it has one.
    pub fn gateway_address(&self) -> Option<SocketAddr> {
        self.address_of(Port::Gateway)
    }

    /// Returns the address of a node's peer port.
    pub fn peer_address(&self) -> Option<SocketAddr> {
        self.address_of(Port::Peer)
    }

    fn address_of(&self, port: Port) -> Option<SocketAddr> {
        let found = self.more_addresses.iter().find(|(of, _)| *of == port);
        found.map(|(_, address)| *address)
    }

    /// Returns the address of the HTTP port, if there is one.
    pub fn http_address(&self) -> Option<SocketAddr> {
        self.http_address
    }

    /// Returns the serving versions.
    pub fn serving(&self) -> &Serving {
        &self.shared.serving
    }

    /// Reads users, token and certificates again. An invalid file is an error, which is also
    /// logged, and changes nothing. Connections stay open. A connection whose user was removed or
    /// has another password ends with its next command.
    pub fn reload(&self) -> Result<(), SecretsError> {
        let (config, disk) = (&self.shared.config, self.shared.store.disk());
        let now_unix_ms = self.shared.store.clock().unix_ms();
        let outcome = self.shared.secrets.reload(config, &**disk, now_unix_ms);
        match &outcome {
            // The operator who asked for it looks for an answer.
            Ok(()) => warn!("users, token and certificates were read again"),
            Err(error) => error!(%error, "nothing was changed"),
        }
        outcome
    }

    /// Returns the interface for a component that changes files while the server runs.
    pub fn inside(&self) -> ServerInside {
        ServerInside {
            shared: Arc::clone(&self.shared),
        }
    }

    /// Stops: accepts no new connections, answers running commands, then ends connections. Returns
    /// when all threads have ended, at most a little more than [`crate::Limits::shutdown_time`]
    /// later, and the live tables are written to runs and closed.
    pub fn shutdown(mut self) {
        self.stop();
    }

    /// Starts the threads that follow changes by others: tables, loads, classes of a cluster.
    fn follow(&mut self, has_live: bool) -> Result<(), StartError> {
        let following = Arc::clone(&self.shared);
        self.keep(start_thread("forebay-live", move || {
            let mut behind = BackgroundShare::default();
            while !following.is_stopping() {
                following.store.clock().sleep(LOOK);
                if has_live {
                    following.live.look(&following.store);
                }
                following.share_descriptors();
                following.look_at_classes();
                behind.look(&following);
            }
        }))?;
        let taking = Arc::clone(&self.shared);
        self.keep(start_thread("forebay-loads", move || {
            let mut loads = Loads::default();
            while has_live && !taking.is_stopping() {
                taking.store.clock().sleep(LOOK);
                loads.take(&taking.live);
            }
        }))
    }

    /// Keeps a thread, to join it at shutdown.
    fn keep(&mut self, thread: io::Result<JoinHandle<()>>) -> Result<(), StartError> {
        self.threads.push(thread.map_err(StartError::Thread)?);
        Ok(())
    }

    fn stop(&mut self) {
        self.shared.stopping.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A panic of the thread was reported there.
            let _ = thread.join();
        }
        self.shared.live.close();
    }
}

impl ServerInside {
    /// Opens a table's versions again after damaged files were replaced.
    pub fn reopen(&self, table: &TableName) {
        self.shared.serving.reopen(table);
    }

    /// Returns tables in whose serving versions reads found damage, with the versions and the runs.
    pub fn damaged(&self) -> Vec<(TableName, u64, Vec<RunId>)> {
        self.shared.serving.damaged()
    }

    /// Returns the number of commands so far by latency: up to 1, 2, 4... microseconds; the last
    /// number is of all slower ones.
    pub fn latencies(&self) -> Vec<u64> {
        self.shared.metrics.latency_counts().to_vec()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.stop();
    }
}

type Addresses = Vec<(Port, SocketAddr)>;

/// Opens all RESP ports, the ordinary one first. Returns them with their addresses.
fn open_ports(config: &ServerConfig) -> Result<(Vec<Open>, Addresses), StartError> {
    let mut wanted = Vec::new();
    match &config.cluster {
        None => wanted.push(("RESP", config.resp, Port::Alone)),
        Some(cluster) => {
            wanted.push(("RESP", config.resp, Port::Cluster));
            wanted.push(("other nodes", cluster.peer, Port::Peer));
            wanted.extend(cluster.gateway.map(|at| ("the gateway", at, Port::Gateway)));
            wanted.extend(cluster.class_ports.iter().map(|port| {
                let at = SocketAddr::new(config.resp.ip(), *port);
                ("a class", at, Port::Class(*port))
            }));
        }
    }
    let (mut open, mut addresses) = (Vec::new(), Vec::new());
    for (what, at, port) in wanted {
        let listener = listen(&*config.net, what, at)?;
        let address = listener.address();
        let address = address.map_err(|source| StartError::Listen {
            what,
            address: at,
            source,
        })?;
        addresses.push((port, address));
        open.push((listener, port));
    }
    Ok((open, addresses))
}

fn listen(
    net: &dyn Net,
    what: &'static str,
    address: SocketAddr,
) -> Result<Box<dyn Listener>, StartError> {
    net.listen(address).map_err(|source| StartError::Listen {
        what,
        address,
        source,
    })
}
