//! Swaps under load, values that are not in memory, and shutdown.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::common::{self, Fixture, Reply, bytes, encode};
use forebay_engine::TableName;
use forebay_io::sim::TestOver;
use forebay_run::Order;

fn versioned(version: u32, keys: u32) -> common::Pairs {
    let row = |n: u32| {
        (
            format!("k{n}").into_bytes(),
            format!("{version}").into_bytes(),
        )
    };
    (0..keys).map(row).collect()
}

#[test]
fn no_reply_mixes_versions_however_often_tables_swap() {
    const KEYS: u32 = 200;
    let mut fixture = Fixture::store();
    for table in ["a", "b"] {
        fixture.push(table, Order::Hashed, bytes(), versioned(1, KEYS));
        fixture.push_only(table, Order::Hashed, bytes(), versioned(2, KEYS));
    }
    fixture.start(|_| {});
    let (over, replies) = (TestOver::default(), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| read_until(&fixture, KEYS, &over, &replies)))
            .collect();
        let table = fixture
            .store
            .table(&TableName::new("a").expect("a name"))
            .expect("a table");
        let at_end = over.at_end();
        // As long as it takes for many replies to fall between swaps.
        let mut round = 0;
        while (round < 60 || replies.load(Ordering::Relaxed) < 2000) && !over.is() {
            table.swap(1 + (round + 1) % 2).expect("swapped");
            fixture.server().serving().refresh();
            round += 1;
        }
        drop(at_end);
        let seen: HashSet<String> = readers
            .into_iter()
            .flat_map(|reader| reader.join().expect("no mixture"))
            .collect();
        assert_eq!(seen.len(), 2, "both versions were read: {seen:?}");
    });
}

/// Reads whole replies in pipelines; answers the versions that it saw.
fn read_until(
    fixture: &Fixture,
    keys: u32,
    over: &TestOver,
    replies: &AtomicU64,
) -> HashSet<String> {
    let wires: Vec<String> = (0..keys).map(|n| format!("a:k{n}")).collect();
    let mut mget: Vec<&[u8]> = vec![b"MGET"];
    mget.extend(wires.iter().map(|wire| wire.as_bytes()));
    let mut pipeline = encode(&mget).repeat(5);
    for words in [
        &[&b"MULTI"[..]][..],
        &mget,
        &[b"GET", b"a:k7"],
        &mget,
        &[b"EXEC"],
    ] {
        pipeline.extend(encode(words));
    }
    let (mut client, mut seen) = (fixture.client(), HashSet::new());
    let _at_end = over.at_end();
    while !over.is() {
        client.send(&pipeline);
        for _ in 0..5 {
            seen.insert(common_text(&client.read()));
        }
        for _ in 0..4 {
            client.read();
        }
        seen.insert(common_text(&client.read()));
        replies.fetch_add(6, Ordering::Relaxed);
    }
    seen
}

/// The text that all parts of a reply have in common.
fn common_text(reply: &Reply) -> String {
    match reply {
        Reply::Array(items) => {
            let texts: HashSet<String> = items.iter().map(common_text).collect();
            assert_eq!(texts.len(), 1, "one version a reply: {texts:?}");
            texts.into_iter().next().expect("one")
        }
        other => common::text_of(other),
    }
}

#[test]
fn replies_that_wait_for_the_disk_stay_in_order() {
    let mut fixture = Fixture::store();
    // Large values are never certain to be in memory, small ones only once they were read.
    let row = |n: u32| match n % 3 {
        0 => (
            format!("k{n}").into_bytes(),
            vec![b'a' + (n % 26) as u8; 100_000],
        ),
        _ => (
            format!("k{n}").into_bytes(),
            format!("small {n}").into_bytes(),
        ),
    };
    fixture.push("mixed", Order::Hashed, bytes(), (0..90).map(row).collect());
    fixture.start(|_| {});
    let mut client = fixture.client();
    let mut pipeline = Vec::new();
    for n in 0..90u32 {
        pipeline.extend(encode(&[b"GET", format!("mixed:k{n}").as_bytes()]));
        pipeline.extend(encode(&[b"STRLEN", format!("mixed:k{n}").as_bytes()]));
    }
    for n in 0..90u32 {
        pipeline.extend(encode(&[b"GET", format!("mixed:k{n}").as_bytes()]));
    }
    pipeline.extend(encode(&[b"MULTI"]));
    pipeline.extend(encode(&[b"MGET", b"mixed:k0", b"mixed:k1"]));
    pipeline.extend(encode(&[b"EXEC"]));
    let mut writer = client.stream.get_ref().try_clone().expect("cloned");
    let sender = common::spawn(move || std::io::Write::write_all(&mut writer, &pipeline));
    for n in 0..90 {
        let (_, value) = row(n);
        assert_eq!(client.read(), Reply::Bulk(value.clone()));
        assert_eq!(client.read(), Reply::Int(value.len() as i64));
    }
    for n in 0..90 {
        assert_eq!(client.read(), Reply::Bulk(row(n).1));
    }
    assert_eq!(client.read(), Reply::Simple("OK".to_owned()));
    assert_eq!(client.read(), Reply::Simple("QUEUED".to_owned()));
    let both = Reply::Array(vec![Reply::Bulk(row(0).1), Reply::Bulk(row(1).1)]);
    assert_eq!(client.read(), Reply::Array(vec![both]));
    sender.join().expect("joined").expect("sent");
    let (_, metrics) = common::http(&fixture, "GET /metrics", "", "");
    let line = metrics
        .lines()
        .find(|line| line.starts_with("forebay_page_cache_misses_total{table=\"mixed"));
    let misses: u64 = line
        .and_then(|line| line.split(' ').nth(1)?.parse().ok())
        .expect("counted");
    assert!(misses > 0);
}

