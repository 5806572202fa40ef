//! KV.GETV, KV.SETV, KV.DELV: changes that are made only if a key still has the version that was
//! read.

use std::net::TcpStream;

use crate::common::{self, Fixture, Reply, bytes, flights};
use forebay_engine::live::{Expiry, LiveDraft};
use forebay_run::Order;
use forebay_run::operation::DeltaKind;

type Client = common::Client<TcpStream>;

const ABSENT: &str = "00000000000000000000000000000000";

fn served() -> Fixture {
    let mut fixture = Fixture::store();
    fixture.live_as("t", LiveDraft::hashed().partitions(4));
    fixture.live_as("o", LiveDraft::ordered(vec![b"m".to_vec()]));
    fixture.live_as("n", LiveDraft::hashed().delta(DeltaKind::AddI64));
    fixture.live_as("f", LiveDraft::hashed().delta(DeltaKind::AddF64));
    fixture.live_as("ttl", LiveDraft::hashed().expiry(Expiry::PerRecord));
    fixture.live_as(
        "day",
        LiveDraft::hashed().expiry(Expiry::AfterMs(86_400_000)),
    );
    let one = vec![(b"k".to_vec(), b"1".to_vec())];
    fixture.push("b", Order::Hashed, bytes(), one);
    let (value, rows) = flights();
    fixture.push("flights", Order::Hashed, value, rows);
    fixture.start(|_| {});
    fixture
}

/// A key's version and value.
fn read(client: &mut Client, key: &str) -> (String, String) {
    let mut both = client.texts(&format!("KV.GETV {key}"));
    let value = both.pop().expect("a value");
    (both.pop().expect("a version"), value)
}

#[test]
fn a_key_is_set_if_it_still_has_the_version_that_was_read() {
    let fixture = served();
    let mut client = fixture.client();
    for (key, values) in [
        ("t:a", ["x", "y"]),
        ("o:zz", ["x", ""]),
        ("n:a", ["5", "-7"]),
        ("f:a", ["0.5", "1.25"]),
    ] {
        assert_eq!(
            read(&mut client, key),
            (ABSENT.to_owned(), "(null)".to_owned())
        );
        let [first, second] = values;
        let set = client.text(&format!("KV.SETV {key} {first} {ABSENT}"));
        assert_eq!(read(&mut client, key), (set.clone(), first.to_owned()));
        let refused = client.ask(&format!("KV.SETV {key} {second} {ABSENT}"));
        assert_eq!(refused, Reply::Null, "{key}");
        let next = client.text(&format!("KV.SETV {key} {second} {set}"));
        assert_ne!(next, set);
        assert_eq!(read(&mut client, key), (next.clone(), second.to_owned()));
        // A value that was changed and changed back is not noticed, as documented.
        client.ask(&format!("SET {key} {first}"));
        assert_eq!(read(&mut client, key).0, set);
        let back = client.text(&format!("KV.SETV {key} {second} {set}"));
        assert_eq!(back, next, "{key}");
        assert_eq!(client.text(&format!("KV.DELV {key} {set}")), "0");
        assert_eq!(client.text(&format!("KV.DELV {key} {next}")), "1");
        assert_eq!(client.text(&format!("KV.DELV {key} {next}")), "0");
        assert_eq!(client.text(&format!("KV.DELV {key} {ABSENT}")), "0");
        assert_eq!(read(&mut client, key).0, ABSENT);
    }
}

