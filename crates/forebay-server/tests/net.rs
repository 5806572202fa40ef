//! Faulty connections: bytes arrive in pieces, connections break, clients do not read.
//!
//! The network is in memory. Random choices depend on a seed that a failure prints;
//! `FOREBAY_TEST_SEED=n` repeats it.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;

use crate::common::{Client, Fixture, Reply, bytes, encode};
use forebay_io::sim::{Rng, SimClient, SimDisk, SimNet, Wire};
use forebay_io::{Disk, OsDisk, Random, SystemClock, SystemRandom};
use forebay_run::Order;
use forebay_server::ServerConfig;

/// A server on a network in memory.
struct MemoryServer {
    fixture: Fixture,
    net: SimNet,
}

impl MemoryServer {
    /// On a disk in memory.
    fn new(change: impl FnOnce(&mut ServerConfig)) -> Self {
        Self::on(Arc::new(SimDisk::new()), change)
    }

    /// With the usual tables, one of large values, and the live table `live`.
    fn on(disk: Arc<dyn Disk>, change: impl FnOnce(&mut ServerConfig)) -> Self {
        let net = SimNet::new();
        let mut fixture = Fixture::store_on(disk, Arc::new(SystemClock));
        fixture.push_usual();
        let large = (0..3).map(|n| (vec![b'0' + n], vec![b'a' + n; 100_000]));
        fixture.push("large", Order::Hashed, bytes(), large.collect());
        fixture.live("live");
        fixture.start(|config| {
            config.net = Arc::new(net.clone());
            change(config);
        });
        Self { fixture, net }
    }

    fn address(&self) -> SocketAddr {
        self.fixture.server().resp_address()
    }

    fn connect(&self, wire: Wire) -> SimClient {
        self.net.connect(self.address(), wire).expect("connected")
    }

    fn client(&self) -> Client<SimClient> {
        Client::new(self.connect(Wire::default()))
    }

    /// All replies to bytes that were sent at once and are the last ones.
    fn answers(&self, wire: Wire, sent: &[u8]) -> Vec<u8> {
        let mut client = self.connect(wire);
        client.write_all(sent).expect("sent");
        client.close();
        let mut answers = Vec::new();
        client.read_to_end(&mut answers).expect("answers");
        answers
    }
}

fn seed() -> u64 {
    let named = std::env::var("FOREBAY_TEST_SEED").ok();
    let seed = named.map_or_else(
        || SystemRandom.next_u64() >> 16,
        |seed| seed.parse().expect("a number"),
    );
    eprintln!("repeat this with FOREBAY_TEST_SEED={seed}");
    seed
}

fn command(text: &str) -> Vec<u8> {
    let words: Vec<&[u8]> = text.split(' ').map(str::as_bytes).collect();
    encode(&words)
}

/// Commands of many kinds, some of them inline. Their answers do not depend on earlier writes.
fn mixture(rng: &mut Rng, count: usize) -> Vec<u8> {
    let mut sent = command("MSET live:a 1 live:b bb live:c ccc");
    for _ in 0..count {
        let n = rng.below(60);
        let key = ["a", "b", "c"][rng.below(3) as usize];
        let longest = [10, 100, 5000][rng.below(3) as usize];
        let long = "x".repeat(rng.below(longest) as usize);
        let text = match rng.below(27) {
            0..4 => format!("GET words:k{n:04}"),
            4 => format!("MGET words:k{n:04} log:k{n:04} live:{key} words:none"),
            5 => format!("HGETALL flights:{n}"),
            6 => format!("LRANGE lists:{n} 0 -1"),
            7 => format!("SET live:{key} {long}"),
            8 => format!("APPEND live:{key} {n}"),
            9 => format!("GETSET live:{key} {n}"),
            10 => format!("INCR live:{key}"),
            11 => format!("MSET live:a {n} live:b {n} live:c {long}"),
            12 => format!("DEL live:a live:{key}"),
            13 => format!("GET live:{key}"),
            14 => "MULTI".to_owned(),
            15 | 24..27 => "EXEC".to_owned(),
            16 => format!("NOSUCH {long}"),
            17 => format!("PING {long}"),
            18 => "GET nosuch:table".to_owned(),
            19 => format!("ECHO {long}"),
            20 => {
                // More than is answered at a time.
                sent.extend(command("GET large:1").repeat(2));
                format!("GET large:{}", n % 3)
            }
            _ => format!("GETRANGE large:{} 10 {n}", n % 3),
        };
        if rng.below(5) == 0 {
            sent.extend(format!("{text}\r\n").bytes());
        } else {
            sent.extend(command(&text));
        }
    }
    // Input that ends a connection, or a command that is never complete.
    sent.extend_from_slice(
        [
            &b"*1\r\n$-5\r\nPING\r\n"[..],
            b"*2\r\n$3\r\nGE",
            b"QUIT\r\nPING\r\n",
        ][rng.below(3) as usize],
    );
    sent
}

