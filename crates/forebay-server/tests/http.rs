//! The HTTP port.

use std::io::{Read, Write};
use std::time::Duration;

use crate::common::{self, Fixture, bytes, http};
use forebay_run::Order;
use forebay_run::format::MAX_KEY_BYTES;

const TOKEN: &str = "0123456789abcdef0123456789abcdef";
const HASH: &str = "5e884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8";

fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).expect("JSON")
}

fn with_token() -> Fixture {
    let mut fixture = Fixture::store();
    fixture.push_usual();
    let token = fixture.file("token", &format!("{TOKEN}\n"));
    fixture.start(|config| config.http_token = Some(token));
    fixture
}

#[test]
fn health_tables_and_rows() {
    let fixture = Fixture::new();
    assert_eq!(http(&fixture, "GET /health", "", "").0, 200);
    let (status, ready) = http(&fixture, "GET /ready", "", "");
    assert_eq!((status, json(&ready)["ready"].as_bool()), (200, Some(true)));
    let (_, tables) = http(&fixture, "GET /v1/tables", "", "");
    let names: Vec<_> = json(&tables)["tables"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|table| table["table"].as_str().expect("a name").to_owned())
        .collect();
    assert_eq!(names, ["flights", "lists", "log", "words"]);
    let (_, table) = http(&fixture, "GET /v1/tables/flights", "", "");
    assert_eq!(json(&table)["rows"], 50);
    assert_eq!(json(&table)["columns"][0]["name"], "carrier");
    let (_, versions) = http(&fixture, "GET /v1/tables/words/versions", "", "");
    assert_eq!(json(&versions)["versions"][0]["serving"], true);
    let row = |key: &str| http(&fixture, &format!("GET /v1/tables/{key}"), "", "");
    assert_eq!(
        row("flights/rows/7").1,
        r#"{"carrier":"UA","delay":20,"note":null}"#
    );
    assert_eq!(row("words/rows/k0001").1, "\"value 1\"");
    assert_eq!(row("lists/rows/3").1, "[0,1,2]");
    assert_eq!(row("words/rows/x%2Fy").0, 404);
    assert_eq!(row("nosuch/rows/x").0, 404);
    assert_eq!(row("nosuch").0, 404);
    assert_eq!(row("..%2f..%2fetc/versions").0, 400);
    assert_eq!(http(&fixture, "GET /nothing", "", "").0, 404);
    assert_eq!(http(&fixture, "DELETE /v1/tables", "", "").0, 405);
}

