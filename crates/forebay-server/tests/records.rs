//! KV.WRITE: records in the form in which they are stored.

use std::net::TcpStream;

use crate::common::{self, Fixture, Reply, encode, flights, lists};
use forebay_engine::live::{Expiry, LiveDraft};
use forebay_run::operation::DeltaKind;

type Client = common::Client<TcpStream>;

fn served() -> Fixture {
    let mut fixture = Fixture::store();
    fixture.live_as("t", LiveDraft::hashed().partitions(4));
    fixture.live_as("n", LiveDraft::hashed().delta(DeltaKind::AddI64));
    fixture.live_as("ttl", LiveDraft::hashed().expiry(Expiry::PerRecord));
    let day = Expiry::AfterMs(86_400_000);
    fixture.live_as("day", LiveDraft::hashed().expiry(day));
    for (table, ((value, schema), _)) in [("rows", flights()), ("lists", lists())] {
        let mut draft = LiveDraft::hashed();
        (draft.options.value, draft.options.schema) = (value, schema);
        fixture.live_as(table, draft);
    }
    fixture.start(|_| {});
    fixture
}

/// Sends one and returns the answer.
fn write(client: &mut Client, args: &[&[u8]]) -> Reply {
    client.send(&encode(&[&[b"KV.WRITE" as &[u8]], args].concat()));
    client.read()
}

fn is_ok(client: &mut Client, args: &[&[u8]]) {
    let reply = write(client, args);
    assert_eq!(common::text_of(&reply), "OK", "{args:?}");
}

fn is_refused(client: &mut Client, args: &[&[u8]], words: &str) {
    let reply = write(client, args);
    let reported = common::text_of(&reply);
    assert!(
        matches!(reply, Reply::Error(_)) && reported.contains(words),
        "{args:?}: {reported}"
    );
}

#[test]
fn each_operation_has_the_effect_that_it_has_in_a_load() {
    let fixture = served();
    let mut client = fixture.client();
    is_ok(&mut client, &[b"t:a", b"INSERT", b"1"]);
    is_ok(&mut client, &[b"t:a", b"insert", b"2"]);
    assert_eq!(client.text("GET t:a"), "1");
    is_ok(&mut client, &[b"t:a", b"UPDATE", b"3"]);
    assert_eq!(client.text("GET t:a"), "3");
    is_ok(&mut client, &[b"t:a", b"DELETE"]);
    assert_eq!(client.ask("GET t:a"), Reply::Null);
    let (five, two) = (5i64.to_le_bytes(), 2i64.to_le_bytes());
    is_ok(&mut client, &[b"n:a", b"INSERT", &five, b"DELTA", &two]);
    assert_eq!(client.text("GET n:a"), "5");
    is_ok(&mut client, &[b"n:a", b"INSERT", &five, b"DELTA", &two]);
    is_ok(&mut client, &[b"n:a", b"DELTA", &two]);
    assert_eq!(client.text("GET n:a"), "9");
    is_refused(&mut client, &[b"n:a", b"UPDATE", b"11"], "8 bytes");
    is_refused(
        &mut client,
        &[b"t:a", b"DELTA", b"1"],
        "without a kind of deltas",
    );
}

#[test]
fn rows_and_lists_are_checked_and_stored_unchanged() {
    let fixture = served();
    let mut client = fixture.client();
    for (table, (_, rows)) in [("rows", flights()), ("lists", lists())] {
        for (key, packed) in &rows {
            let key = [table.as_bytes(), b":", key].concat();
            is_ok(&mut client, &[&key, b"UPDATE", packed]);
        }
        for (key, packed) in rows.iter().filter(|(_, packed)| packed.len() > 4) {
            let key = [table.as_bytes(), b":x", key].concat();
            is_refused(
                &mut client,
                &[&key, b"UPDATE", &packed[..2]],
                "is no value of table",
            );
            assert_eq!(client.ask(&format!("GET {table}:x")), Reply::Null);
        }
    }
    assert_eq!(
        client.text("GET rows:13"),
        r#"{"carrier":"UA","delay":null,"note":null}"#
    );
    assert_eq!(client.text("GET lists:5"), "[0,1,2,3,null]");
    let (_, rows) = flights();
    let text = rows[0]
        .1
        .iter()
        .position(|byte| *byte == b'A')
        .expect("a letter");
    let mut damaged = rows[0].1.clone();
    damaged[text] = 0xff;
    is_refused(&mut client, &[b"rows:y", b"INSERT", &damaged], "not UTF-8");
}

#[test]
fn records_expire_by_their_own_ttl_or_that_of_the_table() {
    let fixture = served();
    let mut client = fixture.client();
    let later = b"4000000000000";
    is_ok(&mut client, &[b"ttl:a", b"UPDATE", b"1", b"PXAT", later]);
    assert_eq!(client.text("PEXPIRETIME ttl:a"), "4000000000000");
    is_ok(&mut client, &[b"ttl:b", b"INSERT", b"1"]);
    assert_eq!(client.text("PTTL ttl:b"), "-1");
    is_ok(&mut client, &[b"day:a", b"UPDATE", b"1"]);
    let ms: i64 = client.text("PTTL day:a").parse().expect("a number");
    assert!((1..=86_400_000).contains(&ms));
    // A record that has expired by now was written, and is absent.
    is_ok(&mut client, &[b"ttl:b", b"UPDATE", b"1", b"PXAT", b"1"]);
    assert_eq!(client.ask("GET ttl:b"), Reply::Null);
    is_refused(
        &mut client,
        &[b"ttl:a", b"UPDATE", b"1", b"PXAT", b"0"],
        "expire time",
    );
    is_refused(
        &mut client,
        &[b"n:a", b"DELTA", b"12345678", b"PXAT", later],
        "do not expire",
    );
}

#[test]
fn records_of_a_multi_see_each_other() {
    let fixture = served();
    let mut client = fixture.client();
    let two = 2i64.to_le_bytes();
    assert_eq!(client.text("MULTI"), "OK");
    for args in [
        &[b"n:a" as &[u8], b"INSERT", &two][..],
        &[b"n:a", b"INSERT", &two, b"DELTA", &two],
        &[b"n:a", b"DELTA", &two],
    ] {
        assert_eq!(common::text_of(&write(&mut client, args)), "QUEUED");
    }
    client.send(&encode(&[b"GET", b"n:a"]));
    client.read();
    assert_eq!(client.texts("EXEC"), ["OK", "OK", "OK", "6"]);
}

#[test]
fn invalid_records_are_refused() {
    let fixture = served();
    let mut client = fixture.client();
    for args in [
        &[b"t:a" as &[u8], b"UPDATE"][..],
        &[b"t:a", b"PUT", b"1"],
        &[b"t:a", b"DELETE", b"1"],
        &[b"t:a", b"UPDATE", b"1", b"DELTA", b"1"],
        &[b"t:a", b"UPDATE", b"1", b"PXAT"],
        &[b"t:a", b"UPDATE", b"1", b"EX", b"5"],
        &[b"t:a", b"UPDATE", b"1", b"PXAT", b"5", b"PXAT", b"5"],
        &[b"t:a", b"INSERT", b"1", b"DELTA"],
    ] {
        is_refused(&mut client, args, "syntax error");
    }
    is_refused(&mut client, &[b"t:a"], "wrong number of arguments");
    is_refused(&mut client, &[b"none:a", b"DELETE"], "no table");
    is_refused(&mut client, &[b"t:", b"DELETE"], "key");
    assert_eq!(client.ask("GET t:a"), Reply::Null);
}
