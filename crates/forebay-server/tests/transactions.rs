//! MULTI, MGET and WATCH on live tables while others write.

use std::net::TcpStream;
use std::time::Duration;

use crate::common::{self, Fixture, Reply, bytes};
use forebay_engine::TableName;
use forebay_engine::live::{Expiry, LiveDraft};
use forebay_io::sim::TestOver;
use forebay_io::{Clock, SystemClock};
use forebay_run::Order;

type Client = common::Client<TcpStream>;

/// A table `t` of four partitions. Keys with the same hash tag are in one partition.
fn served() -> Fixture {
    let mut fixture = Fixture::store();
    fixture.live_as("t", LiveDraft::hashed().partitions(4));
    fixture.live_as("ttl", LiveDraft::hashed().expiry(Expiry::PerRecord));
    fixture.push(
        "b",
        Order::Hashed,
        bytes(),
        vec![(b"k".to_vec(), b"1".to_vec())],
    );
    fixture.start(|_| {});
    fixture
}

fn ok(client: &mut Client, command: &str) {
    assert_eq!(
        client.ask(command),
        Reply::Simple("OK".to_owned()),
        "{command}"
    );
}

fn queue(client: &mut Client, commands: &[&str]) {
    ok(client, "MULTI");
    queue_more(client, commands);
}

fn queue_more(client: &mut Client, commands: &[&str]) {
    for command in commands {
        assert_eq!(client.text(command), "QUEUED");
    }
}

#[test]
fn multi_and_mget_read_the_writes_of_a_multi_atomically() {
    let fixture = served();
    let over = TestOver::default();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _at_end = over.at_end();
            let mut client = fixture.client();
            for number in 0..3000 {
                let set = |key| format!("SET t:{{u}}{key} {number}");
                queue(&mut client, &[&set("a"), &set("b"), &set("c")]);
                client.ask("EXEC");
            }
        });
        let mut client = fixture.client();
        while !over.is() {
            queue(
                &mut client,
                &["GET t:{u}a", "STRLEN t:{u}c", "GET t:{u}c", "GET t:{u}b"],
            );
            let Reply::Array(read) = client.ask("EXEC") else {
                panic!("no replies")
            };
            assert!(read[0] == read[2] && read[0] == read[3], "{read:?}");
            let Reply::Array(read) = client.ask("MGET t:{u}a b:k t:{u}b t:none t:{u}c") else {
                panic!("no values")
            };
            assert!(read[0] == read[2] && read[0] == read[4], "{read:?}");
            assert_eq!(read[1], Reply::Bulk(b"1".to_vec()));
            assert_eq!(read[3], Reply::Null);
        }
    });
}

#[test]
fn exec_runs_nothing_after_a_write_to_a_watched_key() {
    let fixture = served();
    let (mut client, mut other) = (fixture.client(), fixture.client());
    ok(&mut client, "SET t:{u}a 1");
    for command in [
        "SET t:{u}a 1",
        "DEL t:{u}a",
        "APPEND t:{u}a x",
        "MSET t:{u}a 1 t:x 1",
    ] {
        for queued in [["SET t:{u}b no"], ["GET t:{u}b"]] {
            ok(&mut client, "SET t:{u}a 1");
            ok(&mut client, "WATCH t:{u}a t:{u}c");
            let reply = other.ask(command);
            assert!(!matches!(reply, Reply::Error(_)), "{reply:?}");
            queue(&mut client, &queued);
            assert_eq!(
                client.ask("EXEC"),
                Reply::Null,
                "{command}, then {queued:?}"
            );
        }
    }
    assert_eq!(client.ask("GET t:{u}b"), Reply::Null);
    // Written before WATCH, or by the transaction itself.
    ok(&mut client, "SET t:{u}a 2");
    ok(&mut client, "WATCH t:{u}a");
    queue(&mut client, &["SET t:{u}a 3", "GET t:{u}a"]);
    let both = vec![Reply::Simple("OK".to_owned()), Reply::Bulk(b"3".to_vec())];
    assert_eq!(client.ask("EXEC"), Reply::Array(both));
}

