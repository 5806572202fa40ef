//! Shared parts of the server's tests: a store with small tables, and a plain client.

pub mod cluster;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use forebay_engine::live::{Budget, LiveDraft};
use forebay_engine::{
    Bound, ManifestDraft, Partition, PushOptions, RunRef, Store, TableName, ValueKind,
};
use forebay_io::{Clock, Disk, OsDisk, SystemClock, SystemRandom};
use forebay_run::hash::{KeyHasher, slot_of};
use forebay_run::operation::Operation;
use forebay_run::row::{Column, Datum, Kind, ListWriter, RowWriter, Schema};
use forebay_run::{Compression, Order, RunOptions, RunWriter};
use forebay_server::{Handle, Server, ServerConfig};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

pub type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// A server with a store of its own, on free ports.
pub struct Fixture {
    pub dir: tempfile::TempDir,
    pub store: Store,
    pub server: Option<Handle>,
}

impl Fixture {
    pub fn store() -> Self {
        Self::store_by(Arc::new(SystemClock))
    }

    pub fn store_by(clock: Arc<dyn Clock>) -> Self {
        Self::store_on(Arc::new(OsDisk::default()), clock)
    }

    pub fn store_on(disk: Arc<dyn Disk>, clock: Arc<dyn Clock>) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let root = dir.path().join("store");
        let store = Store::open_or_create(disk, clock, Arc::new(SystemRandom), &root);
        Self {
            dir,
            store: store.expect("a store"),
            server: None,
        }
    }

    /// A server with the usual tables.
    pub fn new() -> Self {
        let mut fixture = Self::store();
        fixture.push_usual();
        fixture.start(|_| {});
        fixture
    }

    pub fn push_usual(&self) {
        let text = |n: u32| {
            (
                format!("k{n:04}").into_bytes(),
                format!("value {n}").into_bytes(),
            )
        };
        self.push(
            "words",
            Order::Hashed,
            bytes(),
            (0..1000).map(text).collect(),
        );
        self.push("log", Order::Ordered, bytes(), (0..300).map(text).collect());
        let (value, rows) = flights();
        self.push("flights", Order::Hashed, value, rows);
        let (value, rows) = lists();
        self.push("lists", Order::Hashed, value, rows);
    }

    pub fn start(&mut self, change: impl FnOnce(&mut ServerConfig)) {
        let local = |port: u16| std::net::SocketAddr::from(([127, 0, 0, 1], port));
        let mut config = ServerConfig {
            resp: local(0),
            http: Some(local(0)),
            threads: 2,
            ..ServerConfig::default()
        };
        change(&mut config);
        self.server = Some(Server::start(config, self.store.clone()).expect("a server"));
    }

    /// Writes a file, replacing an old one.
    pub fn file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        // There may be none.
        let _ = self.store.disk().remove(&path);
        let mut file = self.store.disk().create(&path).expect("created");
        file.write_all(content.as_bytes()).expect("written");
        file.sync().expect("synced");
        path
    }

    pub fn server(&self) -> &Handle {
        self.server.as_ref().expect("started")
    }

    pub fn client(&self) -> Client<TcpStream> {
        Client::new(self.connect())
    }

    pub fn connect(&self) -> TcpStream {
        dial(self.server().resp_address()).expect("connected")
    }

    /// A live table of bytes by hashed keys, before the server starts.
    pub fn live(&self, table: &str) {
        self.live_as(table, LiveDraft::hashed());
    }

    pub fn live_as(&self, table: &str, draft: LiveDraft) {
        let name = TableName::new(table).expect("a name");
        let made = self.store.create_live(&name, draft, &Budget::new(1 << 20));
        drop(made.expect("a live table"));
    }

    /// Pushes a version and lets it serve.
    pub fn push(&self, table: &str, order: Order, value: (ValueKind, Schema), rows: Pairs) -> u64 {
        let name = TableName::new(table).expect("a name");
        let version = self.push_only(table, order, value, rows);
        self.store
            .table(&name)
            .and_then(|table| table.swap(version))
            .expect("swapped");
        version
    }

    pub fn push_only(
        &self,
        table: &str,
        order: Order,
        value: (ValueKind, Schema),
        rows: Pairs,
    ) -> u64 {
        let lower = match order {
            Order::Hashed => Bound::Slot(0),
            Order::Ordered => Bound::Key(Vec::new()),
        };
        self.push_partitioned(table, order, value, rows, vec![lower])
    }

    /// Pushes a version whose partitions begin at these keys.
    pub fn push_partitioned(
        &self,
        table: &str,
        order: Order,
        value: (ValueKind, Schema),
        rows: Pairs,
        lowers: Vec<Bound>,
    ) -> u64 {
        push_partitioned(&self.store, table, order, value, (rows, lowers))
    }
}

