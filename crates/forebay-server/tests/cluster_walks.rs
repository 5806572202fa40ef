//! Walks over the nodes of a cluster: the ranges that each port covers, and their order.

use std::collections::BTreeSet;

use crate::common::cluster::{
    CLASS_PORTS, GATEWAY, InOneProcess, LISTEN, NODES, ROWS, class, holders, key, node, value,
};
use crate::common::{Client, Reply};
use forebay_cluster::model::NodeEntry;
use forebay_io::Random;
use forebay_io::sim::SimClient;

/// The texts of an array.
fn texts(reply: &Reply) -> Vec<String> {
    let Reply::Array(items) = reply else {
        panic!("{reply:?}");
    };
    let text = |item: &Reply| match item {
        Reply::Bulk(bytes) => String::from_utf8(bytes.clone()).expect("text"),
        other => panic!("{other:?}"),
    };
    items.iter().map(text).collect()
}

/// All keys that SCAN gives, in order.
fn scanned(client: &mut Client<SimClient>, more: &str) -> Vec<String> {
    let (mut keys, mut cursor) = (Vec::new(), "0".to_owned());
    loop {
        let reply = client.ask(&format!("SCAN {cursor}{more}"));
        let Reply::Array(both) = &reply else {
            panic!("{reply:?}");
        };
        keys.extend(texts(&both[1]));
        cursor = texts(&Reply::Array(vec![both[0].clone()])).remove(0);
        if cursor == "0" {
            return keys;
        }
    }
}

fn all_keys() -> BTreeSet<String> {
    let of = |table: &'static str| (0..ROWS).map(move |n| format!("{table}:{}", key(n)));
    ["words", "few", "log"].into_iter().flat_map(of).collect()
}

/// The common result of SCAN, KEYS and DBSIZE at a port.
fn covered(cluster: &InOneProcess, node: u32, port: u16) -> BTreeSet<String> {
    let mut client = cluster.client(node, port);
    let keys = scanned(&mut client, " COUNT 7");
    let set: BTreeSet<String> = keys.iter().cloned().collect();
    assert_eq!(
        set.len(),
        keys.len(),
        "a key appeared twice at {node}:{port}"
    );
    let same: BTreeSet<String> = texts(&client.ask("KEYS *")).into_iter().collect();
    assert_eq!(same, set);
    assert_eq!(client.ask("DBSIZE"), Reply::Int(set.len() as i64));
    set
}

#[test]
fn the_class_ports_cover_every_key_once() {
    let cluster = InOneProcess::new();
    let mut sum = Vec::new();
    for node in NODES {
        let own = covered(&cluster, node, CLASS_PORTS[0]);
        let hashed = own.iter().filter(|wire| !wire.starts_with("log:"));
        assert!(hashed.clone().all(|wire| holders(wire)[0] == node));
        assert!(own.iter().any(|wire| wire.starts_with("log:")) == (node == 1));
        // The ordinary port is no primary's.
        assert_eq!(covered(&cluster, node, LISTEN), own);
        assert!(covered(&cluster, node, CLASS_PORTS[1]).is_empty());
        sum.extend(own);
    }
    assert_eq!(sum.len(), all_keys().len());
    assert_eq!(sum.into_iter().collect::<BTreeSet<_>>(), all_keys());
}

#[test]
fn without_class_ports_the_ordinary_ports_cover_every_key() {
    let cluster = InOneProcess::new();
    let mut sum = Vec::new();
    for member in NODES {
        cluster.member(member).change(|model| {
            for id in NODES {
                let class_ports = Vec::new();
                model.put_node(NodeEntry {
                    class_ports,
                    ..node(id)
                });
            }
        });
        sum.extend(covered(&cluster, member, LISTEN));
    }
    assert_eq!(sum.len(), all_keys().len());
    assert_eq!(sum.into_iter().collect::<BTreeSet<_>>(), all_keys());
}

#[test]
fn a_gateway_covers_the_cluster() {
    let cluster = InOneProcess::new();
    for node in NODES {
        assert_eq!(covered(&cluster, node, GATEWAY), all_keys());
    }
    let mut client = cluster.client(2, GATEWAY);
    let some = scanned(&mut client, " MATCH log:k01* COUNT 1000");
    let wanted: Vec<String> = (100..200).map(|n| format!("log:{}", key(n))).collect();
    assert_eq!(some, wanted, "an ordered table in its order");
    assert!(scanned(&mut client, " TYPE hash").is_empty());
    for wrong in [
        "SCAN x",
        "SCAN 0 COUNT",
        "SCAN 0 COUNT 0",
        "KV.RANGE a b",
        "KV.RANGE words: +",
    ] {
        assert!(client.text(wrong).starts_with("-ERR"), "{wrong}");
    }
}

