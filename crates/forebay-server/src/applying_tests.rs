//! The same log on two replicas: the same replies, the same content.

use std::sync::{Arc, Weak};

use forebay_engine::live::{
    AppliedPlace, Budget, DecidedEntry, Expiry, LiveDraft, LiveTable, Replication,
};
use forebay_engine::{DEFAULT_POLL, PartitionId, Serving, Store, TableName, ValueKind};
use forebay_host::{Commands, StateError};
use forebay_io::{OsDisk, SystemClock, SystemRandom};
use forebay_run::operation::DeltaKind;
use forebay_run::row::{Column, Kind, Schema};
use forebay_run::scan::{Direction, ScanRange};

use crate::config::ServerConfig;
use crate::descriptors::Descriptors;
use crate::proposal::{ProposalHead, WireProposal};
use crate::proposed::{ProposedCommands, RunsProposals};
use crate::resp::OwnedArgs;
use crate::secrets::SecretFiles;
use crate::shared::Shared;

const FIRST: PartitionId = PartitionId(0);
/// Far from any machine's clock.
const BEGIN_MS: u64 = 1_000_000;

/// One replica of each table, and the server that runs their commands.
struct Machine {
    _dir: tempfile::TempDir,
    /// Proposals know the server by this.
    _shared: Arc<Shared>,
    commands: ProposedCommands,
    tables: Vec<LiveTable>,
}

/// A command of a log, or those of a MULTI, on a table by its number, with the entry's stamp.
struct Logged {
    table: usize,
    stamp_ms: u64,
    bytes: Vec<u8>,
}

fn rows() -> LiveDraft {
    let mut draft = LiveDraft::hashed();
    let columns = ["name", "city"].map(|name| Column::new(name, Kind::Text, true));
    draft.options.schema = Schema::new(columns.to_vec());
    draft.options.value = ValueKind::Row;
    draft
}

impl Machine {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (disk, clock) = (Arc::new(OsDisk::default()), Arc::new(SystemClock));
        let root = dir.path().join("store");
        let store = Store::open_or_create(disk, clock, Arc::new(SystemRandom), &root).unwrap();
        let budget = Budget::new(64 << 20);
        let drafts = [
            LiveDraft::hashed().expiry(Expiry::PerRecord),
            LiveDraft::hashed().delta(DeltaKind::AddI64),
            rows(),
        ];
        let tables = ["t", "n", "r"].iter().zip(drafts).map(|(name, draft)| {
            let name = TableName::new(name).unwrap();
            let draft = draft.partitions(1).replicated(Replication::Leader);
            store.create_live(&name, draft, &budget).unwrap()
        });
        let tables = tables.collect();
        let config = ServerConfig::default();
        let secrets = SecretFiles::read(&config, &**store.disk()).unwrap();
        let descriptors = Descriptors::share(None, 1, &config.limits).unwrap();
        let serving = Arc::new(Serving::open(store.clone(), DEFAULT_POLL).unwrap());
        let address = config.resp;
        let shared = Shared::new(config, store, serving, secrets, address, descriptors);
        let (shared, commands) = (Arc::new(shared), ProposedCommands::default());
        let server: Weak<dyn RunsProposals> = Arc::<Shared>::downgrade(&shared);
        commands.begin(server);
        Self {
            _dir: dir,
            _shared: shared,
            commands,
            tables,
        }
    }

    /// Applies a log from its beginning. Returns the replies as text.
    fn apply(&self, log: &[Logged]) -> Vec<String> {
        let mut indexes = vec![0; self.tables.len()];
        let replies = log.iter().map(|logged| {
            indexes[logged.table] += 1;
            let entry = entry(indexes[logged.table], logged.stamp_ms);
            let table = &self.tables[logged.table];
            let handle = table.entry(FIRST, &entry, 0).unwrap();
            let reply = self.commands.run(&handle, logged.stamp_ms, &logged.bytes);
            handle.finish().unwrap();
            String::from_utf8(reply.unwrap().to_vec()).unwrap()
        });
        replies.collect()
    }

    fn content(&self) -> Vec<(Vec<u8>, Vec<u8>, Option<u64>)> {
        let mut content = Vec::new();
        for table in &self.tables {
            let source = forebay_engine::Source::Live(table);
            let mut scan = source.scan(ScanRange::all(), Direction::Forward);
            while scan.advance().unwrap() {
                let key = scan.key().to_vec();
                let value = source.get(&key).unwrap().unwrap().to_vec();
                let expires_ms = table.expires_ms(&key).unwrap();
                content.push((key, value, expires_ms));
            }
        }
        content
    }
}

