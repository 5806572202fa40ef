//! CLUSTER and related commands, and the commands of Forebay's own clients about a cluster.
//!
//! The reply to one command uses one map.

use std::sync::atomic::Ordering;

use std::fmt::Write;
use std::sync::Arc;

use forebay_cluster::map::{ClusterMap, MapRange};
use forebay_engine::{Bound, Source};
use forebay_run::hash::{KeyHasher, SLOTS};

use crate::cluster::{Advertised, JUST_STARTED, Shard, myself, shards, slot_rows, unlisted_id};
use crate::command::running::call::{SessionCall, find_source, no_permission};
use crate::command::{Answer, CommandError, shown};
use crate::resp::Reply;
use crate::users::Verb;

/// Subcommands that would change a cluster.
const CHANGES: [&str; 19] = [
    "addslots",
    "addslotsrange",
    "bumpepoch",
    "delslots",
    "delslotsrange",
    "failover",
    "flushslots",
    "forget",
    "meet",
    "migrate",
    "replicate",
    "reset",
    "saveconfig",
    "set-config-epoch",
    "setslot",
    "migration",
    "syncslots",
    "getslotmigrations",
    "cancelslotmigrations",
];

/// Subcommands by which clients learn the primaries of slots.
const TOPOLOGY: [&str; 5] = ["slots", "shards", "nodes", "replicas", "slaves"];

const HELP: [&str; 13] = [
    "CLUSTER <subcommand>. Subcommands are:",
    "INFO -- The state of the cluster.",
    "KEYSLOT <key> -- The slot of a key.",
    "LINKS -- None: nodes keep connections as they need them.",
    "MYID -- The id of the node, as a client of this port sees it.",
    "MYSHARDID -- The id of its shard.",
    "NODES -- All nodes, in lines.",
    "REPLICAS <id> -- The replicas of a primary, in such lines.",
    "SHARDS -- All shards: a class of slots each, and the nodes that hold it.",
    "SLOTS -- All ranges of slots, each with its primary and its replicas.",
    "HELP -- This.",
    "Who holds what is the coordinator's to say, and is not changed by these.",
    "See also KV.MAP <table>, KV.VERSION <table> and KV.SCHEMA <table>.",
];

fn no_cluster() -> CommandError {
    CommandError::error("ERR This instance has cluster support disabled")
}

/// READONLY, READWRITE, ASKING: a node answers reads of its data on any of its ports.
pub fn mode(call: &mut SessionCall<'_>) -> Answer {
    if !call.session.client.port.is_clustered() {
        return Err(no_cluster());
    }
    let reads_replicas = call.args.is(0, "readonly");
    call.session.reads_replicas |= reads_replicas;
    if reads_replicas || call.args.is(0, "readwrite") {
        let reads_followers = &call.session.client.reads_followers;
        reads_followers.store(reads_replicas, Ordering::Relaxed);
    }
    call.reply.ok();
    Ok(())
}

