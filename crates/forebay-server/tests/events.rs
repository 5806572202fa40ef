//! The events of a server by HTTP: the events that each user sees, and how a reader resumes.

use std::io::{BufRead, BufReader, Write};
use std::sync::Arc;

use forebay_server::{EventDraft, EventRing};
use serde_json::{Map, Value};

use crate::common::{Fixture, PASSWORD_HASH, dial, http};

const FIRST: u64 = 1000;

fn event(message: &str, table: Option<&str>) -> EventDraft {
    let fields = table.map(|table| ("table".to_owned(), Value::from(table)));
    EventDraft {
        unix_ms: 1,
        level: "INFO",
        message: message.to_owned(),
        fields: Map::from_iter(fields),
    }
}

/// A server with three events, one of each table and one of none.
fn served(users: Option<&str>) -> (Fixture, Arc<EventRing>) {
    let mut fixture = Fixture::store();
    fixture.push_usual();
    let users = users.map(|users| fixture.file("users.json", users));
    let ring = Arc::new(EventRing::new(FIRST));
    let events = Arc::clone(&ring);
    fixture.start(|config| (config.users, config.events) = (users, events));
    ring.push(event("swapped", Some("words")));
    ring.push(event("swapped", Some("log")));
    ring.push(event("a node is down", None));
    (fixture, ring)
}

fn asked(fixture: &Fixture, query: &str, headers: &str) -> Value {
    let request = format!("GET /v1/events{query}");
    let (status, body) = http(fixture, &request, headers, "");
    assert_eq!(status, 200, "{body}");
    serde_json::from_str(&body).expect("JSON")
}

fn numbers(answer: &Value) -> Vec<u64> {
    let events = answer["events"].as_array().expect("a list").iter();
    events
        .filter_map(|event| event["sequence"].as_u64())
        .collect()
}

#[test]
fn a_reader_asks_for_the_events_after_its_last_one() {
    let (fixture, ring) = served(None);
    let all = asked(&fixture, "", "");
    assert_eq!(numbers(&all), [1000, 1001, 1002]);
    assert_eq!(
        (&all["last"], &all["gap"]),
        (&Value::from(1002), &Value::from(false))
    );
    assert_eq!(all["events"][0]["message"], "swapped");
    assert_eq!(all["events"][0]["fields"]["table"], "words");
    assert_eq!(numbers(&asked(&fixture, "?after=1001", "")), [1002]);
    assert_eq!(numbers(&asked(&fixture, "?table=log", "")), [1001]);
    let none = asked(&fixture, "?table=log&after=1001", "");
    assert_eq!(
        (numbers(&none), &none["last"]),
        (vec![], &Value::from(1002))
    );
    // From a previous process.
    assert_eq!(asked(&fixture, "?after=7", "")["gap"], true);
    for _ in 0..2500 {
        ring.push(event("swapped", Some("words")));
    }
    let later = asked(&fixture, "?after=1002", "");
    assert_eq!(
        (&later["gap"], numbers(&later).len()),
        (&Value::from(true), 2000)
    );
    for wrong in ["?after=x", "?since=1h"] {
        let (status, body) = http(&fixture, &format!("GET /v1/events{wrong}"), "", "");
        assert_eq!(status, 400, "{body}");
    }
}

#[test]
fn users_see_the_events_of_their_tables_only() {
    let user = |name: &str, tables: &str| {
        format!(
            r#"{{"name":"{name}","password_sha256":"{PASSWORD_HASH}","tables":["{tables}"],"verbs":["read"]}}"#
        )
    };
    let users = format!(
        r#"{{"users":[{},{}]}}"#,
        user("u", "words"),
        user("all", "*")
    );
    let (fixture, _) = served(Some(&users));
    assert_eq!(http(&fixture, "GET /v1/events", "", "").0, 401);
    // u:password, all:password
    let own = "Authorization: Basic dTpwYXNzd29yZA==\r\n";
    let all = "Authorization: Basic YWxsOnBhc3N3b3Jk\r\n";
    assert_eq!(numbers(&asked(&fixture, "", own)), [1000]);
    assert_eq!(numbers(&asked(&fixture, "", all)), [1000, 1001, 1002]);
    assert_eq!(http(&fixture, "GET /v1/events?table=log", own, "").0, 403);
}

/// A stream of events.
struct Stream(BufReader<std::net::TcpStream>);

impl Stream {
    fn open(fixture: &Fixture, headers: &str) -> Self {
        let address = fixture.server().http_address().expect("HTTP");
        let mut stream = dial(address).expect("connected");
        let request = format!(
            "GET /v1/events HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n{headers}\r\n"
        );
        stream.write_all(request.as_bytes()).expect("sent");
        Self(BufReader::new(stream))
    }

    /// The next line of an event.
    fn next(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert!(self.0.read_line(&mut line).expect("a line") > 0, "it ended");
            if ["id: ", "event: ", "data: ", "content-type"]
                .iter()
                .any(|begin| line.starts_with(begin))
            {
                return line.trim_end().to_owned();
            }
        }
    }
}

#[test]
fn a_stream_continues_and_resumes_after_its_last_event() {
    let (fixture, ring) = served(None);
    let mut stream = Stream::open(&fixture, "");
    assert_eq!(stream.next(), "content-type: text/event-stream");
    for number in FIRST..FIRST + 3 {
        assert_eq!(stream.next(), format!("id: {number}"));
        assert!(stream.next().contains("\"message\":"));
    }
    ring.push(event("later", None));
    assert_eq!(stream.next(), "id: 1003");
    assert!(stream.next().contains("later"));
    drop(stream);
    let mut resumed = Stream::open(&fixture, "Last-Event-ID: 1002\r\n");
    resumed.next();
    assert_eq!(resumed.next(), "id: 1003");
    // A gap is reported.
    let mut late = Stream::open(&fixture, "Last-Event-ID: 3\r\n");
    late.next();
    assert_eq!(late.next(), "event: gap");
    assert_eq!(late.next(), "data: {\"first\":1000}");
    assert_eq!(late.next(), "id: 1000");
}
