//! Probes and metrics: the content of /ready, the tables that each user sees, and the format.
//!
//! They answer no matter what other connections do.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use crate::common::{self, Fixture, bytes, http};
use forebay_io::SystemClock;
use forebay_io::sim::SimDisk;
use forebay_run::Order;

/// SHA-256 of "password".
const HASH: &str = "5e884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8";

fn error_of(answer: &str) -> String {
    let answer: serde_json::Value = serde_json::from_str(answer).expect("JSON");
    answer["error"].as_str().expect("an error").to_owned()
}

#[test]
fn ready_names_the_live_table_that_refuses_writes_and_the_reason() {
    let disk = SimDisk::new();
    let mut fixture = Fixture::store_on(Arc::new(disk.clone()), Arc::new(SystemClock));
    fixture.live("live");
    fixture.live("other");
    fixture.start(|_| {});
    let ready = || http(&fixture, "GET /ready/tables", "", "");
    assert_eq!(ready().0, 200);
    disk.fill_up();
    let mut client = fixture.client();
    let long = "x".repeat(100_000);
    let mut answers = (0..).map(|n| client.text(&format!("SET live:{n} {long}")));
    let refused = answers.find(|answer| answer != "OK").expect("refused");
    assert!(refused.contains("make room"), "{refused}");
    let (status, answer) = ready();
    assert_eq!(status, 503, "{answer}");
    assert!(
        answer.contains("live table live refuses writes"),
        "{answer}"
    );
    assert!(answer.contains("no storage space"), "{answer}");
    assert!(!answer.contains("table other"), "{answer}");
    for (path, status) in [("", 200), ("/tables/live", 503), ("/tables/other", 200)] {
        let (found, answer) = http(&fixture, &format!("GET /ready{path}"), "", "");
        assert_eq!(found, status, "{path}: {answer}");
        let is_named = answer.contains("live table live refuses writes");
        assert_eq!(is_named, path != "/tables/other", "{path}: {answer}");
    }
    let (_, metrics) = http(&fixture, "GET /metrics", "", "");
    assert!(metrics.contains("forebay_live_refuses_writes{table=\"live\"} 1"));
    assert!(metrics.contains("forebay_live_refuses_writes{table=\"other\"} 0"));
    disk.make_room();
    assert_eq!(client.text("SET live:a b"), "OK");
    assert_eq!(ready().0, 200);
}

#[test]
fn probes_answer_when_every_connection_is_taken() {
    let mut fixture = Fixture::store();
    fixture.start(|config| config.limits.http_connections = 8);
    let address = fixture.server().http_address().expect("HTTP");
    // More than there are slots, and than are answered at a time beyond these.
    let held: Vec<TcpStream> = (0..100)
        .map(|_| {
            let mut stream = common::dial(address).expect("connected");
            stream.write_all(b"GET /health HTTP/1.1\r\n").expect("sent");
            stream
        })
        .collect();
    for _ in 0..20 {
        assert_eq!(http(&fixture, "GET /ready", "", "").0, 200);
        assert_eq!(http(&fixture, "GET /health", "", "").0, 200);
    }
    let (status, answer) = http(&fixture, "GET /v1/tables", "", "");
    assert_eq!(status, 503);
    assert!(error_of(&answer).contains("too many HTTP connections"));
    // The first ones kept their slots.
    let mut first = &held[0];
    first
        .write_all(b"Host: localhost\r\nConnection: close\r\n\r\n")
        .expect("sent");
    let mut answer = String::new();
    first.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    drop(held);
    let served = (0..1000).any(|_| http(&fixture, "GET /v1/tables", "", "").0 == 200);
    assert!(served);
}

#[test]
fn metrics_show_a_user_its_tables_only() {
    let mut fixture = Fixture::store();
    fixture.push_usual();
    fixture.live("live");
    fixture.live("words_live");
    let users = format!(
        r#"{{"users":[
          {{"name":"u","password_sha256":"{HASH}","tables":["words*"],"verbs":["read"]}},
          {{"name":"v","password_sha256":"{HASH}","tables":["*"],"verbs":["read"]}}
        ]}}"#
    );
    let users = fixture.file("users.json", &users);
    fixture.start(|config| config.users = Some(users));
    let mut client = fixture.client();
    assert_eq!(client.text("AUTH v password"), "OK");
    for key in ["words:k0001", "log:k0001", "live:a", "words_live:a"] {
        client.text(&format!("GET {key}"));
    }
    // v:password, u:password
    let of = |basic: &str| {
        let header = format!("Authorization: Basic {basic}\r\n");
        http(&fixture, "GET /metrics", &header, "").1
    };
    let tables = |page: &str| -> BTreeSet<String> {
        let labels = page.lines().filter_map(|line| line.split_once("table=\""));
        let names = labels.filter_map(|(_, rest)| rest.split_once('"'));
        names.map(|(name, _)| name.to_owned()).collect()
    };
    let all = tables(&of("djpwYXNzd29yZA=="));
    let expected = ["", "flights", "lists", "live", "log", "words", "words_live"];
    assert_eq!(all, expected.map(str::to_owned).into());
    let own = tables(&of("dTpwYXNzd29yZA=="));
    assert_eq!(own, ["", "words", "words_live"].map(str::to_owned).into());
}

