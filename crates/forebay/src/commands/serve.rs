//! `forebay serve`: answers Redis clients and HTTP from the store.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use forebay_cluster::HostPort;
use forebay_engine::TableName;
use forebay_io::raw;
use forebay_objects::{NodeAddress, PullOptions, PullRate};
use forebay_server::{EventRing, HangUps, Limits, Pulls, Server, ServerConfig, Signals, TlsFiles};
use serde_json::json;
use tracing::warn;

use super::serve_cluster::ClusterArgs;
use crate::context::Context;
use crate::exit::Outcome;
use crate::log::LogFormat;
use crate::printing::human;
use crate::pulling::{PullServer, PullsOf};
use crate::{log, memory};

/// Serve the store's tables to Redis clients, including writes to live tables, and health, metrics
/// and administration over HTTP
///
/// The server follows the store: it sees a swap, a rollback, a new or a dropped table within half a
/// second. For a store in object storage it sees them on notification, or at the next poll. On
/// SIGTERM or SIGINT it answers the commands in flight, then ends. On SIGHUP it reads users, token
/// and certificates again. It refuses addresses other than loopback without TLS and users. While a
/// live table is served, no other command can open it.
#[derive(Debug, Args)]
pub struct Serve {
    /// Address for Redis clients; port 0 takes any free one
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:7379")]
    pub listen: SocketAddr,

    /// Address for HTTP; port 0 takes any free one, off disables HTTP
    #[arg(
        long,
        value_name = "ADDRESS:PORT|off",
        value_parser = parse_http,
        default_value = "127.0.0.1:7380"
    )]
    pub http: Http,

    /// The table of keys that do not name one: keys without a colon, and keys whose part before the
    /// first colon is not a table. Without it a key must be TABLE:KEY
    #[arg(long, value_name = "TABLE")]
    pub default_table: Option<TableName>,

    /// Create an empty store if it does not exist
    #[arg(long, conflicts_with = "cache")]
    pub create: bool,

    /// A host name that HTTP requests may use, beside localhost and the address; may be repeated
    #[arg(long, value_name = "NAME", help_heading = "Security")]
    pub http_host: Vec<String>,

    /// Certificate chain in PEM, for both ports
    #[arg(
        long,
        value_name = "FILE",
        requires = "tls_key",
        help_heading = "Security"
    )]
    pub tls_cert: Option<PathBuf>,

    /// Private key in PEM
    #[arg(
        long,
        value_name = "FILE",
        requires = "tls_cert",
        help_heading = "Security"
    )]
    pub tls_key: Option<PathBuf>,

    /// Certificates in PEM of authorities. Clients of both ports must present a certificate that
    /// one of these signed, besides what the users file requires
    #[arg(
        long,
        value_name = "FILE",
        requires = "tls_cert",
        help_heading = "Security"
    )]
    pub tls_client_ca: Option<PathBuf>,

    /// Users, their passwords and what they may read (docs/how-to/secure.md has the format).
    /// Without this file everyone who can connect may read
    #[arg(long, value_name = "FILE", help_heading = "Security")]
    pub users: Option<PathBuf>,

    /// File with the bearer token of HTTP administration, at least 16 characters. Without it only
    /// users with the verb admin may swap and roll back over HTTP
    #[arg(long, value_name = "FILE", help_heading = "Security")]
    pub admin_token_file: Option<PathBuf>,

    /// Memory of the live tables, for recent writes and for filters and indexes [default: a quarter
    /// of RAM]
    #[arg(long, value_name = "SIZE", value_parser = human::parse_bytes, help_heading = "Work")]
    pub memory: Option<u64>,

    /// The cache: a directory to which the tables of a store in object storage are pulled, and from
    /// which they serve, even while that store is unreachable
    #[arg(long, value_name = "DIR", help_heading = "Object storage")]
    pub cache: Option<PathBuf>,

    /// How many bytes a second to pull. auto: as many as serving allows; auto:SIZE: the same, but
    /// at most SIZE; SIZE: at most SIZE, even if serving becomes slow
    #[arg(
        long,
        value_name = "auto|auto:SIZE|SIZE",
        value_parser = parse_pull_rate,
        default_value = "auto",
        requires = "cache",
        help_heading = "Object storage"
    )]
    pub pull_rate: PullRateArg,

    /// How many versions of a table to keep in the cache
    #[arg(
        long,
        value_name = "N",
        value_parser = human::parse_number::<usize>,
        default_value = "2",
        requires = "cache",
        help_heading = "Object storage"
    )]
    pub keep: usize,

    /// How often to poll the store in object storage: 500ms to 1h [default: 6s]. Each poll costs a
    /// request, and each fifth one another request, while nothing changes. The server sees swaps at
    /// once if the command can reach --http
    #[arg(
        long,
        value_name = "TIME",
        value_parser = parse_poll,
        requires = "cache",
        conflicts_with = "cluster",
        help_heading = "Object storage"
    )]
    pub poll: Option<Duration>,

    /// The address at which commands and other nodes reach --http to notify of swaps, if it is not
    /// the address that HTTP listens on; off: no notifications
    #[arg(
        long,
        value_name = "HOST:PORT|off",
        value_parser = parse_advertised,
        requires = "cache",
        conflicts_with = "cluster",
        help_heading = "Object storage"
    )]
    pub advertise_http: Option<Advertised>,

    #[command(flatten)]
    pub cluster: ClusterArgs,

    /// The most clients at a time; further ones get an error and are closed. Fewer if the limit of
    /// open files (ulimit -n) leaves fewer beside the tables' files
    #[arg(
        long,
        value_name = "N",
        value_parser = human::parse_count,
        default_value = "10000",
        help_heading = "Limits"
    )]
    pub max_clients: usize,

    /// The largest reply to one command; larger ones become an error
    #[arg(
        long,
        value_name = "SIZE",
        value_parser = human::parse_room,
        default_value = "256M",
        help_heading = "Limits"
    )]
    pub reply_limit: u64,

    /// Memory of replies that clients have not read yet, over all connections; beyond it the
    /// connection with the most is dropped [default: an eighth of RAM]
    #[arg(long, value_name = "SIZE", value_parser = human::parse_room, help_heading = "Limits")]
    pub reply_memory: Option<u64>,

    /// The format of log lines, which go to standard error. RUST_LOG selects levels, such as
    /// RUST_LOG=warn
    #[arg(
        long,
        value_name = "FORMAT",
        default_value = "text",
        help_heading = "Work"
    )]
    pub log_format: LogFormat,

    /// Threads that answer clients [default: one per core]
    #[arg(long, value_name = "N", value_parser = human::parse_threads, help_heading = "Work")]
    pub threads: Option<usize>,
}

