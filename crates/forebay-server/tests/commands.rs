//! Commands over a real socket, in RESP2 and RESP3.

use std::net::TcpStream;

use crate::common::{self, Client, Fixture, Reply, bytes, encode};
use forebay_engine::live::LiveDraft;
use forebay_run::Order;

#[test]
fn values_of_all_kinds() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    assert_eq!(client.text("PING"), "PONG");
    assert_eq!(client.text("GET words:k0007"), "value 7");
    assert_eq!(client.text("get log:k0299"), "value 299");
    assert_eq!(client.ask("GET words:nothing"), Reply::Null);
    assert_eq!(
        client.text("GET flights:0"),
        r#"{"carrier":"AA","delay":-50,"note":"n\"0"}"#
    );
    assert_eq!(
        client.text("GET flights:13"),
        r#"{"carrier":"UA","delay":null,"note":null}"#
    );
    assert_eq!(client.text("GET lists:3"), "[0,1,2]");
    assert_eq!(
        client.texts("MGET words:k0001 log:k0002 words:x lists:2 words:k0003"),
        ["value 1", "value 2", "(null)", "[0,1]", "value 3"]
    );
    assert_eq!(client.text("EXISTS words:k0001 words:x words:k0001"), "2");
    assert_eq!(client.text("STRLEN words:k0001"), "7");
    assert_eq!(client.text("STRLEN words:x"), "0");
    assert_eq!(client.text("GETRANGE words:k0001 -1 -1"), "1");
    assert_eq!(client.text("GETRANGE words:x 0 -1"), "");
    assert_eq!(client.text("TYPE words:k0001"), "string");
    assert_eq!(client.text("TYPE flights:1"), "hash");
    assert_eq!(client.text("TYPE lists:1"), "list");
    assert_eq!(client.text("TYPE lists:none"), "none");
    assert_eq!(client.text("TTL words:k0001"), "-1");
    assert_eq!(client.text("PTTL words:x"), "-2");
    assert_eq!(client.text("OBJECT ENCODING words:k0001"), "raw");
    assert_eq!(client.text("MEMORY USAGE words:k0001"), "18");
}

#[test]
fn rows_are_hashes() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    assert_eq!(client.text("HGET flights:7 delay"), "20");
    assert_eq!(client.ask("HGET flights:13 delay"), Reply::Null);
    assert_eq!(client.ask("HGET flights:7 nothing"), Reply::Null);
    assert_eq!(client.ask("HGET flights:999 delay"), Reply::Null);
    assert_eq!(
        client.texts("HMGET flights:7 carrier x delay"),
        ["UA", "(null)", "20"]
    );
    assert_eq!(
        client.texts("HMGET flights:x carrier delay"),
        ["(null)", "(null)"]
    );
    assert_eq!(
        client.texts("HGETALL flights:7"),
        ["carrier", "UA", "delay", "20"]
    );
    assert_eq!(client.texts("HGETALL flights:x"), [""; 0]);
    assert_eq!(
        client.texts("HKEYS flights:3"),
        ["carrier", "delay", "note"]
    );
    assert_eq!(client.texts("HVALS flights:13"), ["UA"]);
    assert_eq!(client.text("HLEN flights:13"), "1");
    assert_eq!(client.text("HEXISTS flights:13 delay"), "0");
    assert_eq!(client.text("HEXISTS flights:13 carrier"), "1");
    assert_eq!(client.text("HSTRLEN flights:3 note"), "3");
    let scanned = Reply::Array(vec![
        Reply::Bulk(b"0".to_vec()),
        Reply::Array(vec![
            Reply::Bulk(b"delay".to_vec()),
            Reply::Bulk(b"20".to_vec()),
        ]),
    ]);
    assert_eq!(client.ask("HSCAN flights:7 0 MATCH d* COUNT 5"), scanned);
    assert_eq!(
        client.texts("HRANDFIELD flights:13 5 WITHVALUES"),
        ["carrier", "UA"]
    );
    assert_eq!(client.text("HRANDFIELD flights:13"), "carrier");
    assert_eq!(client.texts("HRANDFIELD flights:13 -3").len(), 3);
}

