//! `forebay serve --cluster`: runs a server as a node of a cluster.

use std::fmt;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use forebay_cluster::catalog::{Catalog, CatalogError, Documented, RESTORE};
use forebay_cluster::coordinator::CoordinatorSettings;
use forebay_cluster::local::{LOG_RETENTION_BYTES, boot_id};
use forebay_cluster::message::Introduction;
use forebay_cluster::model::{FORMATS, Identity};
use forebay_cluster::shell::SavedCatalog;
use forebay_cluster::{HostPort, NodeName, Zone};
use forebay_objects::{DirectoryOrigin, Origin, Patience, PullRate, claim_cache, object_origin};
use forebay_server::{ClusterNode, NodeSetup, ServerConfig};

use tracing::warn;

use crate::context::Context;
use crate::nodes::node_key::NodeKey;
use crate::printing::human;

/// What to do about a cache that cannot be written to.
const ROOM: &str = "make room on its disk, or see to its permissions, and start the node again";
/// The most ports for slot classes that a node can have.
const MOST_CLASS_PORTS: usize = 16;

#[derive(Debug, Args)]
pub struct ClusterArgs {
    /// Serve as a node of the cluster that --store belongs to (forebay cluster create)
    #[arg(long, requires_all = ["cache", "node", "zone", "peer"], conflicts_with = "create", help_heading = "Cluster")]
    pub cluster: bool,

    /// The node's name, unique in its cluster
    #[arg(
        long,
        value_name = "NAME",
        requires = "cluster",
        help_heading = "Cluster"
    )]
    node: Option<NodeName>,

    /// The node's zone: what fails together with it. Replicas are in different zones
    #[arg(
        long,
        value_name = "ZONE",
        requires = "cluster",
        help_heading = "Cluster"
    )]
    zone: Option<Zone>,

    /// Address for the other nodes
    #[arg(
        long,
        value_name = "ADDRESS:PORT",
        requires = "cluster",
        help_heading = "Cluster"
    )]
    peer: Option<SocketAddr>,

    /// Where clients reach the node, if it is not the address that it listens on
    #[arg(
        long,
        value_name = "HOST[:PORT]",
        requires = "cluster",
        help_heading = "Cluster"
    )]
    advertise: Option<String>,

    /// Where other nodes reach the node, if it is not --peer
    #[arg(
        long,
        value_name = "HOST:PORT",
        requires = "cluster",
        help_heading = "Cluster"
    )]
    advertise_peer: Option<HostPort>,

    /// Address for clients that do not support clusters: it answers for all keys
    #[arg(
        long,
        value_name = "ADDRESS:PORT",
        requires = "cluster",
        help_heading = "Cluster"
    )]
    gateway: Option<SocketAddr>,

    /// Copy the data of a node that is down for this long (10m) to other nodes. Without it an
    /// operator does that (forebay cluster drain). Use the same value on all nodes
    #[arg(
        long,
        value_name = "TIME",
        value_parser = human::parse_lifetime,
        requires = "cluster",
        help_heading = "Cluster"
    )]
    replace_after: Option<Duration>,

    /// Spread the load of tables automatically if a node has a quarter more than the mean for a
    /// while: other nodes lead its partitions, and replicas are copied, at most this many bytes an
    /// hour (10G; 0: none). Without it an operator does that (forebay plan place). Use the same
    /// value on all nodes
    #[arg(
        long,
        value_name = "SIZE",
        value_parser = human::parse_bytes,
        requires = "cluster",
        help_heading = "Cluster"
    )]
    keep_balanced: Option<u64>,

    /// After READONLY, let followers of live tables answer without asking their leader, from data
    /// that was current within this time (500ms). Without it they ask for each read
    #[arg(
        long,
        value_name = "TIME",
        value_parser = human::parse_lifetime,
        requires = "cluster",
        help_heading = "Cluster"
    )]
    max_staleness: Option<Duration>,

    /// How much of each live table's log to keep for replicas that were away [default: 64M]; a
    /// replica that missed more gets a copy of its partition
    #[arg(
        long,
        value_name = "SIZE",
        value_parser = human::parse_bytes,
        requires = "cluster",
        help_heading = "Cluster"
    )]
    log_retention: Option<u64>,

    /// Ports, beside --listen, of the slot classes that the node is primary of, so that clients
    /// read from replicas: four are enough
    #[arg(
        long,
        value_name = "A-B|off",
        value_parser = parse_class_ports,
        default_value = "off",
        requires = "cluster",
        help_heading = "Cluster"
    )]
    class_ports: ClassPorts,

    /// What to do when the node hears nothing of the cluster: serve on, or refuse after a time
    #[arg(
        long,
        value_name = "serve|refuse:TIME",
        value_parser = parse_on_isolation,
        default_value = "serve",
        requires = "cluster",
        help_heading = "Cluster"
    )]
    pub on_isolation: OnIsolation,
}

