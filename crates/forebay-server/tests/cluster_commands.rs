//! Commands by which nodes describe the cluster to clients.

use std::collections::{BTreeMap, BTreeSet};

use crate::common::cluster::{
    CLASS_PORTS, CLASSES, GATEWAY, InOneProcess, LISTEN, NODES, RANGES, key_in, node, range,
};
use crate::common::{self, Reply};
use forebay_cluster::HostPort;
use forebay_cluster::model::{Layout, LayoutName, Model, TableEntry};
use forebay_engine::{Bound, TableName};
use forebay_run::Order;

fn text(reply: &Reply) -> String {
    match reply {
        Reply::Bulk(bytes) => String::from_utf8(bytes.clone()).expect("text"),
        Reply::Int(number) => number.to_string(),
        other => panic!("{other:?}"),
    }
}

fn items(reply: Reply) -> Vec<Reply> {
    match reply {
        Reply::Array(items) => items,
        other => panic!("{other:?}"),
    }
}

/// First and last slots, and addresses with ids, the primary first.
type Row = (String, String, Vec<(String, String)>);

fn rows(reply: Reply) -> Vec<Row> {
    let row = |row: Reply| {
        let row = items(row);
        let nodes = row[2..].iter().map(|node| {
            let node = items(node.clone());
            assert_eq!((node.len(), &node[3]), (4, &Reply::Array(Vec::new())));
            (
                format!("{}:{}", text(&node[0]), text(&node[1])),
                text(&node[2]),
            )
        });
        (text(&row[0]), text(&row[1]), nodes.collect())
    };
    items(reply).into_iter().map(row).collect()
}

#[test]
fn slots_name_class_ports_as_primaries_and_ordinary_ones_as_replicas() {
    let cluster = InOneProcess::new();
    let reported: Vec<Vec<Row>> = NODES
        .iter()
        .map(|node| rows(cluster.client(*node, LISTEN).ask("CLUSTER SLOTS")))
        .collect();
    assert!(
        reported.windows(2).all(|pair| pair[0] == pair[1]),
        "all nodes agree"
    );
    let mut ids = BTreeSet::new();
    let ends = ["4095", "8999", "16383"];
    for ((row, (first, [primary, second])), end) in reported[0].iter().zip(CLASSES).zip(ends) {
        let (from, to, nodes) = row;
        assert_eq!((&**from, &**to), (&*first.to_string(), end));
        let addresses: Vec<&str> = nodes.iter().map(|(address, _)| &**address).collect();
        let wanted = [
            format!("127.0.0.{primary}:7381"),
            format!("127.0.0.{primary}:7379"),
            format!("127.0.0.{second}:7379"),
        ];
        assert_eq!(addresses, wanted);
        for (_, id) in nodes {
            assert!(
                id.len() == 40 && id.bytes().all(|digit| digit.is_ascii_hexdigit()),
                "{id}"
            );
            assert!(ids.insert(id.clone()), "{id} appears twice");
        }
    }
}