#[test]
fn exec_discard_unwatch_and_reset_forget_the_watched_keys() {
    let fixture = served();
    let (mut client, mut other) = (fixture.client(), fixture.client());
    for forget in ["EXEC", "DISCARD", "UNWATCH", "RESET"] {
        ok(&mut client, "WATCH t:{u}a");
        if matches!(forget, "EXEC" | "DISCARD") {
            ok(&mut client, "MULTI");
        }
        client.ask(forget);
        ok(&mut other, "SET t:{u}a 1");
        queue(&mut client, &["SET t:{u}b 1"]);
        let ran = vec![Reply::Simple("OK".to_owned())];
        assert_eq!(client.ask("EXEC"), Reply::Array(ran), "{forget}");
    }
    ok(&mut client, "MULTI");
    let refused = client.text("WATCH t:{u}a");
    assert_eq!(refused, "-ERR WATCH inside MULTI is not allowed");
}

#[test]
fn keys_that_cannot_be_watched_are_refused() {
    let fixture = served();
    let mut client = fixture.client();
    for (command, words) in [
        ("WATCH none", "names no table"),
        ("WATCH no:k", "no table 'no'"),
    ] {
        assert!(client.text(command).contains(words), "{command}");
    }
    // The watched key, or one of them, is in another partition than the written one.
    for watched in ["t:{v}a", "b:k", "t:{u}a ttl:x"] {
        ok(&mut client, &format!("WATCH {watched}"));
        queue(&mut client, &["SET t:{u}a 1"]);
        let text = client.text("EXEC");
        assert!(
            text.starts_with("-CROSSSLOT") && text.contains("WATCH"),
            "{watched}: {text}"
        );
    }
    assert_eq!(client.ask("GET t:{u}a"), Reply::Null);
    // Reads may be anywhere.
    ok(&mut client, "WATCH t:{v}a b:k ttl:x");
    queue(&mut client, &["GET b:k"]);
    assert_eq!(
        client.ask("EXEC"),
        Reply::Array(vec![Reply::Bulk(b"1".to_vec())])
    );
}

#[test]
fn a_swap_and_an_expiry_change_watched_keys() {
    let fixture = served();
    let mut client = fixture.client();
    ok(&mut client, "WATCH b:k");
    fixture.push(
        "b",
        Order::Hashed,
        bytes(),
        vec![(b"k".to_vec(), b"2".to_vec())],
    );
    let mut other = fixture.client();
    while other.text("GET b:k") != "2" {
        SystemClock.sleep(Duration::from_millis(10));
    }
    queue(&mut client, &["GET b:k"]);
    assert_eq!(client.ask("EXEC"), Reply::Null);

    // Retries until the key still existed when it was watched, however slow the machine is.
    for life_ms in (6..).map(|power| 1 << power) {
        ok(&mut client, &format!("SET ttl:k 1 PX {life_ms}"));
        ok(&mut client, "WATCH ttl:k");
        if client.text("GET ttl:k") == "1" {
            break;
        }
        ok(&mut client, "UNWATCH");
    }
    while other.ask("GET ttl:k") != Reply::Null {
        SystemClock.sleep(Duration::from_millis(10));
    }
    queue(&mut client, &["SET ttl:k 2"]);
    assert_eq!(client.ask("EXEC"), Reply::Null);
    assert_eq!(client.ask("GET ttl:k"), Reply::Null);
}

#[test]
fn a_drop_changes_watched_keys() {
    let fixture = served();
    let mut client = fixture.client();
    ok(&mut client, "WATCH t:{u}a");
    let name = TableName::new("t").unwrap();
    fixture.store.drop_table(&name).unwrap();
    let mut other = fixture.client();
    while !other.text("GET t:{u}a").contains("no table") {
        SystemClock.sleep(Duration::from_millis(10));
    }
    queue(&mut client, &["GET ttl:k"]);
    assert_eq!(client.ask("EXEC"), Reply::Null);
}