#[test]
fn a_version_covers_the_expiry_too() {
    let fixture = served();
    let mut client = fixture.client();
    let far = "PXAT 4102444800000";
    let plain = client.text(&format!("KV.SETV ttl:a x {ABSENT}"));
    let expiring = client.text(&format!("KV.SETV ttl:a x {plain} {far}"));
    assert_ne!(plain, expiring);
    assert_eq!(read(&mut client, "ttl:a").0, expiring);
    assert_eq!(client.text("PEXPIRETIME ttl:a"), "4102444800000");
    assert_eq!(client.ask(&format!("KV.SETV ttl:a y {plain}")), Reply::Null);
    let kept = client.text(&format!("KV.SETV ttl:a y {expiring} KEEPTTL"));
    assert_eq!(read(&mut client, "ttl:a").0, kept);
    assert_eq!(client.text("PEXPIRETIME ttl:a"), "4102444800000");
    client.ask("PERSIST ttl:a");
    assert_ne!(read(&mut client, "ttl:a").0, kept);
    let persistent = read(&mut client, "ttl:a").0;
    client.text(&format!("KV.SETV ttl:a y {persistent} EX 1000"));
    let fresh = read(&mut client, "ttl:a").0;
    assert_eq!(client.text(&format!("KV.SETV ttl:a y {fresh}")), persistent);
    // A moment that has passed deletes.
    let gone = client.text(&format!("KV.SETV ttl:a y {persistent} PXAT 5"));
    assert_eq!(
        (gone.as_str(), client.text("EXISTS ttl:a")),
        (ABSENT, "0".to_owned())
    );
    // A table with a TTL applies it, and returns the version that is read afterwards.
    let day = client.text(&format!("KV.SETV day:a x {ABSENT}"));
    assert_eq!(read(&mut client, "day:a").0, day);
    client.ask("PERSIST day:a");
    let never = read(&mut client, "day:a").0;
    client.ask("SET ttl:a x");
    assert_eq!(
        read(&mut client, "ttl:a").0,
        never,
        "keys that never expire have one version"
    );
}

#[test]
fn an_expired_key_has_the_version_of_an_absent_key() {
    let fixture = served();
    let mut client = fixture.client();
    let before = client.text(&format!("KV.SETV ttl:a x {ABSENT} PX 50"));
    while client.text("EXISTS ttl:a") == "1" {
        std::thread::yield_now();
    }
    assert_eq!(read(&mut client, "ttl:a").0, ABSENT);
    assert_eq!(
        client.ask(&format!("KV.SETV ttl:a y {before}")),
        Reply::Null
    );
    assert_eq!(client.text(&format!("KV.DELV ttl:a {before}")), "0");
}

#[test]
fn rows_and_batch_tables_have_versions_to_read() {
    let fixture = served();
    let mut client = fixture.client();
    let (version, value) = read(&mut client, "b:k");
    assert_eq!((version.len(), value.as_str()), (32, "1"));
    assert_eq!(read(&mut client, "b:none").0, ABSENT);
    client.ask("SET t:k 1");
    assert_eq!(read(&mut client, "t:k").0, version, "of the same value");
    let (row, json) = read(&mut client, "flights:13");
    assert_eq!(json, client.text("GET flights:13"));
    assert_ne!(row, read(&mut client, "flights:14").0);
    for command in ["KV.SETV b:k 2", "KV.DELV b:k"] {
        let answer = client.text(&format!("{command} {version}"));
        assert!(
            answer.starts_with("-READONLY table 'b' is a batch"),
            "{answer}"
        );
    }
}

#[test]
fn invalid_versions_and_options_are_refused() {
    let fixture = served();
    let mut client = fixture.client();
    let long = format!("{ABSENT}0");
    for (command, words) in [
        (
            "KV.SETV t:a x 7".to_owned(),
            "-ERR '7' is no version of a key",
        ),
        (format!("KV.SETV t:a x {long}"), "is no version of a key"),
        (
            "KV.DELV t:a zz".to_owned(),
            "-ERR 'zz' is no version of a key",
        ),
        ("KV.SETV t:a x".to_owned(), "wrong number of arguments"),
        ("KV.GETV t:a x".to_owned(), "wrong number of arguments"),
        (format!("KV.SETV t:a x {ABSENT} NX"), "syntax error"),
        (format!("KV.SETV t:a x {ABSENT} PERSIST"), "syntax error"),
        (
            format!("KV.SETV ttl:a x {ABSENT} EX 5 KEEPTTL"),
            "syntax error",
        ),
        (format!("KV.SETV ttl:a x {ABSENT} EX"), "syntax error"),
        (
            format!("KV.SETV ttl:a x {ABSENT} EX 0"),
            "invalid expire time in 'kv.setv'",
        ),
        (format!("KV.SETV n:a x {ABSENT}"), "not an integer"),
        (format!("KV.SETV no:a x {ABSENT}"), "no table 'no'"),
        ("KV.GETV no:a".to_owned(), "no table 'no'"),
        (format!("KV.SETV t: x {ABSENT}"), "a key of 0 bytes"),
    ] {
        let answer = client.text(&command);
        assert!(answer.contains(words), "{command}: {answer}");
    }
    assert_eq!(read(&mut client, "t:a").0, ABSENT);
}