#[test]
fn lists_are_lists() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    assert_eq!(client.texts("LRANGE lists:4 1 -1"), ["1", "2", "3"]);
    assert_eq!(client.texts("LRANGE lists:5 3 10"), ["3", "(null)"]);
    assert_eq!(client.texts("LRANGE lists:none 0 -1"), [""; 0]);
    assert_eq!(client.text("LINDEX lists:4 -1"), "3");
    assert_eq!(client.ask("LINDEX lists:4 4"), Reply::Null);
    assert_eq!(client.text("LLEN lists:19"), "19");
    assert_eq!(client.text("LLEN lists:none"), "0");
}

#[test]
fn errors_say_what_is_wrong() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    for (command, words) in [
        ("GET nocolon", "ERR key 'nocolon' names no table"),
        ("GET nosuch:key", "ERR no table 'nosuch'"),
        ("MGET words:k0001 nosuch:1", "ERR no table 'nosuch'"),
        ("HGET words:k0001 f", "WRONGTYPE"),
        ("LLEN flights:1", "WRONGTYPE"),
        ("HGETALL lists:1", "WRONGTYPE"),
        (
            "SET words:k0001 x",
            "READONLY table 'words' is a batch table, SET cannot",
        ),
        ("DEL flights:1", "READONLY table 'flights'"),
        ("FLUSHALL", "ERR FLUSHALL is not supported"),
        ("ZADD words:k 1 a", "ERR ZADD is not supported"),
        ("GET", "ERR wrong number of arguments for 'get'"),
        (
            "NOSUCH a b",
            "ERR unknown command 'NOSUCH', with args beginning with: 'a' 'b'",
        ),
        ("SELECT 1", "ERR DB index"),
        ("GETRANGE words:k0001 a b", "ERR value is not an integer"),
        (
            "CONFIG SET a b",
            "ERR Unknown option or number of arguments",
        ),
        ("EVAL x 0", "ERR unknown command"),
        ("KV.RANGE words: +", "ERR table 'words' is hashed"),
        ("KV.RANGE - +", "ERR one bound must name"),
        ("SCAN x", "ERR invalid cursor"),
        ("CLIENT TRACKING ON", "ERR client-side caching"),
    ] {
        let reply = client.text(command);
        assert!(
            reply.starts_with(&format!("-{words}")),
            "{command}: {reply}"
        );
    }
    assert_eq!(client.text("GET words:k0001"), "value 1");
}

/// Runs one SCAN of a walk. Returns the cursor to continue with.
fn scan_on(
    client: &mut Client<TcpStream>,
    cursor: &str,
    count: u32,
    keys: &mut Vec<String>,
) -> String {
    let Reply::Array(reply) = client.ask(&format!("SCAN {cursor} COUNT {count}")) else {
        panic!()
    };
    let Reply::Array(found) = &reply[1] else {
        panic!()
    };
    keys.extend(found.iter().map(common::text_of));
    let cursor = common::text_of(&reply[0]);
    assert!(cursor.parse::<u64>().expect("a number") < 1 << 53);
    cursor
}

/// Walks all keys; after the first reply the table is of the other order.
fn scanned_across_orders(before: forebay_run::Order, after: forebay_run::Order) -> Vec<String> {
    let mut fixture = Fixture::store();
    let rows = |value: &[u8]| -> common::Pairs {
        let key = |n: u32| format!("k{n:03}").into_bytes();
        (0..200).map(|n| (key(n), value.to_vec())).collect()
    };
    fixture.push("t", before, common::bytes(), rows(b"old"));
    fixture.start(|_| {});
    let mut client = fixture.client();
    let (mut cursor, mut keys, mut rounds) = ("0".to_owned(), Vec::new(), 0);
    while rounds == 0 || cursor != "0" {
        cursor = scan_on(&mut client, &cursor, 20, &mut keys);
        rounds += 1;
        if rounds == 1 {
            fixture.push("t", after, common::bytes(), rows(b"new"));
            fixture.server().serving().refresh();
        }
    }
    assert!(keys.len() <= 220, "the table starts over once");
    keys.sort();
    keys.dedup();
    keys
}