#[derive(Debug, Clone)]
struct ClassPorts(Option<RangeInclusive<u16>>);

#[derive(Debug, Clone, Copy)]
pub struct OnIsolation(Option<Duration>);

impl OnIsolation {
    /// Describes what the node does when it is cut off, for people.
    pub fn words(self) -> String {
        match self.0 {
            None => "when it hears nothing of the cluster, it serves what it has, which may be an older version \
                     (--on-isolation serve)"
                .to_owned(),
            Some(time) => format!(
                "when it hears nothing of the cluster for {}, it answers nothing (--on-isolation {self})",
                human::duration(time)
            ),
        }
    }
}

impl fmt::Display for OnIsolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("serve"),
            Some(time) => write!(f, "refuse:{}ms", time.as_millis()),
        }
    }
}

fn parse_class_ports(text: &str) -> Result<ClassPorts, String> {
    if text == "off" {
        return Ok(ClassPorts(None));
    }
    let wrong = || {
        format!(
            "'{text}' is no range of ports: write A-B, as in 7400-7403, with {MOST_CLASS_PORTS} at most, or off"
        )
    };
    let (first, last) = text.split_once('-').ok_or_else(wrong)?;
    let port = |text: &str| text.parse::<u16>().ok().filter(|port| *port > 0);
    let (first, last) = port(first).zip(port(last)).ok_or_else(wrong)?;
    let ports = first..=last;
    match (1..=MOST_CLASS_PORTS).contains(&ports.len()) {
        true => Ok(ClassPorts(Some(ports))),
        false => Err(wrong()),
    }
}

fn parse_on_isolation(text: &str) -> Result<OnIsolation, String> {
    if text == "serve" {
        return Ok(OnIsolation(None));
    }
    let time = text.strip_prefix("refuse:");
    let time =
        time.ok_or_else(|| format!("'{text}' is neither serve nor refuse:TIME, as in refuse:10s"))?;
    human::parse_lifetime(time).map(|time| OnIsolation(Some(time)))
}

/// Describes the node that a cache belongs to.
fn holder_words(identity: &Identity, name: &NodeName) -> String {
    format!("cluster {} ({}), node {name}", identity.name, identity.id)
}

/// Checks that the node has a key, unless it is only on loopback, which needs no encryption.
fn key_beyond_loopback(
    context: &Context,
    cache: &Path,
    name: &NodeName,
    peer: SocketAddr,
) -> anyhow::Result<Option<NodeKey>> {
    let is_far = !peer.ip().is_loopback();
    let key = is_far.then(|| NodeKey::of(&*context.disk, cache, name.as_str()));
    key.transpose()
}

impl ClusterArgs {
    /// Opens the parts of the node, and completes `config` with them.
    pub fn open(
        &self,
        context: &Context,
        cache: &Option<PathBuf>,
        rate: PullRate,
        config: &mut ServerConfig,
    ) -> anyhow::Result<ClusterNode> {
        let (Some(cache), Some(name), Some(zone), Some(peer)) =
            (cache, &self.node, &self.zone, self.peer)
        else {
            bail!("--cluster wants --cache, --node, --zone and --peer");
        };
        let mut who = self.introduction(context, config, name, zone, peer)?;
        let asked_at = context.clock.monotonic();
        let catalog = context.catalog(Patience::Little)?;
        let (disk, dir) = (context.disk.clone(), cache.join("cluster"));
        let remembered = SavedCatalog { disk, dir };
        let (identity, is_away) = identity(&*catalog, &remembered)?;
        let store = context.open_cache_directory(cache)?;
        let cannot_write = || format!("cannot write into the cache {}: {ROOM}", cache.display());
        claim_cache(&store, &holder_words(&identity, name))?;
        let noted = remembered.note_identity(&identity);
        noted.with_context(cannot_write)?;
        let key = key_beyond_loopback(context, cache, name, peer)?;
        who.key = key.as_ref().map(|key| key.key.clone());
        let tls = key.as_ref().map(|key| key.tls.clone());
        let trusted = key.map(|key| key.trusted).unwrap_or_default();
        // Without the store nothing can be administered; the node's own data still serves.
        config.administered = match is_away {
            true => None,
            false => context.open_store().ok(),
        };
        let setup = NodeSetup {
            identity,
            who,
            settings: self.settings(),
            catalog,
            asked_at,
            cache: store,
            remembered,
            origin: origin(context)?,
            rate,
            boot_id: boot_id(&*context.disk, &*context.random),
            log_retention_bytes: self.log_retention.unwrap_or(LOG_RETENTION_BYTES),
            peer,
            gateway: self.gateway,
            tls,
            trusted,
            max_staleness: self.max_staleness,
        };
        Ok(ClusterNode::new(setup, config)?)
    }

