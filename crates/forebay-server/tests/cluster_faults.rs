//! Nodes of a cluster that disagree, are silent, send garbage, or have a wrong identity.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::cluster::{
    GATEWAY, InOneProcess, LISTEN, PEER, ROWS, at, host, key, key_in, push, range, value,
};
use crate::common::{self, Reply, encode, spawn};
use bytes::Bytes;
use forebay_cluster::model::{Layout, LayoutName, Model};
use forebay_cluster::{HostPort, NodeId, Peers};
use forebay_engine::{Bound, TableName};
use forebay_io::sim::{SimNet, TestOver};
use forebay_io::{Clock, Listener, Net, SystemClock};
use forebay_run::Order;
use forebay_server::PeerClient;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn bulk(text: String) -> Reply {
    Reply::Bulk(text.into_bytes())
}

fn number(wire: &str) -> u32 {
    wire[wire.len() - 4..].parse().expect("a number")
}

/// Assigns the second class of hashed tables to these nodes.
fn second_class_at(list: [u32; 2]) -> impl FnOnce(&mut Model) {
    move |model| {
        let main = [(0, [1, 2]), (4096, list), (9000, [3, 1])];
        let main = main.map(|(slot, list)| range(Bound::Slot(slot), &list));
        let main = Layout::new(Order::Hashed, main.to_vec());
        model.layouts.insert(LayoutName::Main, main);
    }
}

#[test]
fn nodes_with_different_maps_report_it_and_the_asking_node_retries() {
    let cluster = InOneProcess::new();
    let wire = key_in("few", 1);
    cluster.member(1).change(second_class_at([3, 2]));
    let mut client = cluster.client(1, GATEWAY);
    let reported = client.text(&format!("GET {wire}"));
    let wanted = "-TRYAGAIN by its map 6 node n1 takes node n3 to have the key, which by its map 5 answers: \
                  version 1 of table few: ";
    assert!(reported.starts_with(wanted), "{reported}");
    let reported = client.text(&format!("STRLEN {wire}"));
    assert!(reported.starts_with(wanted), "{reported}");

    let wanted = bulk(value(number(&wire), 0));
    for (command, wanted) in [
        ("GET", wanted.clone()),
        ("MGET", Reply::Array(vec![wanted])),
    ] {
        cluster.member(1).change(second_class_at([3, 2]));
        let member = Arc::clone(&cluster.members[0]);
        let corrects = spawn(move || {
            // Longer than one look for another map.
            SystemClock.sleep(Duration::from_millis(700));
            member.change(second_class_at([2, 3]));
        });
        assert_eq!(client.ask(&format!("{command} {wire}")), wanted);
        corrects.join().expect("joined");
    }
}

#[test]
fn a_node_reports_a_partition_that_only_it_has_and_has_not_opened() {
    let cluster = InOneProcess::new();
    cluster.member(3).change_quietly(second_class_at([3, 2]));
    let mut client = cluster.client(3, LISTEN);
    let reported = client.text(&format!("GET {}", key_in("few", 1)));
    assert_eq!(
        reported,
        "-TRYAGAIN by map 5 this node alone has the key, and it is not open here"
    );
}

#[test]
fn a_key_that_moves_here_during_a_read_is_read_here() {
    let cluster = InOneProcess::new();
    let wire = key_in("few", 1);
    let few = [TableName::new("few").expect("a name")];
    let wanted = bulk(value(number(&wire), 0));
    let (get, strlen) = (format!("GET {wire}"), format!("STRLEN {wire}"));
    for commands in [vec![&*get], vec![&*strlen], vec!["MULTI", &*get, "EXEC"]] {
        let serving = cluster.servers[0].as_ref().expect("started").serving();
        cluster.member(1).change(second_class_at([3, 2]));
        serving.rehold(&few).expect("reheld");
        let mut client = cluster.client(1, GATEWAY);
        let asked = commands
            .iter()
            .map(|command| command.to_string())
            .collect::<Vec<_>>();
        let asks = spawn(move || {
            let replies = asked.iter().map(|command| client.ask(command));
            replies.last().expect("a reply")
        });
        SystemClock.sleep(Duration::from_millis(100));
        // The node holds it first and reports it afterwards, as in production.
        let (member, model) = (cluster.member(1), second_class_at([1, 3]));
        member.change_quietly(model);
        serving.rehold(&few).expect("reheld");
        member.change(|_| {});
        match asks.join().expect("joined") {
            Reply::Int(len) => assert_eq!(len as usize, value(number(&wire), 0).len()),
            Reply::Array(replies) => assert_eq!(replies, std::slice::from_ref(&wanted)),
            reply => assert_eq!(reply, wanted),
        }
    }
}