/// CLUSTER subcommand ...
pub fn cluster(call: &mut SessionCall<'_>) -> Answer {
    let (map, is_cut_off) = map_of(call)?;
    let (args, reply) = (call.args, &mut *call.reply);
    let sub = args.get(1).to_ascii_lowercase();
    let sub = String::from_utf8_lossy(&sub).into_owned();
    let port = call.session.client.port;
    if TOPOLOGY.contains(&&*sub) {
        check_known(&map)?;
        if is_cut_off {
            check_reported(&map)?;
        }
    }
    match (&*sub, args.len()) {
        ("slots", 2) => slots(reply, &map),
        ("shards", 2) => {
            let tls = call.shared.config.tls.is_some();
            shards_reply(reply, &map, tls);
        }
        ("nodes", 2) => {
            let shards = shards(&map);
            let own = myself(&map, &shards, port);
            let mut text: String = shards.iter().map(|shard| lines(&map, shard, own)).collect();
            if own.is_none() {
                text += &unlisted_line(&map, &unlisted_id(&map, port));
            }
            reply.verbatim(&text);
        }
        ("replicas" | "slaves", 3) => replicas(reply, &map, args.get(2))?,
        ("info", 2) => reply.verbatim(&info(&map, is_cut_off)),
        ("myid", 2) => {
            let shards = shards(&map);
            let own = myself(&map, &shards, port).map(|node| node.id.clone());
            reply.bulk(own.unwrap_or_else(|| unlisted_id(&map, port)).as_bytes());
        }
        ("myshardid", 2) => {
            let shards = shards(&map);
            let own = myself(&map, &shards, port);
            let of = |shard: &&Shard| own.is_some_and(|own| shard.nodes.contains(own));
            let id = shards.iter().find(of).map(|shard| shard.id.clone());
            reply.bulk(id.unwrap_or_else(|| unlisted_id(&map, port)).as_bytes());
        }
        ("keyslot", 3) => reply.int(KeyHasher::new(b"").slot(args.get(2)).into()),
        ("links", 2) => reply.array(0),
        ("help", 2) => {
            reply.array(HELP.len());
            HELP.iter().for_each(|line| reply.bulk(line.as_bytes()));
        }
        ("countkeysinslot" | "getkeysinslot" | "count-failure-reports", _) => {
            return Err(CommandError::error(format!(
                "ERR CLUSTER {} is not supported: SCAN at a class's port walks the keys of its slots",
                sub.to_uppercase()
            )));
        }
        (change, _) if CHANGES.contains(&change) => {
            return Err(CommandError::error(format!(
                "ERR CLUSTER {} changes nothing here: the cluster's coordinator says who holds what; see \
                 'forebay cluster --help'",
                sub.to_uppercase()
            )));
        }
        _ => return Err(CommandError::unknown_subcommand("CLUSTER", args.get(1))),
    }
    Ok(())
}

/// Returns the map, and whether the node reaches no majority of the nodes.
fn map_of(call: &SessionCall<'_>) -> Result<(Arc<ClusterMap>, bool), CommandError> {
    match &call.shared.cluster {
        Some(cluster) if call.session.client.port.is_clustered() => {
            let now = call.shared.store.clock().monotonic();
            let user = call.session.user.as_ref();
            let map = user.map_or_else(|| cluster.map(), |user| cluster.map_for(user));
            Ok((map, cluster.is_cut_off(now)))
        }
        _ => Err(no_cluster()),
    }
}

/// Returns an error if the node has just started and knows no primaries. Clients would take an
/// empty reply to mean that there are none.
fn check_known(map: &ClusterMap) -> Answer {
    match map.revision {
        0 => Err(CommandError::error(JUST_STARTED)),
        _ => Ok(()),
    }
}

/// Returns an error if the node reaches no majority and takes itself for the primary of all slots.
/// It cannot answer for live tables, so clients must learn the primaries from other nodes. It does
/// answer for batch tables.
fn check_reported(map: &ClusterMap) -> Answer {
    let mut tables = map.tables();
    let name = map.node(map.me).map_or("?", |node| node.name.as_str());
    match tables.any(|(_, table)| table.serving.is_some()) {
        true => Ok(()),
        false => Err(CommandError::error(format!(
            "CLUSTERDOWN node {name} reaches no majority of the cluster's nodes, and does not know who heads \
             which slots: ask another node"
        ))),
    }
}

fn slots(reply: &mut Reply, map: &ClusterMap) {
    let rows = slot_rows(map);
    reply.array(rows.len());
    for row in &rows {
        reply.array(2 + row.nodes.len());
        reply.int(row.first.into());
        reply.int(row.last.into());
        for node in &row.nodes {
            reply.array(4);
            reply.bulk(node.address.host.as_bytes());
            reply.int(node.address.port.into());
            reply.bulk(node.id.as_bytes());
            // There are no other names of the node.
            reply.array(0);
        }
    }
}

fn shards_reply(reply: &mut Reply, map: &ClusterMap, tls: bool) {
    let shards = shards(map);
    reply.array(shards.len());
    for shard in &shards {
        reply.map(2);
        reply.bulk(b"slots");
        reply.array(2 * shard.slots.len());
        for (first, last) in &shard.slots {
            reply.int((*first).into());
            reply.int((*last).into());
        }
        reply.bulk(b"nodes");
        reply.array(shard.nodes.len());
        for (at, node) in shard.nodes.iter().enumerate() {
            shard_node(reply, node, at == 0, tls);
        }
    }
}

