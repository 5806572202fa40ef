//! Users, TLS, limits, and hostile clients.

use std::io::{Read, Write};
use std::time::Duration;

use crate::common::{self, Fixture, Reply, bytes, encode, tls_client};
use forebay_run::Order;
use forebay_server::{Server, ServerConfig, TlsFiles};

/// SHA-256 of "password".
const HASH: &str = "5e884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8";

fn with_users(change: impl FnOnce(&mut ServerConfig)) -> Fixture {
    let mut fixture = Fixture::store();
    fixture.push_usual();
    let users = format!(
        r#"{{"users": [
          {{"name": "default", "password_sha256": "{HASH}", "tables": ["*"], "verbs": ["read"]}},
          {{"name": "shop", "password_sha256": "{HASH}", "tables": ["wor*"], "verbs": ["read"]}}
        ]}}"#
    );
    let users = fixture.file("users.json", &users);
    fixture.start(|config| {
        config.users = Some(users);
        change(config);
    });
    fixture
}

#[test]
fn only_auth_is_allowed_before_auth() {
    let fixture = with_users(|_| {});
    let mut client = fixture.client();
    for command in [
        "GET words:k0001",
        "PING",
        "INFO",
        "CLIENT ID",
        "COMMAND",
        "NOSUCH",
        "MULTI",
    ] {
        assert_eq!(client.text(command), "-NOAUTH Authentication required.");
    }
    assert!(client.text("HELLO 3").starts_with("-NOAUTH"));
    assert!(client.text("AUTH wrong").starts_with("-WRONGPASS"));
    assert!(client.text("AUTH shop wrong").starts_with("-WRONGPASS"));
    assert!(
        client
            .text("HELLO 3 AUTH shop wrong")
            .starts_with("-WRONGPASS")
    );
    assert_eq!(client.text("AUTH password"), "OK");
    assert_eq!(client.text("GET words:k0001"), "value 1");
    assert_eq!(client.text("RESET"), "RESET");
    assert!(client.text("GET words:k0001").starts_with("-NOAUTH"));
}

#[test]
fn users_see_their_tables_only() {
    let fixture = with_users(|_| {});
    let mut client = fixture.client();
    assert!(matches!(
        client.ask("HELLO 3 AUTH shop password"),
        Reply::Map(_)
    ));
    assert_eq!(client.text("GET words:k0001"), "value 1");
    for command in [
        "GET log:k0001",
        "MGET words:k0001 log:k0001",
        "GET nosuch:1",
        "SET log:a b",
    ] {
        assert!(
            client.text(command).starts_with("-NOPERM user 'shop'"),
            "{command}"
        );
    }
    assert_eq!(client.text("DBSIZE"), "1000");
    assert!(!client.text("INFO keyspace").contains("log"));
    assert!(client.text("RANDOMKEY").starts_with("words:"));
    assert_eq!(client.text("ACL WHOAMI"), "shop");
}

#[test]
fn an_unauthenticated_client_gets_little_memory_and_time() {
    let fixture = with_users(|config| {
        config.limits.auth_time = Duration::from_millis(300);
    });
    let mut client = fixture.client();
    client.send(b"*2\r\n$3\r\nGET\r\n$20000\r\n");
    assert!(matches!(client.read(), Reply::Error(text) if text.contains("at most 16384 bytes")));
    assert!(client.try_read().is_err());
    let mut client = fixture.client();
    client.send(b"*100\r\n");
    assert!(matches!(client.read(), Reply::Error(text) if text.contains("at most 16 arguments")));
    let mut silent = fixture.connect();
    assert_eq!(
        silent.read(&mut [0; 1]).unwrap_or(0),
        0,
        "ended by the deadline"
    );
    let mut client = fixture.client();
    assert_eq!(client.text("AUTH password"), "OK");
    std::thread::scope(|scope| {
        // After the deadline the authenticated connection is still open.
        scope
            .spawn(|| fixture.connect().read(&mut [0; 1]).unwrap_or(0))
            .join()
            .expect("joined");
    });
    assert_eq!(client.text("PING"), "PONG");
}

#[test]
fn browsers_are_not_answered() {
    let fixture = Fixture::new();
    for request in [
        "POST / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\n\r\n",
        "Host: x\r\n\r\n",
    ] {
        let mut stream = fixture.connect();
        stream.write_all(request.as_bytes()).expect("sent");
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert_eq!(answer, b"", "{request}");
    }
}