#[test]
fn writes_that_go_to_several_partitions_are_answered_in_order_once_they_are_durable() {
    let mut fixture = Fixture::store();
    fixture.live("counts");
    fixture.start(|_| {});
    let mut client = fixture.client();
    let mut pipeline = Vec::new();
    for n in 0..100u32 {
        let keys = (0..8).map(|k| format!("counts:{k}"));
        let pairs: Vec<String> = keys.flat_map(|key| [key, n.to_string()]).collect();
        let words: Vec<&[u8]> = pairs.iter().map(String::as_bytes).collect();
        pipeline.extend(encode(&[&[&b"MSET"[..]], &words[..]].concat()));
        pipeline.extend(encode(&[b"GET", b"counts:7"]));
    }
    client.send(&pipeline);
    for n in 0..100u32 {
        assert_eq!(client.read(), Reply::Simple("OK".to_owned()));
        assert_eq!(client.read(), Reply::Bulk(n.to_string().into_bytes()));
    }
}

#[test]
fn replies_beyond_the_limit_are_refused_and_the_connection_continues() {
    let mut fixture = Fixture::store();
    let value = |bytes: usize| vec![b'x'; bytes];
    let large = vec![
        (b"k".to_vec(), value(600_000)),
        (b"too-large".to_vec(), value(1_100_000)),
    ];
    fixture.push("large", Order::Hashed, bytes(), large);
    fixture.start(|config| config.limits.reply_bytes = 1 << 20);
    let mut client = fixture.client();
    assert!(matches!(client.ask("GET large:k"), Reply::Bulk(value) if value.len() == 600_000));
    assert!(
        client
            .text("MGET large:k large:k")
            .contains("reply is larger than")
    );
    // The first one waits for the value; later ones may find it in memory.
    for _ in 0..3 {
        let get = encode(&[b"GET", b"large:too-large"]);
        client.send(&[&get[..], &get, b"GET large:too-large\r\n"].concat());
        for _ in 0..3 {
            assert!(common::text_of(&client.read()).contains("reply is larger than"));
        }
    }
    assert_eq!(client.text("PING"), "PONG");
}

#[test]
fn dropped_tables_disappear_and_new_ones_appear() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    assert_eq!(client.text("GET words:k0001"), "value 1");
    fixture
        .store
        .drop_table(&TableName::new("words").expect("a name"))
        .expect("dropped");
    fixture.push("fresh", Order::Hashed, bytes(), versioned(9, 3));
    fixture.server().serving().refresh();
    assert!(
        client
            .text("GET words:k0001")
            .starts_with("-ERR no table 'words'")
    );
    assert_eq!(client.text("GET fresh:k1"), "9");
}

#[test]
fn a_shutdown_answers_received_commands_and_ends_in_time() {
    let mut fixture = Fixture::new();
    let mut idle = fixture.client();
    assert_eq!(idle.text("PING"), "PONG");
    let address = fixture.server().resp_address();
    let mut busy = fixture.client();
    busy.send(&encode(&[b"GET", b"words:k0001"]).repeat(20_000));
    assert_eq!(busy.read(), Reply::Bulk(b"value 1".to_vec()));
    let server = fixture.server.take().expect("started");
    let stopping = common::spawn(move || server.shutdown());
    // The server answers all that it has read as a whole: no reply is truncated.
    let mut answered = 1;
    while let Ok(reply) = busy.try_read() {
        assert_eq!(reply, Reply::Bulk(b"value 1".to_vec()));
        answered += 1;
    }
    assert!(answered > 1);
    assert!(idle.try_read().is_err(), "idle connections end");
    stopping.join().expect("stopped");
    assert!(common::dial(address).is_err());
}

#[test]
fn a_client_that_does_not_read_does_not_keep_the_server_from_stopping() {
    let mut fixture = Fixture::store();
    let large = vec![(b"k".to_vec(), vec![b'x'; 1 << 20])];
    fixture.push("large", Order::Hashed, bytes(), large);
    fixture.start(|config| config.limits.shutdown_time = Duration::from_millis(300));
    let mut client = fixture.client();
    client.send(&encode(&[b"GET", b"large:k"]).repeat(100));
    client.read();
    fixture.server.take().expect("started").shutdown();
}