fn shard_node(reply: &mut Reply, node: &Advertised, is_primary: bool, tls: bool) {
    let host = &node.address.host;
    let is_name = host.parse::<std::net::IpAddr>().is_err();
    reply.map(7 + usize::from(tls) + usize::from(is_name));
    let role = if is_primary { "master" } else { "replica" };
    let health = if node.is_available { "online" } else { "fail" };
    for (name, text) in [("id", &*node.id), ("endpoint", host), ("ip", host)] {
        reply.bulk(name.as_bytes());
        reply.bulk(text.as_bytes());
    }
    if is_name {
        reply.bulk(b"hostname");
        reply.bulk(host.as_bytes());
    }
    reply.bulk(b"port");
    reply.int(node.address.port.into());
    if tls {
        reply.bulk(b"tls-port");
        reply.int(node.address.port.into());
    }
    for (name, text) in [("role", role), ("health", health)] {
        reply.bulk(name.as_bytes());
        reply.bulk(text.as_bytes());
    }
    reply.bulk(b"replication-offset");
    reply.int(0);
}

/// Formats the lines of CLUSTER NODES of a shard.
fn lines(map: &ClusterMap, shard: &Shard, own: Option<&Advertised>) -> String {
    let mut text = String::new();
    for (at, node) in shard.nodes.iter().enumerate() {
        let is_own = own == Some(node);
        let mut flags = if is_own { "myself," } else { "" }.to_owned();
        flags += if at == 0 { "master" } else { "slave" };
        if !node.is_available {
            flags += ",fail";
        }
        let of = if at == 0 { "-" } else { &shard.nodes[0].id };
        let link = if node.is_available {
            "connected"
        } else {
            "disconnected"
        };
        let host = &node.address.host;
        let is_name = host.parse::<std::net::IpAddr>().is_err();
        let name = if is_name {
            format!(",{host}")
        } else {
            String::new()
        };
        let bus = map.node(node.node).map_or(0, |node| node.peer.port);
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "{} {host}:{}@{bus}{name} {flags} {of} 0 0 {} {link}",
            node.id, node.address.port, map.revision
        );
        if at == 0 {
            for (first, last) in &shard.slots {
                let _ = match first == last {
                    true => write!(text, " {first}"),
                    false => write!(text, " {first}-{last}"),
                };
            }
        }
        text.push('\n');
    }
    text
}

/// Formats the line of a port that is not in any shard: clients look for the node that they ask.
fn unlisted_line(map: &ClusterMap, id: &str) -> String {
    let Some(node) = map.node(map.me) else {
        return String::new();
    };
    let (host, port, bus) = (&node.listen.host, node.listen.port, node.peer.port);
    format!(
        "{id} {host}:{port}@{bus} myself,master - 0 0 {} connected\n",
        map.revision
    )
}

fn replicas(reply: &mut Reply, map: &ClusterMap, id: &[u8]) -> Answer {
    let shards = shards(map);
    let shard = shards
        .iter()
        .find(|shard| shard.nodes[0].id.as_bytes() == id);
    let shard = shard.ok_or_else(|| {
        let id = shown(id);
        CommandError::error(format!("ERR Unknown node {id}: CLUSTER NODES lists them"))
    })?;
    let all = lines(map, shard, None);
    let lines: Vec<&str> = all.lines().skip(1).collect();
    reply.array(lines.len());
    lines.iter().for_each(|line| reply.bulk(line.as_bytes()));
    Ok(())
}

fn info(map: &ClusterMap, is_cut_off: bool) -> String {
    let is_led = |nodes: &[_]| {
        let mut nodes = nodes.iter().filter_map(|id| map.node(*id));
        nodes.any(|node| node.is_available)
    };
    let classes = map.classes();
    let slots_of = |led: bool| -> u32 {
        let classes = classes.iter().filter(|class| is_led(&class.nodes) == led);
        classes
            .map(|class| u32::from(class.last - class.first) + 1)
            .sum()
    };
    let (ok, fail) = (slots_of(true), slots_of(false));
    let is_ok = ok == SLOTS && !is_cut_off;
    let state = if is_ok { "ok" } else { "fail" };
    let (nodes, revision) = (map.nodes().count(), map.revision);
    format!(
        "cluster_state:{state}\r\ncluster_slots_assigned:{}\r\ncluster_slots_ok:{ok}\r\n\
         cluster_slots_pfail:0\r\ncluster_slots_fail:{fail}\r\ncluster_known_nodes:{nodes}\r\n\
         cluster_size:{}\r\ncluster_current_epoch:{revision}\r\ncluster_my_epoch:{revision}\r\n\
         cluster_stats_messages_sent:0\r\ncluster_stats_messages_received:0\r\n\
         total_cluster_links_buffer_limit_exceeded:0\r\n",
        ok + fail,
        shards(map).len(),
    )
}

