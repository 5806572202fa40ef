//! Live tables of a cluster on nodes without a replica: commands are forwarded, redirected or
//! refused.

use std::time::Duration;

use crate::common::Reply;
use crate::common::cluster::{CLASS_PORTS, GATEWAY, InOneProcess, LISTEN, StandIn, key_in};
use forebay_cluster::NodeId;
use forebay_cluster::model::{
    EndedLoad, GroupEntry, Layout, LayoutName, LiveEntry, RangeEntry, Replication, TableEntry,
    TableGroups,
};
use forebay_engine::live::LiveDraft;
use forebay_engine::{Bound, Bounds, PartitionId, TableName};
use forebay_replica::GroupId;
use forebay_run::Order;
use forebay_run::hash::KeyHasher;

/// Where the second partition begins.
const SPLIT_POINT: u16 = 8192;
/// The nodes that have the partitions, the leaders first.
const HOLDERS: [[u32; 3]; 2] = [[2, 3, 1], [3, 2, 1]];

fn nodes(ids: &[u32]) -> Vec<NodeId> {
    ids.iter().copied().map(NodeId).collect()
}

/// Adds the live table `carts` of two partitions, each with its first `holders` holders.
fn add_carts(member: &StandIn, holders: usize) {
    let table = TableName::new("carts").expect("a name, or a key");
    let mut entry = TableEntry::new(Order::Hashed, LayoutName::Table(table.clone()), 3);
    entry.live = Some(Box::new(LiveEntry {
        options: LiveDraft::hashed().options,
        replication: Replication::Leader,
        last_load: EndedLoad::default(),
    }));
    let cuts = [(0, Some(SPLIT_POINT)), (SPLIT_POINT, None)];
    let group = |at: usize| {
        let (lower, upper) = cuts[at];
        let bounds = Bounds {
            lower: Bound::Slot(lower),
            upper: upper.map(Bound::Slot),
        };
        let (id, partition) = (GroupId(7 + at as u64), PartitionId(at as u32));
        GroupEntry::founded(id, partition, bounds, &nodes(&HOLDERS[at][..holders]), 0)
    };
    let groups = TableGroups::new(&[group(0), group(1)]);
    let range =
        |at: usize| RangeEntry::new(Bound::Slot(cuts[at].0), nodes(&HOLDERS[at][..holders]));
    let layout = Layout::new(Order::Hashed, vec![range(0), range(1)]);
    member.change(|model| {
        model.layouts.insert(entry.layout.clone(), layout);
        model.put_table(&table, entry);
        model.groups.insert(table.clone(), groups);
    });
}

fn cluster() -> InOneProcess {
    cluster_with(3)
}

/// A cluster whose last node is assigned no replica, if there are two holders.
fn cluster_with(holders: usize) -> InOneProcess {
    let cluster = InOneProcess::changed(|_, config| {
        if let Some(cluster) = &mut config.cluster {
            cluster.forward.total_time = Duration::from_secs(1);
        }
    });
    for node in [1, 2, 3] {
        add_carts(cluster.member(node), holders);
    }
    cluster
}

fn slot(wire: &str) -> u16 {
    KeyHasher::new(b"carts:").slot(
        wire.strip_prefix("carts:")
            .expect("a name, or a key")
            .as_bytes(),
    )
}

/// A key of each partition.
fn keys() -> [String; 2] {
    [false, true].map(|is_second| {
        let mut all = (0..).map(|number| format!("carts:k{number}"));
        all.find(|key| (slot(key) >= SPLIT_POINT) == is_second)
            .expect("a name, or a key")
    })
}

/// The reply to a command that no node accepts. Too little time may be left for the last attempt to
/// forward a write. Then its outcome is unknown, and the command is repeated.
fn refused(ask: impl FnMut() -> String) -> String {
    let mut replies = std::iter::repeat_with(ask).take(20);
    let is_certain = |reply: &String| !reply.starts_with("-UNCERTAIN ");
    replies
        .find(is_certain)
        .expect("a certain reply in 20 tries")
}