#[test]
fn no_reply_mixes_versions_during_swaps() {
    let cluster = InOneProcess::new();
    let over = Arc::new(TestOver::default());
    let answers = Arc::new(AtomicUsize::new(0));
    let keys: Vec<String> = (0..40).map(|n| format!("words:{}", key(n))).collect();
    let command = format!("MGET {}", keys.join(" "));
    let reading = {
        let mut client = cluster.client(1, GATEWAY);
        let (over, answers) = (Arc::clone(&over), Arc::clone(&answers));
        spawn(move || {
            let mut seen = std::collections::BTreeSet::new();
            let _at_end = over.at_end();
            while !over.is() {
                let reply = client.ask(&command);
                if matches!(&reply, Reply::Error(words) if words.starts_with("TRYAGAIN")) {
                    continue;
                }
                let of =
                    |version: u32| Reply::Array((0..40).map(|n| bulk(value(n, version))).collect());
                let version = (0..4).find(|version| reply == of(*version));
                seen.insert(version.unwrap_or_else(|| panic!("mixed: {reply:?}")));
                answers.fetch_add(1, Ordering::Relaxed);
            }
            seen.len()
        })
    };
    for version in 1..4 {
        push(&cluster.fixture, "words", Order::Hashed, version);
        for server in cluster.servers.iter().flatten() {
            server.serving().refresh();
        }
        // One may have begun before.
        let wanted = answers.load(Ordering::Relaxed) + 2;
        while answers.load(Ordering::Relaxed) < wanted && !over.is() {
            SystemClock.sleep(Duration::from_millis(1));
        }
    }
    drop(over.at_end());
    assert!(reading.join().expect("joined") >= 3);
}

#[test]
fn the_owner_of_a_key_decides_the_rights() {
    let fixture = common::Fixture::store();
    let users = |tables: &str| {
        let password = "5e884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8";
        format!(
            "{{\"users\": [{{\"name\": \"shop\", \"password_sha256\": \"{password}\", \
             \"tables\": [{tables}], \"verbs\": [\"read\"]}}]}}"
        )
    };
    let everything = fixture.file("all.json", &users("\"*\""));
    let some = fixture.file("some.json", &users("\"log\""));
    let other = fixture.file("other.json", &users("\"*\"").replace("shop", "ops"));
    let files = [everything, some, other];
    // Files are on the real disk, and the store is in memory.
    let cluster = InOneProcess::on(
        Arc::new(forebay_io::OsDisk::default()),
        move |node, config| {
            config.users = Some(files[node as usize - 1].clone());
        },
    );
    let mut client = cluster.client(1, GATEWAY);
    assert_eq!(client.text("AUTH shop password"), "OK");
    let reported = client.text(&format!("GET {}", key_in("few", 1)));
    assert_eq!(reported, "-NOPERM user 'shop' may not read table 'few'");
    let reported = client.text(&format!("GET {}", key_in("few", 2)));
    assert!(
        reported.starts_with("-NOPERM user 'shop' is not in the users file"),
        "{reported}"
    );
    assert_eq!(client.text("GET log:k0001"), value(1, 0));
}

/// A port of a node that does not answer as it should.
fn faulty_node(net: &SimNet, id: u32, answers: &'static [u8], closes: bool) {
    let mut listener: Box<dyn Listener> = net.listen(at(id, PEER)).expect("a port");
    let serve = move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.expect("a runtime").block_on(async move {
            let mut held = Vec::new();
            while let Ok(arrival) = listener.accept().await {
                let mut stream = arrival.open().expect("open");
                let mut space = [0; 4096];
                let read = stream.read(&mut space).await;
                if read.is_ok() && !answers.is_empty() {
                    stream.write_all(answers).await.expect("written");
                }
                if !closes {
                    held.push(stream);
                }
            }
        });
    };
    drop(spawn(serve));
}