#[test]
fn nodes_and_shards_agree_with_slots() {
    let cluster = InOneProcess::new();
    let mut client = cluster.client(2, CLASS_PORTS[0]);
    let reported = rows(client.ask("CLUSTER SLOTS"));
    let lines = client.text("CLUSTER NODES");
    let lines: BTreeMap<String, Vec<String>> = lines
        .lines()
        .map(|line| line.split(' ').map(str::to_owned).collect::<Vec<_>>())
        .map(|words| (words[0].clone(), words))
        .collect();
    assert_eq!(lines.len(), 9);
    for (first, last, nodes) in &reported {
        let primary = &lines[&nodes[0].1];
        assert!(
            primary[2].ends_with("master") && primary[3] == "-",
            "{primary:?}"
        );
        assert_eq!(primary[8], format!("{first}-{last}"));
        for (address, id) in nodes {
            let line = &lines[id];
            assert_eq!(line[1], format!("{address}@7400"));
            assert_eq!(&line[4..8], ["0", "0", "5", "connected"]);
        }
        for (_, id) in &nodes[1..] {
            assert_eq!((&*lines[id][2], &lines[id][3]), ("slave", &nodes[0].1));
            assert_eq!(lines[id].len(), 8);
        }
    }
    // The port that was asked is that of the second class.
    let own: Vec<&Vec<String>> = lines
        .values()
        .filter(|line| line[2].contains("myself"))
        .collect();
    assert_eq!((own.len(), &own[0][0]), (1, &reported[1].2[0].1));
    assert_eq!(client.text("CLUSTER MYID"), reported[1].2[0].1);

    let shards = items(client.ask("CLUSTER SHARDS"));
    for (shard, (first, last, nodes)) in shards.into_iter().zip(&reported) {
        let shard = items(shard);
        assert_eq!(
            (text(&shard[0]), text(&shard[2])),
            ("slots".into(), "nodes".into())
        );
        let slots: Vec<String> = items(shard[1].clone()).iter().map(text).collect();
        assert_eq!(slots, [first.clone(), last.clone()]);
        for (at, (node, (address, id))) in
            items(shard[3].clone()).into_iter().zip(nodes).enumerate()
        {
            let words: Vec<String> = items(node).iter().map(text).collect();
            let of = |name: &str| {
                let place = words.chunks(2).find(|pair| pair[0] == name).expect(name);
                place[1].clone()
            };
            assert_eq!(of("id"), *id);
            assert_eq!(format!("{}:{}", of("endpoint"), of("port")), *address);
            assert_eq!(
                (of("ip"), of("health")),
                (of("endpoint"), "online".to_owned())
            );
            assert_eq!(of("role"), if at == 0 { "master" } else { "replica" });
        }
    }
    let replicas = client.texts(&format!("CLUSTER REPLICAS {}", reported[0].2[0].1));
    assert_eq!(replicas.len(), 2);
    assert!(
        client
            .text("CLUSTER REPLICAS x")
            .starts_with("-ERR Unknown node")
    );
}

#[test]
fn each_port_has_an_id_of_its_own() {
    let cluster = InOneProcess::new();
    let mut ids = BTreeSet::new();
    for node in NODES {
        for port in [LISTEN, CLASS_PORTS[0], CLASS_PORTS[1]] {
            let mut client = cluster.client(node, port);
            let id = client.text("CLUSTER MYID");
            let lines = client.text("CLUSTER NODES");
            let own: Vec<&str> = lines
                .lines()
                .filter(|line| line.contains("myself"))
                .collect();
            assert!(own.len() == 1 && own[0].starts_with(&id), "{lines}");
            assert_eq!(client.text("CLUSTER MYSHARDID").len(), 40);
            assert!(ids.insert(id), "{node} {port}");
        }
    }
}

#[test]
fn without_class_ports_a_node_has_one_address() {
    let cluster = InOneProcess::new();
    cluster.member(1).change(|model: &mut Model| {
        for id in NODES {
            let class_ports = Vec::new();
            model.put_node(forebay_cluster::model::NodeEntry {
                class_ports,
                ..node(id)
            });
        }
    });
    let mut client = cluster.client(1, LISTEN);
    let reported = rows(client.ask("CLUSTER SLOTS"));
    let addresses: Vec<Vec<String>> = reported
        .iter()
        .map(|(_, _, nodes)| nodes.iter().map(|(address, _)| address.clone()).collect())
        .collect();
    assert_eq!(
        addresses,
        [["127.0.0.1:7379"], ["127.0.0.2:7379"], ["127.0.0.3:7379"]]
    );
    let moved = client.text(&format!("GET {}", key_in("words", 1)));
    assert!(moved.ends_with(" 127.0.0.2:7379"), "{moved}");
}

#[test]
fn an_unavailable_node_is_no_replica_and_its_class_gets_another_primary() {
    let cluster = InOneProcess::new();
    cluster.member(1).change(|model| {
        let state = forebay_cluster::model::NodeState::Down { since_unix_ms: 1 };
        model.put_node(forebay_cluster::model::NodeEntry { state, ..node(2) });
    });
    let mut client = cluster.client(1, LISTEN);
    let reported = rows(client.ask("CLUSTER SLOTS"));
    let addresses: Vec<&str> = reported[1]
        .2
        .iter()
        .map(|(address, _)| &**address)
        .collect();
    // Its own class keeps the first port of node 3.
    assert_eq!(addresses, ["127.0.0.3:7382", "127.0.0.3:7379"]);
    let info = client.text("CLUSTER INFO");
    for line in [
        "cluster_state:ok",
        "cluster_slots_ok:16384",
        "cluster_known_nodes:3",
        "cluster_size:3",
    ] {
        assert!(info.contains(&format!("{line}\r\n")), "{info}");
    }
    // The maps of nodes 2 and 3 differ.
    let few = client.text(&format!("GET {}", key_in("few", 1)));
    assert!(
        few.starts_with("-CLUSTERDOWN") || few.starts_with("value"),
        "{few}"
    );
}