#[test]
fn a_key_that_is_named_twice_is_deleted_once() {
    let fixture = served();
    let mut client = fixture.client();
    ok(&mut client, "SET t:{u}a 1");
    assert_eq!(client.ask("DEL t:{u}a t:{u}a"), Reply::Int(1));
    ok(&mut client, "SET t:{u}a 1");
    queue(&mut client, &["DEL t:{u}a t:{u}a", "EXISTS t:{u}a"]);
    let wanted = vec![Reply::Int(1), Reply::Int(0)];
    assert_eq!(client.ask("EXEC"), Reply::Array(wanted));
}

#[test]
fn a_multi_deletes_and_appends_to_one_key_in_order() {
    let fixture = served();
    let mut client = fixture.client();
    queue(
        &mut client,
        &[
            "DEL t:{u}big",
            "APPEND t:{u}big a",
            "STRLEN t:{u}big",
            "APPEND t:{u}big b",
        ],
    );
    client.ask("EXEC");
    assert_eq!(client.ask("GET t:{u}big"), Reply::Bulk(b"ab".to_vec()));
}

#[test]
fn ping_echo_and_unwatch_are_in_any_multi() {
    let fixture = served();
    let mut client = fixture.client();
    let about_no_table = ["PING", "PING a", "ECHO b", "UNWATCH"];
    let mut wanted = vec![
        Reply::Simple("PONG".to_owned()),
        Reply::Bulk(b"a".to_vec()),
        Reply::Bulk(b"b".to_vec()),
        Reply::Simple("OK".to_owned()),
    ];
    queue(&mut client, &about_no_table);
    assert_eq!(client.ask("EXEC"), Reply::Array(wanted.clone()));
    queue(&mut client, &about_no_table);
    queue_more(&mut client, &["SET t:{u}a 1", "GET t:{u}a"]);
    wanted.extend([Reply::Simple("OK".to_owned()), Reply::Bulk(b"1".to_vec())]);
    assert_eq!(client.ask("EXEC"), Reply::Array(wanted));
}

#[test]
fn each_command_of_a_multi_sees_keys_as_earlier_ones_left_them() {
    let fixture = served();
    let mut client = fixture.client();
    ok(&mut client, "MSET t:{u}a 1 t:{u}b 2");
    queue(
        &mut client,
        &[
            "MGET t:{u}a t:{u}b t:{u}c",
            "APPEND t:{u}a x",
            "GET t:{u}a",
            "DEL t:{u}b t:{u}b t:{u}c",
            "MGET t:{u}a t:{u}b",
            "BITOP OR t:{u}c t:{u}a t:{u}b t:{u}a",
            "GET t:{u}c",
        ],
    );
    let bulk = |text: &str| Reply::Bulk(text.as_bytes().to_vec());
    let wanted = vec![
        Reply::Array(vec![bulk("1"), bulk("2"), Reply::Null]),
        Reply::Int(2),
        bulk("1x"),
        Reply::Int(1),
        Reply::Array(vec![bulk("1x"), Reply::Null]),
        Reply::Int(2),
        bulk("1x"),
    ];
    assert_eq!(client.ask("EXEC"), Reply::Array(wanted));
    assert_eq!(client.text("GET t:{u}c"), "1x");
}

#[test]
fn a_multi_that_names_a_missing_table_has_one_reply() {
    let fixture = served();
    let mut client = fixture.client();
    queue(&mut client, &["GET nope:1", "SET t:a 1"]);
    let refused = client.text("EXEC");
    assert!(refused.starts_with("-ERR no table 'nope'"), "{refused}");
    assert_eq!(client.text("PING"), "PONG");
    assert_eq!(client.ask("GET t:a"), Reply::Null);
}