#[test]
fn clients_of_the_ordinary_port_are_redirected_to_the_leader() {
    let cluster = cluster_with(2);
    let mut client = cluster.client(1, LISTEN);
    for (key, holders) in keys().iter().zip(HOLDERS) {
        // Its ordinary port is listed as a replica's.
        let moved = format!("-MOVED {} 127.0.0.{}:7381", slot(key), holders[0]);
        for command in ["GET K", "SET K 1", "INCR K", "MGET K", "DEL K", "HGETALL K"] {
            let command = command.replace('K', key);
            assert_eq!(client.text(&command), moved, "{command}");
        }
        // A client that the reply to EXEC redirects sends EXEC without its MULTI.
        let refused = refused(|| {
            assert_eq!(client.text("MULTI"), "OK");
            assert_eq!(client.text(&format!("SET {key} 1")), "QUEUED");
            client.text("EXEC")
        });
        assert!(refused.starts_with("-TRYAGAIN nothing was"), "{refused}");
        assert_eq!(client.text("PING"), "PONG");
    }
}

/// Commands are forwarded, and no node accepts them.
fn is_forwarded(cluster: &InOneProcess, port: u16, key: &str) {
    let mut client = cluster.client(1, port);
    for command in [format!("GET {key}"), format!("SET {key} 1")] {
        let refused = refused(|| client.text(&command));
        assert!(refused.starts_with("-TRYAGAIN "), "{command}: {refused}");
    }
}

#[test]
fn clients_of_a_class_port_are_not_redirected() {
    let cluster = cluster_with(2);
    for key in keys() {
        is_forwarded(&cluster, CLASS_PORTS[0], &key);
    }
}

/// A client that is redirected to a replica's address treats it as a primary's from then on.
#[test]
fn no_client_is_redirected_to_an_address_listed_as_a_replica() {
    let cluster = cluster_with(1);
    cluster.member(1).change(|model| {
        let lists = [(0, [1, 2]), (4096, [3, 2]), (9000, [3, 1])];
        let ranges = lists.map(|(lower, list)| RangeEntry::new(Bound::Slot(lower), nodes(&list)));
        let main = Layout::new(Order::Hashed, ranges.to_vec());
        model.layouts.insert(LayoutName::Main, main);
    });
    let [first, second] = keys();
    is_forwarded(&cluster, LISTEN, &first);
    let moved = cluster.client(1, LISTEN).text(&format!("SET {second} 1"));
    assert!(
        moved.starts_with("-MOVED ") && moved.contains(" 127.0.0.3:738"),
        "{moved}"
    );
}

#[test]
fn readers_of_live_tables_are_redirected_after_a_class_changes_its_nodes() {
    let cluster = cluster();
    let words = key_in("words", 1);
    let carts = (0..).map(|number| format!("carts:k{number}"));
    let (mut carts, of_class) = (carts, 4096..9000);
    let carts = carts.find(|key| of_class.contains(&slot(key)));
    let carts = carts.expect("a key");
    let mut client = cluster.client(3, CLASS_PORTS[0]);
    assert!(client.text(&format!("GET {words}")).starts_with("value"));
    cluster.member(3).change(|model| {
        let lists = [(0, [1, 2, 3]), (4096, [2, 3, 1]), (9000, [3, 1, 2])];
        let ranges = lists.map(|(lower, list)| RangeEntry::new(Bound::Slot(lower), nodes(&list)));
        let main = Layout::new(Order::Hashed, ranges.to_vec());
        model.layouts.insert(LayoutName::Main, main);
        let words = TableName::new("words").expect("a name, or a key");
        let entry = model.table(&words).expect("the table exists").clone();
        model.put_table(
            &words,
            TableEntry {
                replicas: 3,
                ..entry
            },
        );
    });
    let read = format!("GET {words}");
    let notified = (0..100_000).any(|_| client.text(&read).starts_with("-MOVED "));
    assert!(notified, "a change of classes is noticed");
    // One read in eight.
    assert!((0..7).all(|_| client.text(&read).starts_with("value")));
    let moved = format!("-MOVED {} 127.0.0.2:7381", slot(&carts));
    assert_eq!(client.text(&format!("GET {carts}")), moved);
}