/// How long a stopping node waits for other nodes.
const LEAVE: Duration = Duration::from_secs(5);

const LEAST_POLL: Duration = Duration::from_millis(500);
const MOST_POLL: Duration = Duration::from_secs(3600);

/// Where HTTP listens, if it does.
#[derive(Debug, Clone, Copy)]
pub struct Http(pub Option<SocketAddr>);

fn parse_http(text: &str) -> Result<Http, String> {
    if text == "off" {
        return Ok(Http(None));
    }
    let address = text.parse().map_err(|_| {
        format!("'{text}' is not an address: write ADDRESS:PORT, as in 127.0.0.1:7380, or off")
    })?;
    Ok(Http(Some(address)))
}

fn parse_poll(text: &str) -> Result<Duration, String> {
    human::parse_within(text, LEAST_POLL, MOST_POLL)
}

/// The address at which others reach HTTP. `None`: nowhere.
#[derive(Debug, Clone)]
pub struct Advertised(pub Option<HostPort>);

fn parse_advertised(text: &str) -> Result<Advertised, String> {
    if text == "off" {
        return Ok(Advertised(None));
    }
    let at: Result<HostPort, _> = text.parse();
    at.map(|at| Advertised(Some(at)))
        .map_err(|error| error.to_string())
}

/// A pull rate as it is written.
#[derive(Debug, Clone, Copy)]
pub struct PullRateArg(pub PullRate);

fn parse_pull_rate(text: &str) -> Result<PullRateArg, String> {
    let (adaptive, size) = match text.strip_prefix("auto") {
        Some("") => return Ok(PullRateArg(PullRate::default())),
        Some(rest) => (true, rest.strip_prefix(':')),
        None => (false, Some(text)),
    };
    let wrong = || format!("'{text}' is no rate: write auto, a size as in 100M, or auto:100M");
    let bytes = human::parse_bytes(size.ok_or_else(wrong)?)?;
    if bytes == 0 {
        return Err(wrong());
    }
    Ok(PullRateArg(PullRate {
        ceiling_bytes: Some(bytes),
        adaptive,
    }))
}

pub fn run(args: Serve, context: &Context) -> anyhow::Result<Outcome> {
    let events = Arc::new(EventRing::new(context.clock.unix_ms()));
    log::to_stderr(context.output, args.log_format, &events, &context.clock)
        .context("cannot start the thread of the log")?;
    let hang_ups = HangUps::catch().context("cannot catch signals")?;
    if args.cluster.cluster {
        return run_node(args, context, events, hang_ups);
    }
    let (store, puller) = match &args.cache {
        None => (context.open_store_to_serve(args.create)?, None),
        Some(dir) => {
            let options = PullOptions {
                rate: args.pull_rate.0,
                keep: args.keep,
                poll: args.poll.unwrap_or(PullOptions::default().poll),
            };
            let (store, puller) = context.open_cache(dir, options)?;
            (store, Some(puller))
        }
    };
    let tables = store.tables()?.len() + store.live_tables()?.len();
    let live_memory = args
        .memory
        .unwrap_or_else(|| memory::quarter(&*context.disk));
    let reply_memory = args
        .reply_memory
        .unwrap_or_else(|| memory::quarter(&*context.disk) / 2);
    let mut config = args.config(live_memory, reply_memory);
    config.events = events;
    config.pulls = puller
        .clone()
        .map(|puller| Arc::new(PullsOf(puller)) as Arc<dyn Pulls>);
    let running = Server::start(config, store)?;
    let node = args.node_address(running.http_address());
    if puller.is_some() && node.is_none() && args.advertise_http.is_none() {
        warn!(
            "no command can notify this node of swaps: --advertise-http HOST:PORT says where its HTTP is reached"
        );
    }
    let pulling = puller
        .map(|puller| puller.start(Arc::new(PullServer(running.inside())), node))
        .transpose()?;
    let signals = Signals::catch(hang_ups).context("cannot catch signals")?;
    let (listen, http) = (running.resp_address(), running.http_address());
    let object = json!({"listen": listen, "http": http, "tables": tables});
    let reported = context.print(&object, || {
        let http = http.map_or("no HTTP".to_owned(), |http| format!("HTTP on {http}"));
        let tables = human::counted(tables as u64, "table");
        format!("serving {tables}: Redis clients on {listen}, {http}; Ctrl-C ends it")
    });
    if let Err(error) = reported {
        // The server serves all the same.
        warn!(%listen, ?http, error = format!("{error:#}"), "standard output cannot be written");
    }
    // The log has the outcome.
    signals.wait(|| drop(running.reload()));
    drop(pulling);
    running.shutdown();
    Ok(Outcome::Done)
}