#[test]
fn broken_protocol_ends_the_connection_with_a_reason() {
    let fixture = Fixture::new();
    for (bytes, reason) in [
        (&b"*1\r\n:1\r\n"[..], "expected '$', got ':'"),
        (b"*2\r\n$3\r\nGET\r\n$999999999\r\n", "invalid bulk length"),
        (b"*2\r\n$3\r\nGET\r\n$-1\r\n", "invalid bulk length"),
        (b"*9999999\r\n", "invalid multibulk length"),
        (b"PING \"x\r\n", "unbalanced quotes"),
    ] {
        let mut client = fixture.client();
        client.send(&encode(&[b"PING"]));
        client.send(bytes);
        assert_eq!(client.read(), Reply::Simple("PONG".to_owned()));
        assert!(matches!(client.read(), Reply::Error(text) if text.contains(reason)));
        assert!(client.try_read().is_err());
    }
}

#[test]
fn a_value_that_is_too_long_is_refused_and_the_connection_continues() {
    let mut fixture = Fixture::store();
    fixture.start(|config| config.limits.request.bulk_bytes = 1000);
    let mut client = fixture.client();
    let long = [b'x'; 1001];
    client.send(&encode(&[b"PING"]));
    client.send(&encode(&[b"SET", b"t:a", &long, b"NX"]));
    client.send(&encode(&[b"PING"]));
    let pong = || Reply::Simple("PONG".to_owned());
    let is_refused = |reply: Reply| match reply {
        Reply::Error(text) => text.contains("at most 1000 bytes"),
        _ => false,
    };
    assert_eq!(client.read(), pong());
    assert!(is_refused(client.read()));
    assert_eq!(client.read(), pong());
    client.send(&encode(&[b"MULTI"]));
    client.send(&encode(&[b"SET", b"t:a", &long]));
    client.send(&encode(&[b"EXEC"]));
    assert_eq!(client.read(), Reply::Simple("OK".to_owned()));
    assert!(is_refused(client.read()));
    assert!(matches!(client.read(), Reply::Error(text) if text.starts_with("EXECABORT")));
    assert_eq!(client.text("PING"), "PONG");
}

#[test]
fn no_more_connections_than_allowed() {
    let mut fixture = Fixture::store();
    fixture.start(|config| config.limits.connections = 2);
    let mut clients = [fixture.client(), fixture.client()];
    clients
        .iter_mut()
        .for_each(|client| assert_eq!(client.text("PING"), "PONG"));
    let mut third = fixture.client();
    assert!(matches!(third.try_read(), Ok(Reply::Error(text)) if text.contains("max number")));
    drop(clients);
    // The slots become free as soon as the server notices.
    let again = (0..200).any(|_| {
        let mut client = fixture.client();
        client.send(&encode(&[b"PING"]));
        matches!(client.try_read(), Ok(Reply::Simple(_)))
    });
    assert!(again);
}

#[test]
fn the_limit_of_open_files_leaves_room_for_files() {
    let mut fixture = Fixture::store();
    // The process has many more files open than this server's configured limit.
    fixture.start(|config| config.open_files = Some(400));
    let mut client = fixture.client();
    let info = client.text("INFO clients");
    let most = info
        .lines()
        .find_map(|line| line.strip_prefix("maxclients:"));
    let most: usize = most.expect("said").trim().parse().expect("a number");
    assert!((16..=400 - 100 - 25 - 25).contains(&most), "{most}");
    assert_eq!(client.texts("CONFIG GET maxclients")[1], most.to_string());
    let (_, page) = common::http(&fixture, "GET /metrics", "", "");
    assert!(
        page.contains(&format!("forebay_max_connections {most}\n")),
        "{page}"
    );
    // The count is repeated from time to time, and other tests open and close files.
    let (mut others, mut refused) = (Vec::new(), None);
    while others.len() < 400 && refused.is_none() {
        let mut other = fixture.client();
        other.send(&encode(&[b"PING"]));
        match other.try_read().expect("an answer") {
            Reply::Error(text) => refused = Some(text),
            _ => others.push(other),
        }
    }
    assert!((15..250).contains(&others.len()), "{}", others.len());
    assert_eq!(
        refused.as_deref(),
        Some("ERR max number of clients reached")
    );
    assert_eq!(client.text("PING"), "PONG");
    assert!(client.text("INFO stats").contains("rejected_connections:1"));
}