#[test]
fn keys_may_hold_slashes_and_values_need_not_be_text() {
    let mut fixture = Fixture::store();
    let long = vec![0xfe; MAX_KEY_BYTES];
    let rows = vec![
        (b"a/b c".to_vec(), b"x".to_vec()),
        (b"raw".to_vec(), vec![0xff, 0]),
        (b"\x00/\xff%".to_vec(), b"binary".to_vec()),
        (long, b"long".to_vec()),
    ];
    fixture.push("t", Order::Hashed, bytes(), rows);
    fixture.start(|_| {});
    let row = |key: &str| http(&fixture, &format!("GET /v1/tables/t/rows/{key}"), "", "");
    assert_eq!(row("a/b%20c").1, "\"x\"");
    assert_eq!(row("raw").1, r#"{"base64":"/wA="}"#);
    assert_eq!(row("%00/%ff%25").1, "\"binary\"");
    assert_eq!(row("%00%2F%FF%").1, "\"binary\"");
    assert_eq!(row(&"%fe".repeat(MAX_KEY_BYTES)).1, "\"long\"");
    for (absent, shown) in [("", "\\\"\\\""), ("%00%ff", "0x00ff"), ("%ff%fe", "0xfffe")] {
        let (status, answer) = row(absent);
        assert_eq!(status, 404, "{absent}");
        assert!(answer.contains(&format!("has no key {shown}")), "{answer}");
    }
}

#[test]
fn swap_and_rollback_need_the_token() {
    let fixture = with_token();
    let row = |n: u32| (format!("k{n:04}").into_bytes(), b"second".to_vec());
    let second = fixture.push_only("words", Order::Hashed, bytes(), (0..9).map(row).collect());
    let body = format!("{{\"version\": {second}}}");
    let swap =
        |headers: &str, body: &str| http(&fixture, "POST /v1/tables/words/swap", headers, body);
    assert_eq!(swap("", &body).0, 401);
    assert_eq!(swap("Authorization: Bearer wrong\r\n", &body).0, 401);
    let right = format!("Authorization: Bearer {TOKEN}\r\n");
    assert_eq!(swap(&right, "{}").0, 400);
    assert_eq!(swap(&right, "{\"version\": 77}").0, 404);
    assert_eq!(swap(&right, &"x".repeat(100_000)).0, 413);
    let mut client = fixture.client();
    assert_eq!(client.text("GET words:k0001"), "value 1");
    let (status, answer) = swap(&right, &body);
    assert_eq!((status, json(&answer)["to"].as_u64()), (200, Some(second)));
    assert_eq!(client.text("GET words:k0001"), "second");
    let back = |body: &str| http(&fixture, "POST /v1/tables/words/rollback", &right, body);
    assert_eq!(back("{\"to\": 1}").0, 400);
    let (status, answer) = back("{\"from\": 1}");
    assert_eq!(status, 409);
    assert!(
        answer.contains("serves version 2, not version 1"),
        "{answer}"
    );
    assert_eq!(client.text("GET words:k0001"), "second");
    let (status, answer) = back("{\"from\": 2}");
    assert_eq!((status, json(&answer)["from"].as_u64()), (200, Some(2)));
    assert_eq!(client.text("GET words:k0001"), "value 1");
    for (body, words) in [
        ("", "from version 2 to version 1"),
        ("{\"from\": 1}", "cannot be rolled back"),
    ] {
        let (status, answer) = back(body);
        assert_eq!(status, 409);
        assert!(answer.contains(words), "{answer}");
    }
    assert_eq!(
        http(&fixture, "GET /v1/tables/words/swap", &right, "").0,
        405
    );
}

#[test]
fn without_a_token_file_changes_are_refused() {
    let fixture = Fixture::new();
    let answer = http(&fixture, "POST /v1/tables/words/rollback", "", "");
    assert_eq!(answer.0, 403);
    assert!(answer.1.contains("without a token file"));
}

#[test]
fn requests_from_pages_of_other_sites_are_refused() {
    let fixture = Fixture::new();
    let ask = |headers: &str| http(&fixture, "GET /v1/tables", headers, "").0;
    assert_eq!(ask("Host: evil.example\r\n"), 421);
    assert_eq!(ask("Host: localhost:7380\r\n"), 200);
    assert_eq!(ask("Host: 127.0.0.1:7380\r\n"), 200);
    assert_eq!(ask("Host: [::1]:7380\r\n"), 200);
    assert_eq!(ask("Origin: http://evil.example\r\n"), 403);
    assert_eq!(ask("Origin: null\r\n"), 403);
    assert_eq!(ask("Origin: http://localhost:7380\r\n"), 200);
}

#[test]
fn users_of_the_server_may_use_http() {
    let mut fixture = Fixture::store();
    fixture.push_usual();
    let users = format!(
        r#"{{"users":[{{"name":"u","password_sha256":"{HASH}","tables":["words"],"verbs":["read"]}}]}}"#
    );
    let users = fixture.file("users.json", &users);
    fixture.start(|config| config.users = Some(users));
    assert_eq!(http(&fixture, "GET /health", "", "").0, 200);
    assert_eq!(http(&fixture, "GET /v1/tables", "", "").0, 401);
    assert_eq!(http(&fixture, "GET /metrics", "", "").0, 401);
    // u:password
    let basic = "Authorization: Basic dTpwYXNzd29yZA==\r\n";
    let (_, tables) = http(&fixture, "GET /v1/tables", basic, "");
    assert_eq!(json(&tables)["tables"].as_array().expect("a list").len(), 1);
    assert_eq!(
        http(&fixture, "GET /v1/tables/words/rows/k0001", basic, "").0,
        200
    );
    assert_eq!(
        http(&fixture, "GET /v1/tables/log/rows/k0001", basic, "").0,
        403
    );
    assert_eq!(http(&fixture, "GET /v1/tables/nosuch", basic, "").0, 403);
}

#[test]
fn metrics_count_the_served_commands() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    for _ in 0..10 {
        client.text("GET words:k0001");
    }
    client.text("GET nosuch:1");
    client.text("HGET words:k0001 x");
    let (_, text) = http(&fixture, "GET /metrics", "", "");
    for line in [
        "forebay_command_seconds_count{table=\"words\",command=\"get\"} 10",
        "forebay_command_seconds_bucket{table=\"words\",command=\"get\",le=\"+Inf\"} 10",
        "forebay_command_errors_total{table=\"words\",command=\"hget\"} 1",
        "forebay_command_errors_total{table=\"\",command=\"get\"} 1",
        "forebay_table_version{table=\"words\"} 1",
        "forebay_table_rows{table=\"words\"} 1000",
        "forebay_connections 1",
        "# TYPE forebay_command_seconds histogram",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    assert!(!text.contains("nosuch"), "unknown tables make no labels");
}

#[test]
fn a_header_that_does_not_end_is_refused() {
    let mut fixture = Fixture::store();
    fixture.start(|config| config.limits.http_header_time = Duration::from_millis(200));
    let address = fixture.server().http_address().expect("HTTP");
    let mut stream = common::dial(address).expect("connected");
    stream
        .write_all(b"GET /health HTTP/1.1\r\nHost: loc")
        .expect("sent");
    let mut answer = Vec::new();
    stream
        .read_to_end(&mut answer)
        .expect("ended by the server");
    assert!(!answer.starts_with(b"HTTP/1.1 200"));
}

#[test]
fn a_request_for_versions_of_a_live_table_is_refused() {
    let mut fixture = Fixture::store();
    fixture.live("kv");
    let token = fixture.file("token", &format!("{TOKEN}\n"));
    fixture.start(|config| config.http_token = Some(token));
    let bearer = format!("Authorization: Bearer {TOKEN}\r\n");
    for (request, body) in [
        ("GET /v1/tables/kv/versions", ""),
        ("POST /v1/tables/kv/swap", "{\"version\": 1}"),
        ("POST /v1/tables/kv/rollback", ""),
    ] {
        let (status, text) = http(&fixture, request, &bearer, body);
        assert_eq!(status, 409, "{request}: {text}");
        assert!(
            text.contains("table kv is a live table"),
            "{request}: {text}"
        );
    }
}