/// Serves as a node of a cluster.
fn run_node(
    args: Serve,
    context: &Context,
    events: Arc<EventRing>,
    hang_ups: HangUps,
) -> anyhow::Result<Outcome> {
    let reply_memory = args
        .reply_memory
        .unwrap_or_else(|| memory::quarter(&*context.disk) / 2);
    let live_memory = args
        .memory
        .unwrap_or_else(|| memory::quarter(&*context.disk));
    let mut config = args.config(live_memory, reply_memory);
    config.events = events;
    let (cache, rate) = (&args.cache, args.pull_rate.0);
    let mut node = args.cluster.open(context, cache, rate, &mut config)?;
    let running = Server::start(config, node.store.clone())?;
    let served = Arc::new(PullServer(running.inside()));
    let pacing = node.versions.fetcher().pace(served)?;
    node.handle.start().context("cannot start the node")?;
    if let Some(problem) = node.taken_in() {
        running.shutdown();
        bail!("{problem}");
    }
    let signals = Signals::catch(hang_ups).context("cannot catch signals")?;
    let (listen, http) = (running.resp_address(), running.http_address());
    let (gateway, peer) = (running.gateway_address(), running.peer_address());
    let on_isolation = args.cluster.on_isolation;
    let object = json!({
        "listen": listen,
        "http": http,
        "gateway": gateway,
        "peer": peer,
        "on_isolation": on_isolation.to_string(),
    });
    let reported = context.print(&object, || {
        let gateway = gateway.map_or(String::new(), |at| format!(", a gateway on {at}"));
        format!(
            "a node of a cluster: Redis clients on {listen}{gateway}; Ctrl-C ends it\n{}",
            on_isolation.words()
        )
    });
    if let Err(error) = reported {
        warn!(%listen, ?http, error = format!("{error:#}"), "standard output cannot be written");
    }
    signals.wait(|| drop(running.reload()));
    // Clients are redirected before the node stops.
    node.leave(LEAVE);
    let replicas = node.replicas.clone();
    drop((pacing, node));
    running.shutdown();
    replicas.close();
    Ok(Outcome::Done)
}

impl Serve {
    /// Returns the address to which commands send notifications of swaps.
    fn node_address(&self, http: Option<SocketAddr>) -> Option<NodeAddress> {
        let http = http?;
        let address = match &self.advertise_http {
            Some(Advertised(given)) => given.as_ref()?.to_string(),
            None if http.ip().is_unspecified() => return None,
            None => http.to_string(),
        };
        let tls = self.tls_cert.is_some();
        Some(NodeAddress { address, tls })
    }

    /// Returns the host names that HTTP requests may use.
    fn http_hosts(&self) -> Vec<String> {
        let advertised = self.advertise_http.as_ref().and_then(|at| at.0.as_ref());
        let advertised = advertised.map(|at| at.host.clone());
        self.http_host.iter().cloned().chain(advertised).collect()
    }

    fn config(&self, live_memory: u64, reply_memory: u64) -> ServerConfig {
        let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let limits = Limits {
            connections: self.max_clients,
            reply_bytes: size(self.reply_limit),
            reply_memory_bytes: size(reply_memory),
            ..Limits::default()
        };
        let tls = self.tls_cert.clone().zip(self.tls_key.clone());
        ServerConfig {
            resp: self.listen,
            http: self.http.0,
            threads: self.threads.unwrap_or(0),
            tls: tls.map(|(certificate, key)| TlsFiles {
                certificate,
                key,
                client_ca: self.tls_client_ca.clone(),
            }),
            users: self.users.clone(),
            http_token: self.admin_token_file.clone(),
            http_hosts: self.http_hosts(),
            default_table: self.default_table.clone(),
            live_memory_bytes: size(live_memory),
            open_files: raw::open_files_limit().map(size),
            limits,
            ..ServerConfig::default()
        }
    }
}