#[test]
fn the_next_node_is_asked_after_silence_garbage_or_a_closed_connection() {
    for (answers, closes) in [
        (&b""[..], false),
        (b"", true),
        (b"garbage without an end", false),
        (b"$5\r\n+x\r\n!\r\n", false),
        (b"$3\r\n:1\r\r\n", false),
        (b"$99999999999\r\n", false),
        (b"$5\r\n:1\r\n:\r\n", false),
        (b"*1\r\n:1\r\n", false),
        (b"$8\r\n:1\r\n:2\r\n\r\n", true),
    ] {
        let mut cluster = InOneProcess::new();
        // Of the same zone, so that it is the first to be asked.
        cluster.stop(3);
        let wire = key_in("words", 1);
        faulty_node(&cluster.net, 3, answers, closes);
        let mut client = cluster.client(1, GATEWAY);
        let reply = client.ask(&format!("GET {wire}"));
        let shown = String::from_utf8_lossy(answers).into_owned();
        assert_eq!(reply, bulk(value(number(&wire), 0)), "{shown:?}");
        assert_eq!(cluster.member(1).reported_of().0, [3], "{shown:?}");
    }
}

#[test]
fn a_timeout_of_all_nodes_is_reported_in_time() {
    let mut cluster = InOneProcess::new();
    for id in [2, 3] {
        cluster.stop(id);
        faulty_node(&cluster.net, id, b"", false);
    }
    let mut client = cluster.client(1, GATEWAY);
    let reported = client.text(&format!("GET {}", key_in("words", 1)));
    assert!(
        reported.starts_with("-TRYAGAIN no node that has the key answers"),
        "{reported}"
    );
    assert!(reported.contains("no answer within 500 ms"), "{reported}");
}

#[test]
fn a_node_that_returns_is_trusted_again() {
    let mut cluster = InOneProcess::new();
    let wire = key_in("few", 1);
    let wanted = bulk(value(number(&wire), 0));
    let mut client = cluster.client(1, GATEWAY);
    assert_eq!(client.ask(&format!("GET {wire}")), wanted);
    cluster.stop(2);
    assert!(
        client
            .text(&format!("GET {wire}"))
            .starts_with("-CLUSTERDOWN")
    );
    cluster.restart(2);
    assert_eq!(client.ask(&format!("GET {wire}")), wanted);
    assert_eq!(cluster.member(1).reported_of(), (vec![2], vec![2]));
}