#[test]
fn scans_miss_no_key_if_the_order_changes() {
    use forebay_run::Order::{Hashed, Ordered};
    for _ in 0..5 {
        assert_eq!(scanned_across_orders(Ordered, Hashed).len(), 200);
        assert_eq!(scanned_across_orders(Hashed, Ordered).len(), 200);
    }
}

#[test]
fn scans_find_every_key_once_and_continue_across_swaps() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    let (mut cursor, mut keys, mut rounds) = ("0".to_owned(), Vec::new(), 0);
    loop {
        cursor = scan_on(&mut client, &cursor, 37, &mut keys);
        rounds += 1;
        if rounds == 5 {
            let row = |n: u32| (format!("k{n:04}").into_bytes(), b"new".to_vec());
            let rows = (0..1000).map(row).collect();
            fixture.push("words", forebay_run::Order::Hashed, common::bytes(), rows);
            let row = |n: u32| (format!("k{n:04}").into_bytes(), b"new".to_vec());
            let rows = (0..300).map(row).collect();
            fixture.push("log", forebay_run::Order::Ordered, common::bytes(), rows);
            fixture.server().serving().refresh();
        }
        if cursor == "0" {
            break;
        }
    }
    let total = keys.len();
    keys.sort();
    keys.dedup();
    assert_eq!(
        (keys.len(), total),
        (1000 + 300 + 50 + 20, 1000 + 300 + 50 + 20)
    );
    assert_eq!(client.text("DBSIZE"), keys.len().to_string());
    let Reply::Array(reply) = client.ask("SCAN 0 MATCH log:k000* COUNT 1000") else {
        panic!()
    };
    let Reply::Array(found) = &reply[1] else {
        panic!()
    };
    assert_eq!(found.len(), 10);
    let Reply::Array(reply) = client.ask("SCAN 0 TYPE list COUNT 1000") else {
        panic!()
    };
    let Reply::Array(found) = &reply[1] else {
        panic!()
    };
    assert_eq!(found.len(), 20);
    assert_eq!(client.texts("KEYS lists:1?").len(), 10);
    let random = client.text("RANDOMKEY");
    assert!(keys.contains(&random), "{random}");
}

#[test]
fn ranges_of_ordered_tables() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    let mut ask = |command: &str| {
        let Reply::Array(reply) = client.ask(command) else {
            panic!("{command}")
        };
        let Reply::Array(items) = &reply[1] else {
            panic!("{command}")
        };
        (
            common::text_of(&reply[0]),
            items.iter().map(common::text_of).collect::<Vec<_>>(),
        )
    };
    let (next, items) = ask("KV.RANGE [log:k0010 (log:k0012");
    assert_eq!(next, "(null)");
    assert_eq!(items, ["log:k0010", "value 10", "log:k0011", "value 11"]);
    assert_eq!(
        ask("KV.RANGE log:k0298 + KEYS").1,
        ["log:k0298", "log:k0299"]
    );
    assert_eq!(
        ask("KV.RANGE - (log:k0002 VALUES").1,
        ["value 0", "value 1"]
    );
    assert_eq!(
        ask("KV.RANGE log: log: REV LIMIT 2 KEYS").1,
        ["log:k0299", "log:k0298"]
    );
    assert_eq!(ask("KV.RANGE log:k9 log:k1").1, [""; 0]);
    let (mut start, mut all) = ("log:".to_owned(), Vec::new());
    loop {
        let (next, items) = ask(&format!("KV.RANGE {start} + LIMIT 70 KEYS"));
        all.extend(items);
        if next == "(null)" {
            break;
        }
        start = next;
    }
    assert_eq!(all.len(), 300);
    assert!(all.is_sorted());
}