/// Its redirect would be a guess, and the next node would guess another one.
#[test]
fn a_node_that_lacks_its_assigned_replica_redirects_no_client() {
    let cluster = cluster();
    let mut client = cluster.client(1, LISTEN);
    for key in keys() {
        for command in [format!("GET {key}"), format!("SET {key} 1")] {
            let refused = client.text(&command);
            assert!(refused.starts_with("-TRYAGAIN "), "{command}: {refused}");
        }
    }
}

#[test]
fn nothing_is_written_without_a_leader() {
    let cluster = cluster();
    let [first, second] = keys();
    let mut client = cluster.client(1, GATEWAY);
    for command in [
        format!("SET {first} 1"),
        format!("MSET {first} 1 {second} 2"),
        "FLUSHDB carts".to_owned(),
    ] {
        let refused = client.text(&command);
        assert!(
            refused.starts_with("-TRYAGAIN nothing was written: "),
            "{refused}"
        );
    }
    for command in [
        format!("MGET {first} words:k0001 {second}"),
        "SCAN 0 MATCH carts:*".to_owned(),
        "KEYS *".to_owned(),
        "DBSIZE".to_owned(),
        "RANDOMKEY".to_owned(),
    ] {
        let refused = client.text(&command);
        assert!(refused.starts_with("-TRYAGAIN "), "{command}: {refused}");
    }
}

#[test]
fn commands_that_cannot_span_partitions_are_refused() {
    let cluster = cluster();
    let [first, second] = keys();
    let mut client = cluster.client(1, GATEWAY);
    for (command, start) in [
        (format!("MSETNX {first} 1 {second} 2"), "-CROSSSLOT MSETNX"),
        (
            format!("MSET {first} 1 {second}"),
            "-ERR wrong number of arguments",
        ),
        (
            "KV.RANGE carts: +".to_owned(),
            "-ERR table 'carts' is hashed and has no key order",
        ),
        (
            "KV.DELRANGE carts: +".to_owned(),
            "-ERR table 'carts' is hashed and has no key order",
        ),
        ("FLUSHDB nope".to_owned(), "-ERR no table 'nope'"),
        ("FLUSHDB words".to_owned(), "-READONLY table 'words'"),
        (format!("SET {first}"), "-ERR wrong number of arguments"),
        ("SET nope:1 1".to_owned(), "-ERR no table 'nope'"),
        (format!("SET carts:{} 1", "k".repeat(100_000)), "-ERR "),
    ] {
        let refused = client.text(&command);
        assert!(refused.starts_with(start), "{command}: {refused}");
    }
    let found = client.ask("SCAN 0 MATCH words:*");
    assert!(matches!(found, Reply::Array(_)), "{found:?}");
    assert_eq!(client.text("MULTI"), "OK");
    client.text(&format!("SET {first} 1"));
    client.text(&format!("SET {second} 1"));
    assert!(client.text("EXEC").starts_with("-CROSSSLOT MULTI"));
}

#[test]
fn the_map_of_a_live_table_names_the_leader_first() {
    let cluster = cluster();
    let Reply::Array(rows) = cluster.client(1, LISTEN).ask("KV.MAP carts") else {
        panic!("no rows");
    };
    let node = |id| Reply::Bulk(format!("127.0.0.{id}:7379").into_bytes());
    let wanted = [
        (Reply::Int(0), Reply::Int(SPLIT_POINT.into())),
        (Reply::Int(SPLIT_POINT.into()), Reply::Null),
    ];
    for ((row, (lower, upper)), holders) in rows.into_iter().zip(wanted).zip(HOLDERS) {
        let nodes = Reply::Array(holders.map(node).to_vec());
        assert_eq!(row, Reply::Array(vec![lower, upper, nodes]));
    }
}
