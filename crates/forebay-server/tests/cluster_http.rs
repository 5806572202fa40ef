//! The HTTP answers of a node of a cluster.

use std::io::{Read, Write};

use crate::common::cluster::{
    GATEWAY, InOneProcess, LISTEN, ROWS, at, holders, key, key_in, node, value,
};
use crate::common::{Reply, encode};
use forebay_cluster::NodeId;
use forebay_cluster::model::{NodeEntry, NodeState, TableEntry};
use forebay_engine::TableName;
use forebay_io::sim::Wire;

/// Status and body.
fn get(cluster: &InOneProcess, id: u32, path: &str) -> (u16, String) {
    let mut client = cluster
        .net
        .connect(at(id, 7380), Wire::default())
        .expect("connected");
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    client.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    client.read_to_string(&mut answer).expect("an answer");
    let status = answer[9..12].parse().expect("a status");
    let body = answer.split_once("\r\n\r\n").expect("a body").1;
    (status, body.to_owned())
}

fn metric(cluster: &InOneProcess, id: u32, line: &str) -> f64 {
    let (_, page) = get(cluster, id, "/metrics");
    let found = page.lines().find_map(|found| found.strip_prefix(line));
    found.expect(line).trim().parse().expect("a number")
}

#[test]
fn commands_for_other_nodes_are_counted_by_outcome() {
    let mut cluster = InOneProcess::new();
    let mut gateway = cluster.client(1, GATEWAY);
    let few = key_in("few", 1);
    for _ in 0..5 {
        gateway.text(&format!("GET {few}"));
    }
    gateway.text(&format!("HGET {few} x"));
    cluster.client(1, LISTEN).text(&format!("GET {few}"));
    cluster.stop(2);
    gateway.text(&format!("GET {few}"));
    for (outcome, count) in [
        ("answered", 5.0),
        ("failed", 1.0),
        ("redirected", 1.0),
        ("unanswered", 1.0),
    ] {
        let line = format!("forebay_commands_routed_total{{outcome=\"{outcome}\"}}");
        assert!(metric(&cluster, 1, &line) == count, "{outcome}");
    }
    assert!(metric(&cluster, 1, "forebay_forward_seconds_count") == 8.0);
    assert!(metric(&cluster, 1, "forebay_peers_suspected_total") == 1.0);
    assert!(metric(&cluster, 1, "forebay_cluster_nodes{state=\"away\"}") == 1.0);
    assert!(metric(&cluster, 1, "forebay_cluster_revision") == 5.0);
    // Nothing waited for the device.
    let misses = "forebay_page_cache_misses_total{table=\"few\"}";
    let (_, page) = get(&cluster, 1, "/metrics");
    assert!(
        page.lines()
            .all(|line| !line.starts_with(misses) || line.ends_with(" 0"))
    );
}

#[test]
fn a_node_is_ready_once_it_serves_all_tables_and_stays_so() {
    let cluster = InOneProcess::changed(|_, _| {});
    let late = TableName::new("late").expect("a name");
    let add = |member: u32| {
        let late = late.clone();
        cluster.member(member).change(move |model| {
            let few = TableName::new("few").expect("a name");
            let entry: TableEntry = model.table(&few).expect("a table").clone();
            model.put_table(&late, entry);
        });
    };
    add(1);
    let (status, body) = get(&cluster, 1, "/ready");
    assert_eq!(status, 503);
    assert!(
        body.contains("table late of the cluster is not open here yet"),
        "{body}"
    );
    assert_eq!(get(&cluster, 2, "/ready").0, 200);
    add(2);
    cluster.member(2).change(|model| {
        let state = NodeState::Down { since_unix_ms: 1 };
        for id in [1, 3] {
            model.put_node(NodeEntry { state, ..node(id) });
        }
    });
    assert_eq!(get(&cluster, 2, "/ready").0, 200);
}

#[test]
fn a_node_is_not_ready_before_it_knows_its_cluster() {
    let cluster = InOneProcess::changed(|_, _| {});
    let member = cluster.member(3);
    member.change(|model| model.remove_node(NodeId(3)));
    let (status, body) = get(&cluster, 3, "/ready");
    assert_eq!(status, 503);
    assert!(
        body.contains("nothing is known of the cluster yet"),
        "{body}"
    );
    member.change(|model| model.put_node(node(3)));
    assert_eq!(get(&cluster, 3, "/ready").0, 200);
}

#[test]
fn a_row_of_another_node_is_not_reported_as_absent() {
    let cluster = InOneProcess::new();
    let wire = key_in("words", 1);
    let path = format!("/v1/tables/words/rows/{}", &wire[6..]);
    assert!(!holders(&wire).contains(&1));
    let (status, body) = get(&cluster, 1, &path);
    assert_eq!(status, 421);
    assert!(body.contains("KV.MAP words says where"), "{body}");
    assert_eq!(get(&cluster, 2, &path).0, 200);
    assert_eq!(get(&cluster, 2, "/v1/tables/words/rows/none").0 / 100, 4);
}

#[test]
fn a_pipeline_over_several_nodes_waits_once_a_batch_and_not_once_a_key() {
    let cluster = InOneProcess::new();
    let mut gateway = cluster.client(2, GATEWAY);
    let get = |n: u32| encode(&[b"GET", format!("words:{}", key(n % ROWS)).as_bytes()]);
    // This disk keeps nothing in memory: reads of this node's data wait, too.
    gateway.send(&(0..6400).flat_map(get).collect::<Vec<u8>>());
    for n in 0..6400 {
        let wanted = Reply::Bulk(value(n % ROWS, 0).into_bytes());
        assert_eq!(gateway.read(), wanted);
    }
    let line = "forebay_page_cache_misses_total{table=\"words\"}";
    assert!(metric(&cluster, 2, line) <= 640.0);
}