#[test]
fn resp3_has_types_of_its_own() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    let Reply::Map(hello) = client.ask("HELLO 3 SETNAME me") else {
        panic!()
    };
    let proto = Reply::Bulk(b"proto".to_vec());
    assert!(hello.contains(&(proto, Reply::Int(3))));
    client.send(&encode(&[b"GET", b"words:none"]));
    let mut line = [0; 3];
    std::io::Read::read_exact(&mut client.stream, &mut line).expect("read");
    assert_eq!(&line, b"_\r\n");
    let Reply::Map(row) = client.ask("HGETALL flights:7") else {
        panic!()
    };
    assert_eq!(
        row[0],
        (
            Reply::Bulk(b"carrier".to_vec()),
            Reply::Bulk(b"UA".to_vec())
        )
    );
    assert!(matches!(client.ask("INFO server"), Reply::Verbatim(_)));
    assert!(matches!(client.ask("CONFIG GET save"), Reply::Map(_)));
    assert_eq!(client.text("CLIENT GETNAME"), "me");
    assert_eq!(
        client.text("HELLO 9"),
        "-NOPROTO unsupported protocol version"
    );
    assert!(matches!(client.ask("HELLO 2"), Reply::Array(_)));
    assert!(matches!(client.ask("HGETALL flights:7"), Reply::Array(_)));
    assert_eq!(client.text("RESET"), "RESET");
    assert_eq!(client.ask("CLIENT GETNAME"), Reply::Null);
}

#[test]
fn transactions_of_reads() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    assert_eq!(client.text("EXEC"), "-ERR EXEC without MULTI");
    assert_eq!(client.text("MULTI"), "OK");
    assert_eq!(client.text("MULTI"), "-ERR MULTI calls can not be nested");
    assert_eq!(client.text("GET words:k0001"), "QUEUED");
    assert_eq!(client.text("HLEN words:k0001"), "QUEUED");
    assert_eq!(client.text("SCAN 0 COUNT 1"), "QUEUED");
    let Reply::Array(replies) = client.ask("EXEC") else {
        panic!()
    };
    assert_eq!(replies[0], Reply::Bulk(b"value 1".to_vec()));
    assert!(matches!(&replies[1], Reply::Error(text) if text.starts_with("WRONGTYPE")));
    assert!(matches!(&replies[2], Reply::Array(parts) if parts.len() == 2));
    client.text("MULTI");
    assert!(
        client
            .text("ZADD words:a 1 b")
            .starts_with("-ERR ZADD is not allowed")
    );
    assert!(client.text("EXEC").starts_with("-EXECABORT"));
    client.text("MULTI");
    assert_eq!(client.text("SET words:a b"), "QUEUED");
    assert!(
        client
            .text("EXEC")
            .starts_with("-READONLY table 'words' is a batch table")
    );
    client.text("MULTI");
    assert!(client.text("NOSUCH").starts_with("-ERR unknown"));
    assert!(client.text("EXEC").starts_with("-EXECABORT"));
    client.text("MULTI");
    assert_eq!(client.text("DISCARD"), "OK");
    assert_eq!(client.text("GET words:k0002"), "value 2");
}