/// Pushes a version whose partitions begin at these keys, and does not let it serve.
pub fn push_partitioned(
    store: &Store,
    table: &str,
    order: Order,
    (value, schema): (ValueKind, Schema),
    (rows, lowers): (Pairs, Vec<Bound>),
) -> u64 {
    let name = TableName::new(table).expect("a name");
    let push = store
        .begin_push(&name, PushOptions::default())
        .expect("begun");
    let prefix = name.wire_prefix();
    let hasher = KeyHasher::new(&prefix);
    let hash = |key: &[u8]| {
        if order == Order::Hashed {
            hasher.hash64(key)
        } else {
            0
        }
    };
    let mut rows: Vec<_> = rows.into_iter().map(|(k, v)| (hash(&k), k, v)).collect();
    rows.sort();
    let longest_key = rows.iter().map(|(_, key, _)| key.len()).max();
    let options =
        RunOptions::new(order, Compression::None, &prefix).for_keys_of(longest_key.unwrap_or(0));
    let partition_of = |hash: u64, key: &[u8]| {
        let begun = lowers.iter().filter(|lower| match lower {
            Bound::Slot(slot) => *slot <= slot_of(hash),
            Bound::Key(lower) => lower.as_slice() <= key,
        });
        begun.count() - 1
    };
    let write = |partition: usize| {
        let run = push.new_run(partition);
        let mut writer =
            RunWriter::create(store.disk(), &run.path, options.clone()).expect("a writer");
        let of_it = |row: &&(u64, Vec<u8>, Vec<u8>)| partition_of(row.0, &row.1) == partition;
        for (hash, key, value) in rows.iter().filter(of_it) {
            let written = writer.push(*hash, key, Operation::Update(value));
            written.expect("written");
        }
        RunRef {
            id: run.id,
            summary: writer.finish().expect("finished"),
            operations: None,
        }
    };
    let runs: Vec<Vec<RunRef>> = (0..lowers.len()).map(|at| vec![write(at)]).collect();
    let draft = ManifestDraft {
        order,
        value,
        schema,
        key: "{key}".to_owned(),
        delta: None,
        ttl: None,
        onto: None,
        partitions: Partition::side_by_side(lowers.into_iter().zip(runs)),
        stats: Vec::new(),
        source: "a test".to_owned(),
    };
    let manifest = push.manifest(draft).expect("a manifest");
    push.commit(manifest).expect("committed")
}

pub fn bytes() -> (ValueKind, Schema) {
    let schema = Schema::new(vec![Column::new("value", Kind::Binary, false)]);
    (
        ValueKind::Bytes {
            column: "value".to_owned(),
        },
        schema,
    )
}