#[test]
fn metrics_have_the_format_of_prometheus() {
    let mut fixture = Fixture::store();
    fixture.push_usual();
    fixture.live("live");
    fixture.start(|_| {});
    let mut client = fixture.client();
    client.text("GET words:k0001");
    client.text("SET live:a b");
    client.text("HGET words:k0001 x");
    let (_, page) = http(&fixture, "GET /metrics", "", "");
    assert!(page.ends_with('\n'));
    let mut kinds: BTreeMap<&str, &str> = BTreeMap::new();
    let (mut family, mut samples) = ("", BTreeSet::new());
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            (family, _) = rest.split_once(' ').expect("a help");
            assert!(!kinds.contains_key(family), "twice: {line}");
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("a kind");
            assert_eq!(name, family, "{line}");
            assert!(kinds.insert(name, kind).is_none(), "twice: {line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            let units = ["_milliseconds", "_ms", "_kib", "_percent"];
            assert!(!units.iter().any(|unit| name.contains(unit)), "{line}");
        } else {
            let (series, value) = line.rsplit_once(' ').expect("a value");
            assert!(samples.insert(series), "twice: {line}");
            assert!(value.parse::<f64>().is_ok(), "{line}");
            let name = series.split('{').next().expect("a name");
            let name = match kinds.get(family) {
                Some(&"histogram") => ["_bucket", "_sum", "_count"]
                    .iter()
                    .find_map(|end| name.strip_suffix(end))
                    .expect("of a histogram"),
                _ => name,
            };
            assert_eq!(name, family, "{line}");
        }
    }
    assert_eq!(kinds["forebay_live_stall_seconds_total"], "counter");
    assert!(kinds.len() > 30, "{kinds:?}");
}

#[test]
fn errors_are_json_for_every_request() {
    let mut fixture = Fixture::store();
    fixture.push(
        "t",
        Order::Hashed,
        bytes(),
        vec![(b"a".to_vec(), b"b".to_vec())],
    );
    fixture.start(|_| {});
    for (request, status) in [
        ("GET /v1/tables/%ff", 400),
        ("GET /v1/tables/%ff/versions", 400),
        ("POST /v1/tables/%ff/swap", 400),
        ("POST /v1/tables/%ff/rollback", 400),
        ("POST /v1/tables/%ff/compact", 400),
        ("GET /v1/tables/%ff/rows/a", 404),
        ("GET /v1/tables/t/rows/%ff", 404),
        ("GET /v1/tables/t/swap", 405),
        ("PUT /health", 405),
        ("GET /%", 404),
        ("GET /", 404),
        ("POST /v1/tables/t/rollback", 403),
    ] {
        let (found, answer) = http(&fixture, request, "", "");
        assert_eq!(found, status, "{request}: {answer}");
        error_of(&answer);
    }
}

#[test]
fn hosts_and_origins_are_read_strictly() {
    let fixture = Fixture::new();
    let status = |headers: &str| {
        let (status, answer) = http(&fixture, "GET /health", headers, "");
        if status != 200 {
            error_of(&answer);
        }
        status
    };
    for (headers, expected) in [
        ("Host: localhost:7380\r\n", 200),
        ("Host: [::1]:7380\r\n", 200),
        ("Host: localhost:evil\r\n", 421),
        ("Host: localhost:80@evil.example\r\n", 421),
        ("Host: [::1]evil.example\r\n", 421),
        ("Host: evil.example\r\n", 421),
        ("Host: localhost\r\nHost: localhost\r\n", 421),
        ("Host: localhost\r\nOrigin: http://localhost:3000\r\n", 200),
        ("Host: localhost\r\nOrigin: null\r\n", 403),
        ("Host: localhost\r\nOrigin: evil://localhost\r\n", 403),
        ("Host: localhost\r\nOrigin: http://localhost:x\r\n", 403),
        (
            "Host: localhost\r\nOrigin: http://localhost\r\nOrigin: http://evil.example\r\n",
            403,
        ),
    ] {
        assert_eq!(status(headers), expected, "{headers}");
    }
    let (found, _) = http(&fixture, "GET http://evil.example/health", "", "");
    assert_eq!(found, 421);
}