#[test]
fn the_introductory_commands_of_clients_are_answered() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    assert_eq!(client.text("CLIENT SETINFO LIB-NAME test"), "OK");
    assert_eq!(client.text("CLIENT SETNAME a"), "OK");
    assert!(client.text("CLIENT SETNAME a\u{7f}b").starts_with("-ERR"));
    assert!(client.text("CLIENT INFO").contains("name=a"));
    assert!(client.text("CLIENT LIST").contains("lib-name=test"));
    assert_eq!(client.text("CLIENT NO-EVICT ON"), "OK");
    let count: usize = client.text("COMMAND COUNT").parse().expect("a number");
    assert!(matches!(client.ask("COMMAND"), Reply::Array(all) if all.len() == count));
    assert!(
        matches!(client.ask("COMMAND INFO get nosuch"), Reply::Array(both) if both[1] == Reply::Null)
    );
    assert!(matches!(client.ask("COMMAND DOCS get"), Reply::Array(docs) if docs.len() == 2));
    assert_eq!(client.texts("COMMAND GETKEYS MGET a:1 b:2"), ["a:1", "b:2"]);
    assert_eq!(client.texts("CONFIG GET sav?"), ["save", ""]);
    assert_eq!(client.texts("CONFIG GET save appendonly").len(), 4);
    for of_clusters in [
        "CLUSTER SLOTS",
        "CLUSTER INFO",
        "READONLY",
        "READWRITE",
        "ASKING",
    ] {
        let refused = "-ERR This instance has cluster support disabled";
        assert_eq!(client.text(of_clusters), refused, "{of_clusters}");
    }
    let info = client.text("INFO");
    assert!(info.contains("redis_mode:standalone\r\n") && info.contains("cluster_enabled:0\r\n"));
    assert_eq!(
        client.texts("CONFIG GET cluster-enabled"),
        ["cluster-enabled", "no"]
    );
    let standalone = Reply::Bulk(b"standalone".to_vec());
    assert!(
        matches!(client.ask("HELLO 2"), Reply::Array(reported) if reported.contains(&standalone))
    );
    assert!(
        info.contains("redis_version:7.2") && info.contains("db0:keys=1370"),
        "{info}"
    );
    assert!(!client.text("INFO clients").contains("redis_version"));
    assert_eq!(client.text("ACL WHOAMI"), "default");
    assert!(
        client
            .text("AUTH secret")
            .starts_with("-ERR AUTH called without")
    );
    assert_eq!(client.text("CLIENT REPLY ON"), "OK");
    client.send(&encode(&[b"CLIENT", b"REPLY", b"SKIP"]));
    client.send(&encode(&[b"PING"]));
    assert_eq!(client.text("ECHO x"), "x");
    client.send(&encode(&[b"CLIENT", b"REPLY", b"OFF"]));
    client.send(&encode(&[b"GET", b"words:k0001"]));
    assert_eq!(client.text("CLIENT REPLY ON"), "OK");
    assert_eq!(client.text("QUIT"), "OK");
    assert!(client.try_read().is_err());
}

#[test]
fn pipelines_and_inline_commands_keep_their_order() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    let mut bytes = Vec::new();
    for n in 0..500u32 {
        bytes.extend(encode(&[b"GET", format!("words:k{n:04}").as_bytes()]));
        match n % 7 {
            0 => bytes.extend(format!("GET log:k{:04}\r\n", n % 300).bytes()),
            1 => bytes.extend(encode(&[b"HGET", b"flights:7", b"delay"])),
            2 => bytes.extend(encode(&[b"GET", b"nosuch:1"])),
            3 => bytes.extend(encode(&[b"SCAN", b"0", b"COUNT", b"1"])),
            _ => {}
        }
    }
    let (first, rest) = bytes.split_at(777);
    client.send(first);
    std::thread::scope(|scope| {
        let mut writer = client.stream.get_ref().try_clone().expect("cloned");
        scope.spawn(move || std::io::Write::write_all(&mut writer, rest).expect("sent"));
        for n in 0..500u32 {
            assert_eq!(
                client.read(),
                Reply::Bulk(format!("value {n}").into_bytes())
            );
            match n % 7 {
                0 => assert_eq!(
                    client.read(),
                    Reply::Bulk(format!("value {}", n % 300).into_bytes())
                ),
                1 => assert_eq!(client.read(), Reply::Bulk(b"20".to_vec())),
                2 => assert!(matches!(client.read(), Reply::Error(_))),
                3 => assert!(matches!(client.read(), Reply::Array(_))),
                _ => {}
            }
        }
    });
}

