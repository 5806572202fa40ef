//! Servers that are nodes of a cluster: they forward commands for other nodes' keys or redirect
//! clients.

use crate::common::cluster::{
    CLASSES, GATEWAY, InOneProcess, LISTEN, ROWS, class, holders, key, key_in, slot, value,
};
use crate::common::{self, Reply};

fn bulk(text: String) -> Reply {
    Reply::Bulk(text.into_bytes())
}

#[test]
fn the_ordinary_port_serves_local_keys_and_redirects_the_rest() {
    let cluster = InOneProcess::new();
    for node in [1, 2, 3] {
        let mut client = cluster.client(node, LISTEN);
        for n in 0..ROWS {
            let wire = format!("words:{}", key(n));
            let reply = client.ask(&format!("GET {wire}"));
            if holders(&wire).contains(&node) {
                assert_eq!(reply, bulk(value(n, 0)), "{wire} at {node}");
            } else {
                // Each node has a class of its own, at its first class port.
                let (slot, primary) = (slot(&wire), CLASSES[class(&wire)].1[0]);
                let moved = format!("MOVED {slot} 127.0.0.{primary}:7381");
                assert_eq!(reply, Reply::Error(moved), "{wire} at {node}");
            }
        }
    }
}

#[test]
fn a_client_is_never_redirected_to_a_node_that_does_not_hold_the_key() {
    let cluster = InOneProcess::new();
    // Of `few` only the primary of each class has a replica.
    for (at, (_, [primary, second])) in CLASSES.iter().enumerate() {
        let wire = key_in("few", at);
        let moved = cluster.client(*second, LISTEN).text(&format!("GET {wire}"));
        let wanted = format!("-MOVED {} 127.0.0.{primary}:7381", slot(&wire));
        assert_eq!(moved, wanted);
    }
}

#[test]
fn gateways_forward_commands_for_remote_keys() {
    let cluster = InOneProcess::new();
    for node in [1, 2, 3] {
        let mut client = cluster.client(node, GATEWAY);
        for n in 0..ROWS {
            for table in ["words", "few", "log"] {
                let reply = client.ask(&format!("GET {table}:{}", key(n)));
                assert_eq!(reply, bulk(value(n, 0)), "{table} {n} at {node}");
            }
        }
        assert_eq!(client.ask("GET words:none"), Reply::Null);
        assert_eq!(client.text("STRLEN words:k0007"), "12");
        assert_eq!(client.text("GETRANGE log:k0150 0 4"), "value");
        assert_eq!(client.text("TYPE log:k0150"), "string");
        assert_eq!(client.text("TTL few:k0003"), "-1");
    }
}

#[test]
fn a_pipeline_of_gets_is_answered_in_order_wherever_they_are() {
    let cluster = InOneProcess::new();
    let mut client = cluster.client(1, GATEWAY);
    let mut sent = Vec::new();
    for n in 0..1000 {
        let table = ["words", "few", "log"][n as usize / 100 % 3];
        sent.extend(common::encode(&[
            b"GET",
            format!("{table}:{}", key(n % ROWS)).as_bytes(),
        ]));
    }
    client.send(&sent);
    for n in 0..1000 {
        assert_eq!(client.read(), bulk(value(n % ROWS, 0)), "{n}");
    }
}

#[test]
fn keys_of_several_nodes_are_gathered_in_order() {
    let cluster = InOneProcess::new();
    for port in [GATEWAY, LISTEN] {
        let mut client = cluster.client(2, port);
        let keys: Vec<String> = (0..ROWS).map(|n| format!("words:{}", key(n))).collect();
        let all = format!("MGET {} log:k0001 words:none log:k0250", keys.join(" "));
        let mut wanted: Vec<Reply> = (0..ROWS).map(|n| bulk(value(n, 0))).collect();
        wanted.extend([bulk(value(1, 0)), Reply::Null, bulk(value(250, 0))]);
        assert_eq!(client.ask(&all), Reply::Array(wanted));
        let exists = format!("EXISTS {} words:none log:none log:k0150", keys.join(" "));
        assert_eq!(client.ask(&exists), Reply::Int(i64::from(ROWS) + 1));
    }
}

#[test]
fn keys_of_one_slot_are_redirected_like_one_key() {
    let cluster = InOneProcess::new();
    let tagged = (0..)
        .map(|n| format!("words:{{{n}}}"))
        .find(|wire| class(wire) == 1);
    let tagged = tagged.expect("a tag");
    let mut client = cluster.client(1, LISTEN);
    let moved = client.text(&format!("MGET {tagged}a {tagged}b"));
    assert_eq!(moved, format!("-MOVED {} 127.0.0.2:7381", slot(&tagged)));
}

#[test]
fn a_node_with_all_keys_of_a_multi_answers_it() {
    let cluster = InOneProcess::new();
    let mut client = cluster.client(1, GATEWAY);
    let of_class = |at: usize| key_in("words", at);
    // Both at node 3, neither at one node otherwise.
    for (keys, is_answered) in [([1, 2], true), ([0, 1], true), ([1, 1], true)] {
        let [a, b] = keys.map(of_class);
        assert_eq!(client.text("MULTI"), "OK");
        assert_eq!(client.text(&format!("GET {a}")), "QUEUED");
        assert_eq!(client.text(&format!("STRLEN {b}")), "QUEUED");
        let reply = client.ask("EXEC");
        assert_eq!(
            matches!(&reply, Reply::Array(items) if items.len() == 2),
            is_answered,
            "{reply:?}"
        );
    }
    client.text("MULTI");
    for at in 0..3 {
        client.text(&format!("GET {}", of_class(at)));
    }
    assert!(
        client
            .text("EXEC")
            .starts_with("-CROSSSLOT no node has all keys")
    );
    client.text("MULTI");
    client.text("DBSIZE");
    assert!(
        client
            .text("EXEC")
            .starts_with("-ERR DBSIZE asks several nodes")
    );
}

#[test]
fn the_next_node_is_asked_if_one_is_down_and_the_error_names_the_unreachable_nodes() {
    let mut cluster = InOneProcess::new();
    let wire = key_in("words", 1);
    cluster.stop(2);
    let mut client = cluster.client(1, GATEWAY);
    let n: u32 = wire[7..].parse().expect("a number");
    for _ in 0..3 {
        assert_eq!(client.ask(&format!("GET {wire}")), bulk(value(n, 0)));
    }
    // The first node to ask is in the other zone: each of them is met once, at most.
    let (suspected, _) = cluster.member(1).reported_of();
    assert!(suspected.len() <= 1 && suspected.iter().all(|node| *node == 2));
    cluster.stop(3);
    let gone = client.text(&format!("GET {wire}"));
    assert!(
        gone.starts_with("-CLUSTERDOWN no node that has the key answers: n"),
        "{gone}"
    );
    let gone = client.text(&format!("MGET {wire} {}", key_in("words", 0)));
    assert!(gone.starts_with("-CLUSTERDOWN"), "{gone}");
}