/// Without certificates a node is what it claims.
#[test]
fn a_node_that_was_removed_is_refused_and_its_connections_end() {
    let cluster = InOneProcess::new();
    let get = encode(&[b"GET", key_in("few", 0).as_bytes()]);
    let forwarded = |revision: &[u8]| {
        let mut peer = cluster.client(1, PEER);
        let head: [&[u8]; 4] = [b"fb.forward", b"1", b"7", revision];
        let of_node_2: [&[u8]; 5] = [b"2", b"default", b"2", b"", &get];
        peer.send(&encode(&[&head[..], &of_node_2].concat()));
        (peer.try_read(), peer)
    };
    let (reply, mut before) = forwarded(b"5");
    assert!(matches!(reply, Ok(Reply::Bulk(_))));
    cluster
        .member(1)
        .change(|model| model.remove_node(NodeId(2)));
    assert!(before.try_read().is_err(), "the connection is not ended");
    let (reply, _) = forwarded(b"7");
    assert!(
        matches!(reply, Ok(Reply::Bulk(_))),
        "a newer map names the node"
    );
    match forwarded(b"6").0 {
        Ok(Reply::Error(text)) => assert!(text.contains("node 2 was removed"), "{text}"),
        // The connection was ended first.
        Err(_) => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn ports_accept_only_their_own_commands() {
    let cluster = InOneProcess::new();
    let reported = cluster.client(1, PEER).text("GET words:k0001");
    assert!(
        reported.starts_with("-ERR the peer port is for other nodes"),
        "{reported}"
    );
    for port in [LISTEN, GATEWAY] {
        let reported = cluster.client(1, port).text("fb.control 1 hello");
        assert!(reported.starts_with("-ERR unknown command"), "{reported}");
    }
    let mut peer = cluster.client(1, PEER);
    let mut ask = |words: &[&[u8]]| {
        peer.send(&encode(words));
        match peer.read() {
            Reply::Error(text) => text,
            Reply::Bulk(bytes) => String::from_utf8(bytes).expect("text"),
            other => panic!("{other:?}"),
        }
    };
    let get = encode(&[b"GET", key_in("few", 0).as_bytes()]);
    let n = number(&key_in("few", 0));
    let mut forward = |format: &[u8], cluster: &[u8], versions: &[u8], commands: &[u8]| {
        ask(&[
            b"fb.forward",
            format,
            cluster,
            b"5",
            b"2",
            b"default",
            b"2",
            versions,
            commands,
        ])
    };
    let text = value(n, 0);
    let replied = format!("${}\r\n{text}\r\n", text.len());
    assert_eq!(forward(b"1", b"7", b"", &get), replied);
    assert_eq!(forward(b"1", b"7", b"few 1", &get), replied);
    let reported = forward(b"1", b"7", b"few 9", &get);
    let wanted = "NOVERSION version 9 of table few is asked for, which is not open here: 1 serves";
    assert_eq!(reported, wanted);
    // A connection that was replaced is still open.
    push(&cluster.fixture, "few", Order::Hashed, 2);
    cluster.servers[0]
        .as_ref()
        .expect("started")
        .serving()
        .refresh();
    let new = value(n, 2);
    let replied_now = format!("${}\r\n{new}\r\n", new.len());
    for (versions, wanted) in [
        ("", &replied_now),
        ("few 1", &replied),
        ("few 2", &replied_now),
    ] {
        assert_eq!(
            forward(b"1", b"7", versions.as_bytes(), &get),
            *wanted,
            "{versions}"
        );
    }
    assert!(forward(b"2", b"7", b"", &get).contains("this node speaks format 1"));
    assert!(forward(b"1", b"8", b"", &get).contains("two nodes have one address"));
    assert_eq!(
        forward(b"1", b"7", b"", b"*1\r\n$3"),
        "ERR no whole command came"
    );
    assert_eq!(
        ask(&[b"fb.fetch", b"1", b"few", b"runs/a", b"5", b"9"]),
        "few/runs/a 5..9"
    );
}

#[test]
fn messages_and_parts_of_files_reach_other_nodes() {
    let cluster = InOneProcess::new();
    let net = Arc::new(cluster.net.clone());
    let peers = PeerClient::start(net, Arc::new(SystemClock), None).expect("started");
    let wait = Duration::from_secs(5);
    let node = |id: u32| HostPort::new(&host(id), PEER);
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let runtime = runtime.expect("a runtime");
    let mut answers = Vec::new();
    let asked = (0..50).map(|n| {
        let message = Bytes::from(format!("message {n}"));
        peers.ask(&node(n % 3 + 1), message, wait)
    });
    let asked: Vec<_> = asked.collect();
    for answer in asked {
        answers.push(runtime.block_on(answer).expect("an answer"));
    }
    for (n, answer) in answers.iter().enumerate() {
        assert_eq!(*answer, format!("to {}: message {n}", n % 3 + 1));
    }
    let failed = runtime.block_on(peers.ask(&node(2), Bytes::from("fail"), wait));
    let failed = failed.expect_err("refused").to_string();
    assert_eq!(failed, "127.0.0.2:7400 answers: ERR failed as requested");
    let table = TableName::new("words").expect("a name");
    let fetched = peers.fetch(&node(3), &table, "runs/x", 10..20, wait);
    assert_eq!(
        runtime.block_on(fetched).expect("fetched"),
        "words/runs/x 10..20"
    );
    let nobody = peers.ask(&HostPort::new(&host(9), PEER), Bytes::new(), wait);
    assert!(runtime.block_on(nobody).is_err());
}

#[test]
fn a_reply_beyond_the_limit_is_refused_on_any_node() {
    let cluster = InOneProcess::changed(|_, config| config.limits.reply_bytes = 2000);
    let mut client = cluster.client(1, GATEWAY);
    let keys: Vec<String> = (0..ROWS).map(|n| format!("words:{}", key(n))).collect();
    let reported = client.text(&format!("MGET {}", keys.join(" ")));
    assert!(
        reported.starts_with("-ERR the reply is larger than 2000 bytes"),
        "{reported}"
    );
    assert_eq!(client.ask(&format!("GET {}", keys[7])), bulk(value(7, 0)));
}