fn entry(index: u64, stamp_ms: u64) -> DecidedEntry {
    DecidedEntry {
        place: AppliedPlace {
            term: 1,
            index,
            stamp_ms,
            members: Arc::from([]),
            done: 0,
            loaded: 0,
        },
        proposals: 1,
    }
}

fn args(line: &str) -> OwnedArgs {
    line.split(' ').collect()
}

fn logged(table: usize, after_ms: u64, lines: &[&str], is_multi: bool) -> Logged {
    let commands: Vec<OwnedArgs> = lines.iter().map(|line| args(line)).collect();
    let commands = commands.iter().map(OwnedArgs::borrow);
    Logged {
        table,
        stamp_ms: BEGIN_MS + after_ms,
        bytes: WireProposal::encode(false, is_multi, None, commands).to_vec(),
    }
}

fn one(table: usize, after_ms: u64, line: &str) -> Logged {
    logged(table, after_ms, &[line], false)
}

/// Entries with their replies.
fn course() -> Vec<(Logged, &'static str)> {
    vec![
        (one(0, 0, "SET t:a 1"), "+OK\r\n"),
        (one(0, 0, "SET t:a 2 NX"), "$-1\r\n"),
        (one(0, 0, "SET t:b 2 NX GET"), "$-1\r\n"),
        (one(0, 0, "APPEND t:a 23"), ":3\r\n"),
        (one(0, 1, "INCR t:a"), ":124\r\n"),
        (one(0, 1, "INCRBYFLOAT t:a 0.5"), "$5\r\n124.5\r\n"),
        (
            one(0, 1, "INCR t:a"),
            "-ERR value is not an integer or out of range\r\n",
        ),
        (one(0, 2, "EXPIRE t:a 10"), ":1\r\n"),
        (one(0, 3, "SET t:c x PX 500"), "+OK\r\n"),
        (
            logged(
                0,
                402,
                &[
                    "TTL t:a",
                    "PTTL t:c",
                    "SET t:d y EX 2",
                    "INCR t:b",
                    "GET t:b",
                ],
                true,
            ),
            "*5\r\n:10\r\n:101\r\n+OK\r\n:3\r\n$1\r\n3\r\n",
        ),
        (one(0, 503, "GETSET t:c z"), "$-1\r\n"),
        (
            logged(
                0,
                600,
                &["SET t:e 1", "LPUSH t:e x", "DEL t:a t:nope"],
                true,
            ),
            "*3\r\n+OK\r\n-WRONGTYPE table 't' holds bytes, not lists: GET reads them, SET changes them\r\n:1\r\n",
        ),
        (one(0, 700, "DEL t:b t:c t:none"), ":2\r\n"),
        (one(0, 10_000, "SETNX t:d again"), ":1\r\n"),
        (
            one(0, 10_000, "SET u:a 1"),
            "-TRYAGAIN the key is in another partition than the one that it was proposed to\r\n",
        ),
        (
            one(0, 10_000, "GET t:a"),
            "-ERR GET cannot be in a MULTI that writes, which is for commands on keys\r\n",
        ),
        (
            one(0, 10_000, "SET t:a"),
            "-ERR wrong number of arguments for 'set' command\r\n",
        ),
        (one(1, 0, "INCRBY n:x 5"), ":5\r\n"),
        (one(1, 0, "KV.DELTA n:x 7"), "+OK\r\n"),
        (one(1, 9, "INCR n:x"), ":13\r\n"),
        (
            one(1, 9, "SET n:x words"),
            "-ERR value is not an integer or out of range\r\n",
        ),
        (one(2, 0, "HSET r:1 name Ada city London"), ":2\r\n"),
        (one(2, 0, "HDEL r:1 city"), ":1\r\n"),
        (one(2, 0, "HSETNX r:1 name Eve"), ":0\r\n"),
        (
            logged(2, 0, &["HSET r:2 name Bob", "HGETALL r:2"], true),
            "*2\r\n:1\r\n*2\r\n$4\r\nname\r\n$3\r\nBob\r\n",
        ),
        (
            logged(2, 0, &["HSET r:2 name Eve", "HRANDFIELD r:2"], true),
            "-ERR HRANDFIELD cannot be in a MULTI that writes to a live table of a cluster: each replica would draw others\r\n",
        ),
        (
            one(2, 0, "EXPIRE r:2 5"),
            "-ERR keys of table 'r' do not expire, as it was made: 'forebay create --ttl per-key' makes one whose keys can\r\n",
        ),
    ]
}