#[test]
fn advertised_host_names_are_reported() {
    let cluster = InOneProcess::new();
    cluster.member(1).change(|model: &mut Model| {
        for id in NODES {
            let listen = HostPort::new(&format!("node-{id}.example"), LISTEN);
            model.put_node(forebay_cluster::model::NodeEntry { listen, ..node(id) });
        }
    });
    let mut client = cluster.client(1, LISTEN);
    let reported = rows(client.ask("CLUSTER SLOTS"));
    assert_eq!(reported[2].2[0].0, "node-3.example:7381");
    let lines = client.text("CLUSTER NODES");
    assert!(
        lines.contains(" node-2.example:7379@7400,node-2.example slave "),
        "{lines}"
    );
    let moved = client.text(&format!("GET {}", key_in("words", 1)));
    assert!(moved.ends_with(" node-2.example:7381"), "{moved}");
    let shards = format!("{:?}", client.ask("CLUSTER SHARDS"));
    let name = format!("{:?}", b"hostname".to_vec());
    assert!(shards.contains(&name));
}

#[test]
fn cluster_ports_report_cluster_mode_and_gateways_do_not() {
    let cluster = InOneProcess::new();
    for (port, mode, enabled) in [
        (LISTEN, "cluster", 1),
        (CLASS_PORTS[0], "cluster", 1),
        (GATEWAY, "standalone", 0),
    ] {
        let mut client = cluster.client(1, port);
        let info = client.text("INFO");
        for line in [
            format!("redis_mode:{mode}"),
            format!("cluster_enabled:{enabled}"),
            "redis_version:7.2.0".to_owned(),
            "availability_zone:b".to_owned(),
            format!("tcp_port:{port}"),
        ] {
            assert!(info.contains(&format!("{line}\r\n")), "{line}: {info}");
        }
        let Reply::Map(hello) = client.ask("HELLO 3") else {
            panic!("no map");
        };
        let reported = hello.iter().find(|(name, _)| text(name) == "mode");
        assert_eq!(text(&reported.expect("a mode").1), mode);
        for command in [
            "READONLY",
            "READWRITE",
            "ASKING",
            "CLUSTER KEYSLOT words:k0001",
        ] {
            let reply = client.text(command);
            let is_refused = reply == "-ERR This instance has cluster support disabled";
            assert_eq!(is_refused, enabled == 0, "{command}: {reply}");
        }
    }
}

#[test]
fn commands_that_would_change_the_cluster_are_refused_with_a_reason() {
    let cluster = InOneProcess::new();
    let mut client = cluster.client(1, LISTEN);
    for command in [
        "MEET 127.0.0.1 7379",
        "ADDSLOTS 1",
        "FAILOVER",
        "RESET HARD",
        "SETSLOT 5 STABLE",
    ] {
        let reported = client.text(&format!("CLUSTER {command}"));
        assert!(
            reported.contains("changes nothing here: the cluster's coordinator"),
            "{reported}"
        );
    }
    assert!(
        client
            .text("CLUSTER GETKEYSINSLOT 5 10")
            .contains("SCAN at a class's port")
    );
    assert!(
        client
            .text("CLUSTER NONSENSE")
            .starts_with("-ERR unknown subcommand")
    );
    assert_eq!(client.texts("CLUSTER HELP").len(), 13);
    assert_eq!(client.ask("CLUSTER LINKS"), Reply::Array(Vec::new()));
    for write in ["SET words:k0001 1", "DEL words:k0001", "MSET few:a 1"] {
        let refused = client.text(write);
        assert!(refused.starts_with("-READONLY"), "{write}");
        assert!(refused.contains("forebay push") && refused.contains("forebay create"));
    }
}