/// Rows of three columns: `carrier`, `delay` (null where it is 13), `note`.
pub fn flights() -> ((ValueKind, Schema), Pairs) {
    let schema = Schema::new(vec![
        Column::new("carrier", Kind::Text, false),
        Column::new("delay", Kind::Int64, true),
        Column::new("note", Kind::Text, true),
    ]);
    let mut writer = RowWriter::new(&schema);
    let row = |n: i64| {
        writer.begin();
        writer.bytes(0, if n % 2 == 0 { b"AA" } else { b"UA" });
        if n != 13 {
            writer.signed(1, n * 10 - 50);
        }
        if n % 3 == 0 {
            writer.bytes(2, format!("n\"{n}").as_bytes());
        }
        let mut packed = Vec::new();
        writer.finish(&mut packed).expect("a row");
        (n.to_string().into_bytes(), packed)
    };
    let rows = (0..50).map(row).collect();
    ((ValueKind::Row, schema), rows)
}

/// Lists of integers: key n holds 0..n, the last one null when n is 5.
pub fn lists() -> ((ValueKind, Schema), Pairs) {
    let item = Kind::Int64;
    let mut writer = ListWriter::new(&item);
    let mut rows = Vec::new();
    for n in 0..20i64 {
        writer.begin();
        for value in 0..n {
            if n == 5 && value == 4 {
                writer.null();
            } else {
                writer.datum(&item, &Datum::Int(value)).expect("an item");
            }
        }
        let mut packed = Vec::new();
        writer.finish(&mut packed).expect("a list");
        rows.push((n.to_string().into_bytes(), packed));
    }
    let schema = Schema::new(vec![Column::new("items", Kind::Int64, true)]);
    (
        (
            ValueKind::List {
                column: "items".to_owned(),
                item,
            },
            schema,
        ),
        rows,
    )
}

/// A reply, as it was received.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    Simple(String),
    Error(String),
    Int(i64),
    Bulk(Vec<u8>),
    Null,
    Array(Vec<Reply>),
    Map(Vec<(Reply, Reply)>),
    Set(Vec<Reply>),
    Verbatim(String),
}

/// A minimal client.
pub struct Client<S> {
    pub stream: BufReader<S>,
}

impl<S: Read + Write> Client<S> {
    pub fn new(stream: S) -> Self {
        Self {
            stream: BufReader::new(stream),
        }
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.get_mut().write_all(bytes).expect("sent");
    }

    /// The reply to one command, its words separated by blanks.
    pub fn ask(&mut self, command: &str) -> Reply {
        let words: Vec<&[u8]> = command.split(' ').map(str::as_bytes).collect();
        self.send(&encode(&words));
        self.read()
    }

    pub fn text(&mut self, command: &str) -> String {
        match self.ask(command) {
            Reply::Simple(text) | Reply::Verbatim(text) => text,
            Reply::Bulk(bytes) => String::from_utf8(bytes).expect("text"),
            Reply::Error(text) => format!("-{text}"),
            Reply::Int(value) => value.to_string(),
            Reply::Null => "(null)".to_owned(),
            other => panic!("{command}: {other:?}"),
        }
    }

    /// The texts of an array or a set.
    pub fn texts(&mut self, command: &str) -> Vec<String> {
        match self.ask(command) {
            Reply::Array(items) | Reply::Set(items) => items.iter().map(text_of).collect(),
            other => panic!("{command}: {other:?}"),
        }
    }

    pub fn try_read(&mut self) -> std::io::Result<Reply> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let (kind, rest) = line.trim_end().split_at(1);
        let count = || rest.parse::<i64>().expect("a number");
        Ok(match kind {
            "+" => Reply::Simple(rest.to_owned()),
            "-" => Reply::Error(rest.to_owned()),
            ":" => Reply::Int(count()),
            "_" => Reply::Null,
            "$" | "=" if count() >= 0 => {
                let mut bytes = vec![0; count() as usize + 2];
                self.stream.read_exact(&mut bytes)?;
                bytes.truncate(count() as usize);
                if kind == "=" {
                    Reply::Verbatim(String::from_utf8_lossy(&bytes[4..]).into_owned())
                } else {
                    Reply::Bulk(bytes)
                }
            }
            "*" if count() >= 0 => Reply::Array(self.items(count())?),
            "~" => Reply::Set(self.items(count())?),
            "%" => {
                let items = self.items(count() * 2)?;
                Reply::Map(
                    items
                        .chunks(2)
                        .map(|p| (p[0].clone(), p[1].clone()))
                        .collect(),
                )
            }
            "$" | "*" => Reply::Null,
            other => panic!("an unknown reply: {other}{rest}"),
        })
    }

    fn items(&mut self, count: i64) -> std::io::Result<Vec<Reply>> {
        (0..count).map(|_| self.try_read()).collect()
    }

    pub fn read(&mut self) -> Reply {
        self.try_read().expect("a reply")
    }
}