#[test]
fn the_same_log_does_the_same_on_two_machines() {
    let (log, wanted): (Vec<Logged>, Vec<&str>) = course().into_iter().unzip();
    let (first, second) = (Machine::new(), Machine::new());
    let replies = first.apply(&log);
    for (number, (reply, wanted)) in replies.iter().zip(&wanted).enumerate() {
        assert_eq!(reply, wanted, "entry {number}");
    }
    assert_eq!(second.apply(&log), replies);
    let content = first.content();
    assert_eq!(content, second.content());
    let expires = |key: &[u8]| content.iter().find(|(found, ..)| found == key).unwrap().2;
    assert_eq!(expires(b"d"), Some(u64::MAX));
    assert_eq!(content.iter().filter(|(key, ..)| key == b"a").count(), 0);
}

/// A MULTI with watched keys, each followed by its version.
fn watching(after_ms: u64, watched: &str, line: &str) -> Logged {
    let head = ProposalHead::Watched(args(watched));
    let commands = [args(line)];
    let commands = commands.iter().map(OwnedArgs::borrow);
    Logged {
        table: 0,
        stamp_ms: BEGIN_MS + after_ms,
        bytes: WireProposal::encode(false, true, Some(&head), commands).to_vec(),
    }
}

#[test]
fn watched_keys_are_compared_alike_on_two_machines() {
    let absent = "0".repeat(32);
    let elsewhere =
        "-TRYAGAIN the key is in another partition than the one that it was proposed to\r\n";
    let log = [
        watching(0, &format!("t:w {absent} t:b {absent}"), "SET t:w 1 PX 100"),
        watching(1, &format!("t:b {absent} t:w {absent}"), "SET t:b 2"),
        one(0, 2, "GETSET t:b 3"),
        // It has expired.
        watching(150, &format!("t:w {absent}"), "SET t:c 4"),
        watching(151, &format!("u:w {absent}"), "SET t:c 5"),
    ];
    let (first, second) = (Machine::new(), Machine::new());
    let replies = first.apply(&log);
    let done = "*1\r\n+OK\r\n";
    assert_eq!(replies, [done, "*-1\r\n", "$-1\r\n", done, elsewhere]);
    assert_eq!(second.apply(&log), replies);
    assert_eq!(first.content(), second.content());
}

#[test]
fn what_is_damaged_is_answered_and_what_is_newer_waits() {
    let machine = Machine::new();
    let damaged = Logged {
        table: 0,
        stamp_ms: BEGIN_MS,
        bytes: b"\x01\0*1\r\n$9\r\nSET".to_vec(),
    };
    let replies = machine.apply(&[damaged]);
    assert_eq!(
        replies,
        ["-ERR the proposal is damaged, and did nothing\r\n"]
    );
    let handle = machine.tables[0]
        .entry(FIRST, &entry(2, BEGIN_MS), 0)
        .unwrap();
    let unknown =
        WireProposal::encode(false, false, None, [args("NEWER t:a").borrow()].into_iter());
    for newer in [&b"\x02\0*1\r\n"[..], &unknown] {
        let ran = machine.commands.run(&handle, BEGIN_MS, newer);
        assert!(matches!(ran, Err(StateError::Later(_))), "{ran:?}");
    }
    let ran = ProposedCommands::default().run(&handle, BEGIN_MS, &unknown);
    assert!(
        matches!(ran, Err(StateError::Later(_))),
        "before the server begins: {ran:?}"
    );
}