#[test]
fn a_cursor_means_the_same_at_every_gateway() {
    let cluster = InOneProcess::new();
    let mut clients: Vec<_> = NODES
        .iter()
        .map(|node| cluster.client(*node, GATEWAY))
        .collect();
    let (mut keys, mut cursor) = (Vec::new(), "0".to_owned());
    for turn in 0.. {
        let client = &mut clients[turn % 3];
        let reply = client.ask(&format!("SCAN {cursor} MATCH words:* COUNT 10"));
        let Reply::Array(both) = &reply else {
            panic!("{reply:?}");
        };
        keys.extend(texts(&both[1]));
        cursor = texts(&Reply::Array(vec![both[0].clone()])).remove(0);
        if cursor == "0" {
            break;
        }
    }
    let words: BTreeSet<String> = all_keys()
        .into_iter()
        .filter(|wire| wire.starts_with("words:"))
        .collect();
    assert_eq!(keys.len(), words.len());
    assert_eq!(keys.into_iter().collect::<BTreeSet<_>>(), words);
}

#[test]
fn random_keys_are_from_all_nodes() {
    let cluster = InOneProcess::new();
    let mut client = cluster.client(1, GATEWAY);
    let mut classes = BTreeSet::new();
    for _ in 0..2000 {
        let wire = client.text("RANDOMKEY");
        assert!(all_keys().contains(&wire), "{wire}");
        if wire.starts_with("few:") {
            classes.insert(class(&wire));
        }
        if classes.len() == 3 {
            return;
        }
    }
    panic!("only classes {classes:?}");
}

/// All pages of a range, following `next`.
fn ranged(client: &mut Client<SimClient>, (start, end): (&str, &str), more: &str) -> Vec<String> {
    let (mut start, mut end) = (start.to_owned(), end.to_owned());
    let mut found = Vec::new();
    loop {
        let reply = client.ask(&format!("KV.RANGE {start} {end}{more}"));
        let Reply::Array(both) = &reply else {
            panic!("{reply:?}");
        };
        found.extend(texts(&both[1]));
        match &both[0] {
            Reply::Null => return found,
            next => {
                let next = texts(&Reply::Array(vec![next.clone()])).remove(0);
                *(if more.contains("REV") {
                    &mut end
                } else {
                    &mut start
                }) = next;
            }
        }
    }
}

#[test]
fn ranges_span_nodes_in_order() {
    let cluster = InOneProcess::new();
    let wires: Vec<String> = (0..ROWS).map(|n| format!("log:{}", key(n))).collect();
    for port in [GATEWAY, LISTEN] {
        let mut client = cluster.client(3, port);
        for limit in [1, 7, 100, 1000] {
            let more = format!(" LIMIT {limit} KEYS");
            assert_eq!(ranged(&mut client, ("log:", "+"), &more), wires);
            let mut back = ranged(&mut client, ("-", "log:"), &format!("{more} REV"));
            back.reverse();
            assert_eq!(back, wires, "{limit}");
        }
        let pairs = ranged(&mut client, ("(log:k0098", "[log:k0101"), "");
        let wanted: Vec<String> = (99..102)
            .flat_map(|n| [wires[n].clone(), value(n as u32, 0)])
            .collect();
        assert_eq!(pairs, wanted);
        let values = ranged(&mut client, ("log:k01", "*log:k01"), " VALUES LIMIT 30");
        let wanted: Vec<String> = (100..200).map(|n| value(n, 0)).collect();
        assert_eq!(values, wanted);
        assert!(ranged(&mut client, ("log:k2", "log:k1"), "").is_empty());
    }
}

#[test]
fn random_ranges_match_a_model() {
    let cluster = InOneProcess::new();
    let mut client = cluster.client(1, GATEWAY);
    let random = forebay_io::SystemRandom;
    for _ in 0..150 {
        let [a, b] = [random.next_u64(), random.next_u64()].map(|n| (n % 300) as u32);
        let [open_a, open_b, back] = [(); 3].map(|()| random.next_u64().is_multiple_of(2));
        let limit = 1 + random.next_u64() % 120;
        let mark = |open| if open { "(" } else { "[" };
        let (start, end) = (
            format!("{}log:{}", mark(open_a), key(a)),
            format!("{}log:{}", mark(open_b), key(b)),
        );
        let rev = if back { " REV" } else { "" };
        let found = ranged(
            &mut client,
            (&start, &end),
            &format!(" KEYS LIMIT {limit}{rev}"),
        );
        let inside = |n: &u32| (*n > a || *n == a && !open_a) && (*n < b || *n == b && !open_b);
        let mut wanted: Vec<String> = (0..ROWS)
            .filter(inside)
            .map(|n| format!("log:{}", key(n)))
            .collect();
        if back {
            wanted.reverse();
        }
        assert_eq!(found, wanted, "{start} {end} {limit}{rev}");
    }
}