#[test]
fn commands_that_arrive_in_pieces_have_the_same_replies() {
    // On a real disk large values are waited for.
    let by_net = MemoryServer::on(Arc::new(OsDisk::default()), |_| {});
    let mut rng = Rng(seed());
    for round in 0..5 {
        let sent = mixture(&mut rng, 40);
        let at_once = by_net.answers(Wire::default(), &sent);
        let begins = String::from_utf8_lossy(&at_once[..at_once.len().min(600)]);
        assert!(
            begins.starts_with("+OK\r\n") && at_once.len() > 200,
            "{begins}"
        );
        for longest in [1, 2, 7, 100, 3000, 60_000] {
            let wire = Wire::default().in_pieces(rng.next_u64(), longest);
            let in_pieces = by_net.answers(wire, &sent);
            assert!(at_once == in_pieces, "round {round}, longest {longest}");
        }
    }
}

/// Commands on keys of their own, their replies, and the values of `a b c n d e` afterwards.
const STEPS: [(&str, &str, &str); 10] = [
    ("SET live:#a 1", "+OK\r\n", "1 - - - - -"),
    ("APPEND live:#a 2", ":2\r\n", "12 - - - - -"),
    (
        "MSET live:#a x live:#b y live:#c z",
        "+OK\r\n",
        "x y z - - -",
    ),
    ("INCR live:#n", ":1\r\n", "x y z 1 - -"),
    ("DEL live:#a live:#b live:#none", ":2\r\n", "- - z 1 - -"),
    ("MULTI", "+OK\r\n", "- - z 1 - -"),
    ("SET live:#b q", "+QUEUED\r\n", "- - z 1 - -"),
    ("SET live:#d r", "+QUEUED\r\n", "- - z 1 - -"),
    ("EXEC", "*2\r\n+OK\r\n+OK\r\n", "- q z 1 r -"),
    ("GETSET live:#e last", "$-1\r\n", "- q z 1 r last"),
];

#[test]
fn a_broken_connection_has_executed_commands_in_order_and_none_partly() {
    let by_net = MemoryServer::new(|config| config.threads = 1);
    let mut rng = Rng(seed());
    let mut other = by_net.client();
    let sent_of = |key: &str| -> Vec<Vec<u8>> {
        let steps = STEPS.iter();
        steps
            .map(|step| command(&step.0.replace('#', key)))
            .collect()
    };
    let length: usize = sent_of("{0000}").iter().map(Vec::len).sum();
    for breaks_after in 0..=length {
        // One partition has them all.
        let key = format!("{{{breaks_after:04}}}");
        let commands = sent_of(&key);
        let wire = Wire::default()
            .in_pieces(rng.next_u64(), 1 + rng.below(80))
            .breaking_after(breaks_after as u64);
        let mut client = by_net.connect(wire);
        // The connection may break before it begins.
        let _ = client.write_all(&commands.concat());
        let mut answers = Vec::new();
        let outcome = client.read_to_end(&mut answers);
        assert!(outcome.is_err(), "after {breaks_after} bytes");
        client.until_ended().expect("ended");

        let mut came = 0;
        let whole = commands.iter().take_while(|command| {
            came += command.len();
            came <= breaks_after
        });
        let whole = whole.count();
        let expected: String = STEPS[..whole].iter().map(|step| step.1).collect();
        let answers = String::from_utf8(answers).expect("text");
        assert_eq!(answers, expected, "after {breaks_after} bytes");
        let values = ["a", "b", "c", "n", "d", "e"].map(|name| format!(" live:{key}{name}"));
        let found = other.texts(&format!("MGET{}", values.concat()));
        let found = found.join(" ").replace("(null)", "-");
        let done = whole.checked_sub(1).map_or("- - - - - -", |at| STEPS[at].2);
        assert_eq!(found, done, "after {breaks_after} bytes");
    }
}

#[test]
fn a_client_that_does_not_read_blocks_no_other_client() {
    let by_net = MemoryServer::new(|config| config.threads = 1);
    let stalled = by_net.connect(Wire::default().with_room(1000));
    let mut stalled = Client::new(stalled);
    stalled.send(&command("GET words:k0001").repeat(2000));
    stalled.send(&command("SET live:after all"));
    stalled.stream.get_ref().until_full().expect("full");
    let mut other = by_net.client();
    for _ in 0..100 {
        assert_eq!(other.text("GET words:k0002"), "value 2");
        assert_eq!(other.text("SET live:other one"), "OK");
    }
    for _ in 0..2000 {
        assert_eq!(stalled.read(), Reply::Bulk(b"value 1".to_vec()));
    }
    assert_eq!(stalled.read(), Reply::Simple("OK".to_owned()));
    assert_eq!(other.text("GET live:after"), "all");
}