/// KV.MAP table: for each range of a table its start, its end (null: none), and its nodes. Bounds
/// are keys, or slots in hashed tables.
pub fn map(call: &mut SessionCall<'_>) -> Answer {
    let cluster = call.shared.cluster.as_ref();
    let map = cluster.ok_or_else(|| {
        CommandError::error("ERR KV.MAP describes a cluster, and this server is in none")
    })?;
    if live_map(call)? {
        return Ok(());
    }
    let map = map.map();
    let source = named_table(call)?;
    let table = map.table(source.table()).ok_or_else(|| {
        let table = source.table();
        CommandError::error(format!("ERR the cluster has no table '{table}'"))
    })?;
    let ranges = table.layout.ranges();
    call.reply.array(ranges.len());
    for (at, range) in ranges.iter().enumerate() {
        call.reply.array(3);
        bound(call.reply, Some(&range.lower));
        bound(
            call.reply,
            ranges.get(at + 1).map(|next: &MapRange| &next.lower),
        );
        let held = table.listed(range).iter();
        let held: Vec<_> = held.filter_map(|id| map.node(*id)).collect();
        let available: Vec<_> = held.iter().filter(|node| node.is_available).collect();
        call.reply.array(available.len());
        for node in available {
            call.reply.bulk(node.listen.to_string().as_bytes());
        }
    }
    Ok(())
}

/// KV.MAP of a live table of the cluster, whose ranges are its partitions; the first node leads.
/// Returns `false` if the table is not one.
fn live_map(call: &mut SessionCall<'_>) -> Result<bool, CommandError> {
    let Some(cluster) = &call.shared.cluster else {
        return Ok(false);
    };
    let (live, map) = (cluster.member().live(), cluster.map());
    let name = call.args.get(1);
    let Some(place) = live.table(name) else {
        return Ok(false);
    };
    let user = call.session.user.as_ref();
    let user = user.ok_or_else(|| CommandError::error("NOAUTH Authentication required."))?;
    if !user.may(Verb::Read, name) {
        return Err(no_permission(user, name, "read"));
    }
    let replicas = cluster.member().replicas();
    let routes = place.routes();
    call.reply.array(routes.len());
    for (at, route) in routes.iter().enumerate() {
        call.reply.array(3);
        bound(call.reply, Some(&route.bounds.lower));
        bound(
            call.reply,
            routes.get(at + 1).map(|next| &next.bounds.lower),
        );
        let leader = replicas
            .as_ref()
            .and_then(|replicas| replicas.leader(route.group));
        let nodes = route.nodes.iter().filter_map(|id| map.node(*id));
        let mut nodes: Vec<_> = nodes.filter(|node| node.is_available).collect();
        nodes.sort_by_key(|node| Some(node.id) != leader);
        call.reply.array(nodes.len());
        for node in nodes {
            call.reply.bulk(node.listen.to_string().as_bytes());
        }
    }
    Ok(true)
}

fn bound(reply: &mut Reply, bound: Option<&Bound>) {
    match bound {
        Some(Bound::Key(key)) => reply.bulk(key),
        Some(Bound::Slot(slot)) => reply.int((*slot).into()),
        None => reply.null(),
    }
}

/// KV.VERSION table: the version that serves on this node.
pub fn version(call: &mut SessionCall<'_>) -> Answer {
    let number = match named_table(call)? {
        Source::Batch(version) => version.version(),
        Source::Live(table) => {
            let table = table.name();
            return Err(CommandError::error(format!(
                "ERR table '{table}' is live: it has no versions, each write changes it"
            )));
        }
    };
    call.reply.int(i64::try_from(number).unwrap_or(i64::MAX));
    Ok(())
}

/// Returns the table that the first argument names.
pub fn named_table<'a>(call: &SessionCall<'a>) -> Result<Source<'a>, CommandError> {
    let user = call.session.user.as_ref();
    let user = user.ok_or_else(|| CommandError::error("NOAUTH Authentication required."))?;
    find_source(call.tables, user, call.args.get(1))
}