#[test]
fn each_command_of_a_multi_sees_the_effects_of_earlier_ones() {
    let fixture = served();
    let mut client = fixture.client();
    let first = client.text(&format!("KV.SETV t:a 1 {ABSENT}"));
    for command in [
        "MULTI".to_owned(),
        "SET t:a 2".to_owned(),
        format!("KV.SETV t:a 3 {first}"),
        "KV.GETV t:a".to_owned(),
        "SET t:a 1".to_owned(),
        format!("KV.DELV t:a {first}"),
        "KV.GETV t:a".to_owned(),
    ] {
        client.ask(&command);
    }
    let Reply::Array(replies) = client.ask("EXEC") else {
        panic!("no replies")
    };
    assert_eq!((&replies[1], &replies[4]), (&Reply::Null, &Reply::Int(1)));
    let Reply::Array(seen) = &replies[2] else {
        panic!("{replies:?}")
    };
    assert_eq!(seen[1], Reply::Bulk(b"2".to_vec()));
    let absent = vec![Reply::Bulk(ABSENT.as_bytes().to_vec()), Reply::Null];
    assert_eq!(replies[5], Reply::Array(absent));
}

#[test]
fn no_addition_by_concurrent_clients_is_lost() {
    const CLIENTS: usize = 8;
    const ADDED: usize = 200;
    let fixture = served();
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let mut client = fixture.client();
                let mut added = 0;
                while added < ADDED {
                    let (version, seen) = read(&mut client, "o:sum");
                    let next = seen.parse().unwrap_or(0) + 1_usize;
                    let set = client.ask(&format!("KV.SETV o:sum {next} {version}"));
                    added += usize::from(set != Reply::Null);
                }
            });
        }
    });
    let sum = (CLIENTS * ADDED).to_string();
    assert_eq!(fixture.client().text("GET o:sum"), sum);
}

#[test]
fn set_with_ifeq_behaves_as_in_valkey() {
    let fixture = served();
    let mut client = fixture.client();
    for (command, reply) in [
        ("SET t:a 1 IFEQ 1", "(null)"),
        ("SET t:a 1 IFEQ 1 GET", "(null)"),
        ("EXISTS t:a", "0"),
        ("SET t:a 1", "OK"),
        ("SET t:a 2 IFEQ 1", "OK"),
        ("SET t:a 3 IFEQ 1", "(null)"),
        ("SET t:a 3 IFEQ 1 GET", "2"),
        ("SET t:a 3 GET IFEQ 2", "2"),
        ("GET t:a", "3"),
        ("SET ttl:a 1 EX 1000", "OK"),
        ("SET ttl:a 2 IFEQ 1 KEEPTTL", "OK"),
        ("TTL ttl:a", "1000"),
        ("SET t:a 4 IFEQ 3 NX", "-ERR syntax error"),
        ("SET t:a 4 XX IFEQ 3", "-ERR syntax error"),
        ("SET t:a 4 IFEQ 3 IFEQ 5", "-ERR syntax error"),
        ("SET t:a 4 IFEQ", "-ERR syntax error"),
    ] {
        assert_eq!(client.text(command), reply, "{command}");
    }
}

#[test]
fn a_schema_describes_the_values() {
    let fixture = served();
    let mut client = fixture.client();
    for (table, parts) in [
        (
            "flights",
            vec![
                r#""version":1"#,
                r#""key":"{key}""#,
                r#""order":"hashed""#,
                r#""value":"row""#,
                r#""number":null"#,
                r#"{"kind":"int64","name":"delay","nullable":true}"#,
            ],
        ),
        (
            "n",
            vec![r#""version":null"#, r#""key":null"#, r#""number":"i64""#],
        ),
        ("f", vec![r#""number":"f64""#]),
        (
            "o",
            vec![
                r#""order":"ordered""#,
                r#""number":null"#,
                r#""value":{"bytes":"#,
            ],
        ),
    ] {
        let schema = client.text(&format!("KV.SCHEMA {table}"));
        for part in parts {
            assert!(schema.contains(part), "{part} in {schema}");
        }
    }
    let answer = client.text("KV.SCHEMA none");
    assert!(answer.contains("no table 'none'"), "{answer}");
}