#[test]
fn get_has_the_same_reply_in_any_position() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    let keys = [
        "words:k0001",
        "words:none",
        "words:k0002",
        "flights:3",
        "flights:x",
        "lists:5",
        "log:k0001",
        "nosuch:1",
        "words:",
        "words:k0999",
    ];
    let get = |key: &&str| encode(&[b"GET", key.as_bytes()]);
    let pipeline: Vec<u8> = keys.iter().flat_map(get).collect();
    client.send(&pipeline);
    let pipelined: Vec<Reply> = keys.iter().map(|_| client.read()).collect();
    let inline: String = keys.iter().map(|key| format!("GET {key}\r\n")).collect();
    client.send(inline.as_bytes());
    let of_lines: Vec<Reply> = keys.iter().map(|_| client.read()).collect();
    let alone: Vec<Reply> = keys
        .iter()
        .map(|key| client.ask(&format!("GET {key}")))
        .collect();
    assert_eq!(client.text("MULTI"), "OK");
    for key in keys {
        assert_eq!(client.text(&format!("GET {key}")), "QUEUED");
    }
    let queued = client.ask("EXEC");
    assert_eq!(pipelined[0], Reply::Bulk(b"value 1".to_vec()));
    assert_eq!(pipelined[1], Reply::Null);
    assert!(matches!(&pipelined[7], Reply::Error(text) if text.contains("no table 'nosuch'")));
    assert_eq!(of_lines, pipelined);
    assert_eq!(alone, pipelined);
    assert_eq!(queued, Reply::Array(pipelined.clone()));
    let served = keys.iter().filter(|key| !key.starts_with("nosuch"));
    let wanted = pipelined
        .iter()
        .filter(|reply| !matches!(reply, Reply::Error(_)));
    let of_mget = client.ask(&format!(
        "MGET {}",
        served.copied().collect::<Vec<_>>().join(" ")
    ));
    assert_eq!(of_mget, Reply::Array(wanted.cloned().collect()));
}

#[test]
fn random_keys_are_from_all_partitions() {
    let mut fixture = Fixture::store();
    let text = |n: u32| (format!("k{n:05}").into_bytes(), b"x".repeat(100));
    let rows: Vec<_> = (0..2000).map(text).collect();
    fixture.push("hashed", Order::Hashed, bytes(), rows.clone());
    fixture.push("ordered", Order::Ordered, bytes(), rows);
    fixture.live("live");
    fixture.live_as("sorted", LiveDraft::ordered(vec![b"k0500".to_vec()]));
    fixture.start(|_| {});
    let mut client = fixture.client();
    for n in 0..1000 {
        assert_eq!(
            client.text(&format!("MSET live:k{n} x sorted:k{n:04} x")),
            "OK"
        );
    }
    let mut drawn = std::collections::BTreeMap::<String, Vec<String>>::new();
    for _ in 0..1500 {
        let key = client.text("RANDOMKEY");
        let (table, key) = key.split_once(':').expect("a table and a key");
        drawn
            .entry(table.to_owned())
            .or_default()
            .push(key.to_owned());
    }
    for (table, most) in [
        ("hashed", 2000),
        ("ordered", 2000),
        ("live", 1000),
        ("sorted", 1000),
    ] {
        let keys = drawn.get_mut(table).expect("some");
        let draws = keys.len();
        keys.sort();
        keys.dedup();
        // In a random sample of a quarter of a table or more, few keys appear twice, and some of
        // any tenth appear.
        assert!(
            draws > most / 8 && keys.len() > draws / 2,
            "{table}: {} of {draws}",
            keys.len()
        );
        let number = |key: &String| key[1..].parse::<usize>().expect("a number");
        let tenths: std::collections::BTreeSet<_> =
            keys.iter().map(|key| number(key) * 10 / most).collect();
        assert_eq!(tenths.len(), 10, "{table}");
    }
    fixture.server = None;
}