/// The value of one line of `/metrics`.
fn metric(by_net: &MemoryServer, line: &str) -> u64 {
    let address = by_net.fixture.server().http_address().expect("HTTP");
    let client = by_net.net.connect(address, Wire::default());
    let mut client = client.expect("connected");
    let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    client.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    client.read_to_string(&mut answer).expect("an answer");
    let found = answer.lines().find_map(|found| found.strip_prefix(line));
    found.expect(line).trim().parse().expect("a number")
}

#[test]
fn a_client_that_does_not_read_holds_one_reply_and_little_more() {
    for disk in [
        Arc::new(SimDisk::new()) as Arc<dyn Disk>,
        Arc::new(OsDisk::default()),
    ] {
        let by_net = MemoryServer::on(disk, |_| {});
        let mut stalled = Client::new(by_net.connect(Wire::default().with_room(1000)));
        let value = "b".repeat(100_000);
        assert_eq!(stalled.text(&format!("SET live:1 {value}")), "OK");
        stalled.send(&command("GET live:1").repeat(64));
        stalled.stream.get_ref().until_full().expect("full");
        let held = metric(&by_net, "forebay_reply_bytes{kind=\"held\"}");
        // 64 of them are 6.4 MB.
        assert!((100_000..1_000_000).contains(&held), "{held}");
        for _ in 0..64 {
            assert_eq!(stalled.read(), Reply::Bulk(vec![b'b'; 100_000]));
        }
        assert_eq!(stalled.text("PING"), "PONG");
    }
}

#[test]
fn beyond_the_reply_memory_the_largest_client_is_dropped_and_a_reading_one_is_not() {
    let by_net = MemoryServer::new(|config| config.limits.reply_memory_bytes = 3 << 20);
    let stall = |count: usize| {
        let mut client = Client::new(by_net.connect(Wire::default().with_room(1000)));
        client.send(&command(&format!("MGET{}", " large:1".repeat(count))));
        client.stream.get_ref().until_full().expect("full");
        client
    };
    let mut steady = stall(2);
    let most = stall(15);
    let (first, second) = (stall(7), stall(7));
    // The memory does not suffice for another client like these.
    most.stream.get_ref().until_ended().expect("dropped");
    for _ in 0..20 {
        let mut other = by_net.client();
        assert!(matches!(other.ask("GET large:2"), Reply::Bulk(_)));
    }
    let dropped = "forebay_connections_dropped_total{reason=\"reply_memory\"}";
    let counted = (0..1000).any(|_| metric(&by_net, dropped) > 0);
    assert!(counted && metric(&by_net, dropped) == 1);
    assert!(matches!(steady.read(), Reply::Array(values) if values.len() == 2));
    assert_eq!(steady.text("PING"), "PONG");
    drop((first, second));
}

#[test]
fn unread_http_answers_are_bounded_too() {
    let by_net = MemoryServer::new(|config| config.limits.reply_memory_bytes = 250_000);
    let address = by_net.fixture.server().http_address().expect("HTTP");
    let ask = |wire: Wire| {
        let mut client = by_net.net.connect(address, wire).expect("connected");
        let request =
            "GET /v1/tables/large/rows/1 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        client.write_all(request.as_bytes()).expect("sent");
        client
    };
    let mut answer = String::new();
    let mut stalled: Vec<_> = (0..2)
        .map(|_| ask(Wire::default().with_room(1000)))
        .collect();
    stalled
        .iter()
        .for_each(|client| client.until_full().expect("full"));
    ask(Wire::default())
        .read_to_string(&mut answer)
        .expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    assert!(
        answer.contains("{\"error\":\"answers that nobody has read"),
        "{answer}"
    );
    for client in &mut stalled {
        answer.clear();
        client.read_to_string(&mut answer).expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 200") && answer.len() > 100_000);
    }
    let served = (0..1000).any(|_| {
        answer.clear();
        ask(Wire::default())
            .read_to_string(&mut answer)
            .expect("an answer");
        answer.starts_with("HTTP/1.1 200")
    });
    assert!(served);
}

#[test]
fn a_port_continues_after_a_failed_accept() {
    let by_net = MemoryServer::new(|_| {});
    by_net.net.fail_accept(by_net.address(), 2);
    assert_eq!(by_net.client().text("PING"), "PONG");
}

#[test]
fn http_requests_may_come_in_single_bytes() {
    let by_net = MemoryServer::new(|_| {});
    let address = by_net.fixture.server().http_address().expect("HTTP");
    let wire = Wire::default().in_pieces(seed(), 1);
    let mut client = by_net.net.connect(address, wire).expect("connected");
    let request = "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    client.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    client.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[test]
fn a_port_in_use_is_named() {
    let by_net = MemoryServer::new(|_| {});
    let config = ServerConfig {
        resp: by_net.address(),
        http: None,
        net: Arc::new(by_net.net.clone()),
        ..ServerConfig::default()
    };
    let refused = forebay_server::Server::start(config, by_net.fixture.store.clone());
    let text = refused.expect_err("in use").to_string();
    assert!(text.contains(&by_net.address().to_string()), "{text}");
}