    fn settings(&self) -> CoordinatorSettings {
        CoordinatorSettings {
            replace_after: self.replace_after,
            keep_balanced: self.keep_balanced,
        }
    }

    fn ports(&self) -> Vec<u16> {
        self.class_ports.0.clone().into_iter().flatten().collect()
    }

    fn introduction(
        &self,
        context: &Context,
        config: &ServerConfig,
        name: &NodeName,
        zone: &Zone,
        peer: SocketAddr,
    ) -> anyhow::Result<Introduction> {
        let listen = match &self.advertise {
            None => address("--listen", "--advertise", config.resp)?,
            Some(text) => advertised(text, config.resp.port())?,
        };
        let peer = match &self.advertise_peer {
            None => address("--peer", "--advertise-peer", peer)?,
            Some(given) => given.clone(),
        };
        let http = config.http.filter(|http| http.port() != 0);
        let host = |http: SocketAddr| match http.ip().is_unspecified() {
            true => listen.at(http.port()),
            false => HostPort::new(&http.ip().to_string(), http.port()),
        };
        Ok(Introduction {
            name: name.clone(),
            zone: zone.clone(),
            incarnation: context.random.next_u64(),
            http: http.map(host),
            listen,
            class_ports: self.ports(),
            peer,
            cut_off_ms: self.on_isolation.0.map(|time| time.as_millis() as u64),
            formats: FORMATS,
            program: env!("CARGO_PKG_VERSION").to_owned(),
            key: None,
        })
    }
}

/// Returns the address at which a port is reached: the one it listens on, if others can use it.
fn address(option: &str, instead: &str, listens: SocketAddr) -> anyhow::Result<HostPort> {
    if listens.ip().is_unspecified() {
        wrong!(
            "{option} {listens} is no address that others reach: say where they do by {instead} HOST:PORT"
        );
    }
    if listens.port() == 0 {
        wrong!(
            "{option} {listens}: a node of a cluster wants a port that stays the same, not any free one"
        );
    }
    Ok(HostPort::new(&listens.ip().to_string(), listens.port()))
}

fn advertised(text: &str, port: u16) -> anyhow::Result<HostPort> {
    if let Ok(given) = text.parse() {
        return Ok(given);
    }
    match format!("{text}:{port}").parse() {
        Ok(given) => Ok(given),
        Err(error) => wrong!("--advertise: {error}"),
    }
}

/// Returns the cluster's identity, and whether only this node's cache has it: a store that is
/// unreachable now was reachable when the node started before.
fn identity(catalog: &dyn Catalog, remembered: &SavedCatalog) -> anyhow::Result<(Identity, bool)> {
    match Documented(catalog).identity() {
        Err(CatalogError::Io { name, source }) => match remembered.identity() {
            Some(identity) => {
                warn!(%source, "the store cannot be reached: the node starts from what it knew");
                Ok((identity, true))
            }
            None => Err(CatalogError::Io { name, source }.into()),
        },
        Err(CatalogError::NoCluster) => match remembered.identity() {
            Some(identity) => bail!(
                "the cache is of cluster {} ({}), and the store has no catalog: is --store right? If the catalog is \
                 lost, {RESTORE}",
                identity.name,
                identity.id
            ),
            None => Err(CatalogError::NoCluster.into()),
        },
        identity => Ok((identity?, false)),
    }
}

/// Returns the cluster's store, as the origin of versions.
fn origin(context: &Context) -> anyhow::Result<Arc<dyn Origin>> {
    match context.is_remote() {
        true => Ok(object_origin(context.remote_url()?)?),
        false => {
            let root = context.store_path()?;
            Ok(Arc::new(DirectoryOrigin::new(context.disk.clone(), root)))
        }
    }
}