/// A client that trusts one certificate, and may show a certificate of its own.
pub fn tls_client(
    stream: TcpStream,
    trusted: &rcgen::Certificate,
    own: Option<(CertificateDer<'static>, PrivateKeyDer<'static>)>,
) -> Client<StreamOwned<ClientConnection, TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.der().clone()).expect("added");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots);
    let config = match own {
        Some((certificate, key)) => config
            .with_client_auth_cert(vec![certificate], key)
            .expect("a certificate"),
        None => config.with_no_client_auth(),
    };
    let name = ServerName::try_from("localhost").expect("a name");
    let connection = ClientConnection::new(Arc::new(config), name).expect("a client");
    Client::new(StreamOwned::new(connection, stream))
}

pub fn text_of(reply: &Reply) -> String {
    match reply {
        Reply::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Reply::Simple(text) | Reply::Verbatim(text) | Reply::Error(text) => text.clone(),
        Reply::Int(value) => value.to_string(),
        Reply::Null => "(null)".to_owned(),
        other => format!("{other:?}"),
    }
}

pub fn encode(words: &[&[u8]]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        out.extend(format!("${}\r\n", word.len()).bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
    out
}

/// A whole HTTP answer: its status and body.
pub fn http(fixture: &Fixture, request: &str, headers: &str, body: &str) -> (u16, String) {
    let address = fixture.server().http_address().expect("HTTP");
    let mut stream = dial(address).expect("connected");
    let host = if headers.to_lowercase().starts_with("host:") {
        ""
    } else {
        "Host: localhost\r\n"
    };
    let text = format!(
        "{request} HTTP/1.1\r\n{host}{headers}Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(text.as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let status = answer
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .expect("a status");
    let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
    (status, body.to_owned())
}

/// Connects to a real port. Slow answers fail.
#[allow(clippy::disallowed_methods)]
pub fn dial(address: impl ToSocketAddrs) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    Ok(stream)
}

/// A separate thread of a test.
pub fn spawn<T: Send + 'static>(
    run: impl FnOnce() -> T + Send + 'static,
) -> std::thread::JoinHandle<T> {
    forebay_io::start_thread("test", run).expect("a thread")
}

/// SHA-256 of "password".
pub const PASSWORD_HASH: &str = "5e884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8";

/// Live tables `kv` and `own`; an administrator `ops`, and `shop`, which has `own` alone.
pub fn with_users() -> Fixture {
    let mut fixture = Fixture::store();
    fixture.live("kv");
    fixture.live("own");
    let users = format!(
        r#"{{"users": [
          {{"name": "ops", "password_sha256": "{PASSWORD_HASH}", "tables": ["*"], "verbs": ["read", "write", "admin"]}},
          {{"name": "shop", "password_sha256": "{PASSWORD_HASH}", "tables": ["own"], "verbs": ["read", "write"]}}
        ]}}"#
    );
    let users = fixture.file("users.json", &users);
    fixture.start(|config| {
        config.users = Some(users);
        config.default_table = Some("own".parse().expect("a name"));
    });
    fixture
}

pub fn client_of(fixture: &Fixture, user: &str) -> Client<TcpStream> {
    let mut client = fixture.client();
    assert_eq!(client.text(&format!("AUTH {user} password")), "OK");
    client
}