#[test]
fn too_few_open_files_are_refused_at_the_start() {
    let fixture = Fixture::store();
    let config = ServerConfig {
        resp: "127.0.0.1:0".parse().expect("an address"),
        http: None,
        threads: 2,
        open_files: Some(60),
        ..ServerConfig::default()
    };
    let refused = Server::start(config, fixture.store.clone()).expect_err("refused");
    let text = refused.to_string();
    assert!(text.contains("limit of open files is 60"), "{text}");
    assert!(text.contains("ulimit -n 96"), "{text}");
}

#[test]
fn slow_readers_and_idle_clients_are_dropped_and_others_are_not() {
    let mut fixture = Fixture::store();
    let large = vec![(b"k".to_vec(), vec![b'x'; 1 << 20])];
    fixture.push("large", Order::Hashed, bytes(), large);
    fixture.start(|config| {
        config.limits.slow_reader_time = Duration::from_millis(300);
        config.limits.idle_time = Some(Duration::from_millis(1500));
    });
    let mut slow = fixture.connect();
    slow.write_all(&encode(&[b"GET", b"large:k"]).repeat(200))
        .expect("sent");
    let mut idle = fixture.connect();
    // Both connections end by themselves while the busy client continues.
    let mut busy = fixture.client();
    let ended = common::spawn(move || idle.read(&mut [0; 1]).unwrap_or(0));
    while !ended.is_finished() {
        assert_eq!(busy.text("STRLEN large:k"), (1 << 20).to_string());
    }
    let (status, metrics) = common::http(&fixture, "GET /metrics", "", "");
    assert_eq!(status, 200);
    assert!(metrics.contains("forebay_connections_dropped_total{reason=\"slow_reader\"} 1"));
    assert!(metrics.contains("forebay_connections_dropped_total{reason=\"idle\"} 1"));
    let mut received = Vec::new();
    let _ = slow.read_to_end(&mut received);
    assert!(received.len() < 200 << 20);
    assert_eq!(busy.text("PING"), "PONG");
}

#[test]
fn tls_with_users_on_any_address() {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("made");
    let files = Fixture::store();
    let tls = TlsFiles {
        certificate: files.file("cert.pem", &made.cert.pem()),
        key: files.file("key.pem", &made.signing_key.serialize_pem()),
        client_ca: None,
    };
    let fixture = with_users(|config| {
        config.tls = Some(tls);
        // Allowed now; the test still connects by the loopback address.
        config.resp = "0.0.0.0:0".parse().expect("an address");
        config.limits.auth_time = Duration::from_secs(2);
    });
    let port = fixture.server().resp_address().port();
    let mut plain = common::dial(("127.0.0.1", port)).expect("connected");
    plain.write_all(&encode(&[b"PING"])).expect("sent");
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"+"), "no RESP in the clear");

    let mut client = tls_client(fixture.connect(), &made.cert, None);
    assert_eq!(client.text("AUTH shop password"), "OK");
    let many = encode(&[b"GET", b"words:k0042"]).repeat(1000);
    client.send(&many);
    for _ in 0..1000 {
        assert_eq!(client.read(), Reply::Bulk(b"value 42".to_vec()));
    }
}

#[test]
fn an_excess_tls_connection_gets_no_unencrypted_reply() {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("made");
    let files = Fixture::store();
    let tls = TlsFiles {
        certificate: files.file("cert.pem", &made.cert.pem()),
        key: files.file("key.pem", &made.signing_key.serialize_pem()),
        client_ca: None,
    };
    let mut fixture = Fixture::store();
    fixture.start(|config| {
        config.tls = Some(tls);
        config.limits.connections = 1;
    });
    let mut first = tls_client(fixture.connect(), &made.cert, None);
    assert_eq!(first.text("PING"), "PONG");
    let mut second = fixture.connect();
    let mut answer = Vec::new();
    second.read_to_end(&mut answer).expect("closed");
    assert_eq!(answer, b"");
    assert_eq!(first.text("PING"), "PONG");
}

#[test]
fn other_addresses_need_tls_and_users() {
    let fixture = Fixture::store();
    let config = ServerConfig {
        resp: "0.0.0.0:0".parse().expect("an address"),
        ..ServerConfig::default()
    };
    let refused = Server::start(config, fixture.store.clone()).expect_err("refused");
    assert!(
        refused
            .to_string()
            .contains("without a TLS certificate and key and a users file")
    );
}