#[test]
fn ranges_and_versions_are_reported() {
    let cluster = InOneProcess::new();
    let mut client = cluster.client(3, GATEWAY);
    let ranges = items(client.ask("KV.MAP log"));
    for (at, (range, (lower, nodes))) in ranges.into_iter().zip(RANGES).enumerate() {
        let range = items(range);
        assert_eq!(range[0], Reply::Bulk(lower.to_vec()));
        let upper = RANGES
            .get(at + 1)
            .map(|(next, _)| Reply::Bulk(next.to_vec()));
        assert_eq!(range[1], upper.unwrap_or(Reply::Null));
        let addresses: Vec<String> = items(range[2].clone()).iter().map(text).collect();
        assert_eq!(addresses, nodes.map(|node| format!("127.0.0.{node}:7379")));
    }
    let ranges = items(client.ask("KV.MAP few"));
    assert_eq!(
        items(ranges[1].clone())[..2],
        [Reply::Int(4096), Reply::Int(9000)]
    );
    assert_eq!(client.ask("KV.VERSION log"), Reply::Int(1));
    let schema = client.text("KV.SCHEMA log");
    assert!(
        schema.contains(r#""order":"ordered""#) && schema.contains(r#""version":1"#),
        "{schema}"
    );
    assert!(
        client
            .text("KV.MAP none")
            .starts_with("-ERR no table 'none'")
    );
    assert!(
        client
            .text("KV.VERSION none")
            .starts_with("-ERR no table 'none'")
    );
}

/// Assigns the second class to nodes 2, 3 and 1, and adds a table of three replicas.
fn with_a_third_replica(model: &mut Model) {
    let lists: [(u16, &[u32]); 3] = [(0, &[1, 2]), (4096, &[2, 3, 1]), (9000, &[3, 1])];
    let main = lists.map(|(slot, list)| range(Bound::Slot(slot), list));
    let main = Layout::new(Order::Hashed, main.to_vec());
    model.layouts.insert(LayoutName::Main, main);
    let words = TableName::new("words").expect("a name");
    let entry = model.table(&words).expect("the table exists").clone();
    let replicas = 3;
    model.put_table(&words, TableEntry { replicas, ..entry });
}

#[test]
fn cluster_clients_are_redirected_after_a_class_changes_its_nodes() {
    let cluster = InOneProcess::new();
    let (changed, other) = (key_in("words", 1), key_in("words", 2));
    let mut of_class = cluster.client(3, CLASS_PORTS[0]);
    let mut of_replica = cluster.client(3, LISTEN);
    assert_eq!(of_replica.text("READONLY"), "OK");
    let mut plain = cluster.client(3, LISTEN);
    let mut gateway = cluster.client(3, GATEWAY);
    let is_moved = |client: &mut common::Client<_>, wire: &str| {
        let reply = client.text(&format!("GET {wire}"));
        assert!(
            reply.starts_with("value") || reply.ends_with(" 127.0.0.2:7381"),
            "{reply}"
        );
        reply.starts_with("-MOVED")
    };
    for client in [&mut of_class, &mut of_replica, &mut plain, &mut gateway] {
        assert!((0..20).all(|_| !is_moved(client, &changed)));
    }
    cluster.member(3).change(with_a_third_replica);
    for client in [&mut of_class, &mut of_replica] {
        let notified = (0..100_000).any(|_| is_moved(client, &changed));
        assert!(
            notified && !is_moved(client, &changed),
            "the same command passes"
        );
        let more = (0..200).filter(|_| is_moved(client, &changed)).count();
        assert_eq!(more, 4);
        assert!((0..20).all(|_| !is_moved(client, &other)));
    }
    for client in [
        &mut plain,
        &mut gateway,
        &mut cluster.client(3, CLASS_PORTS[0]),
    ] {
        assert!((0..100).all(|_| !is_moved(client, &changed)));
    }
}

#[test]
fn command_info_has_the_policies_to_combine_replies_of_several_nodes() {
    let cluster = InOneProcess::new();
    let mut client = cluster.client(1, LISTEN);
    for (name, tips) in [
        (
            "dbsize",
            &["request_policy:all_shards", "response_policy:agg_sum"][..],
        ),
        ("mget", &["request_policy:multi_shard"]),
        ("get", &[]),
    ] {
        let reported = items(items(client.ask(&format!("COMMAND INFO {name}"))).remove(0));
        assert_eq!(
            items(reported[7].clone())
                .iter()
                .map(text)
                .collect::<Vec<_>>(),
            tips
        );
    }
}
