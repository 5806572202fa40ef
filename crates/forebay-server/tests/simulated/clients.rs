//! Clients that read and write while nodes fail, and record the replies.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use forebay_io::sim::{SimClient, Wire};
use forebay_io::start_thread;

use super::cluster::{SimCluster, key};
use super::common::{Client, Reply, encode, text_of};
use super::node::{GATEWAY, SimNode, SimWorld};

/// Between two commands of a client.
const PAUSE: Duration = Duration::from_millis(20);

/// The reply to one command; an error if there is none.
pub fn asked(client: &mut Client<SimClient>, words: &[&str]) -> io::Result<Reply> {
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    client.stream.get_mut().write_all(&encode(&words))?;
    client.try_read()
}

/// The repeated read of a client.
pub struct Reading {
    tables: String,
    shared: Arc<ReadingState>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct ReadingState {
    over: AtomicBool,
    seen: Mutex<SeenValue>,
}

#[derive(Debug, Default)]
pub struct SeenValue {
    /// The versions, where one was not that of the reply before.
    pub versions: Vec<u32>,
    pub replies: u64,
    pub failed: Vec<String>,
    /// Replies of several versions.
    pub mixed: Vec<String>,
}

impl SeenValue {
    fn note(&mut self, reply: &io::Result<Reply>) {
        self.replies += 1;
        let values = match reply {
            Ok(Reply::Array(values)) => values,
            other => return self.failed.push(format!("{other:?}")),
        };
        let version = |value: &Reply| {
            let text = text_of(value);
            let (_, version) = text.rsplit_once(" of ")?;
            version.parse::<u32>().ok()
        };
        let versions: Vec<Option<u32>> = values.iter().map(version).collect();
        match versions.first() {
            Some(Some(first)) if versions.iter().all(|one| *one == Some(*first)) => {
                if self.versions.last() != Some(first) {
                    self.versions.push(*first);
                }
            }
            _ => self.mixed.push(format!("{values:?}")),
        }
    }
}

impl ReadingState {
    fn seen(&self) -> MutexGuard<'_, SeenValue> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reading {
    /// Reads this many rows of each of these tables in one command, through a node's gateway.
    pub fn start(world: &SimWorld, node: &SimNode, tables: &[&str], rows: u32) -> Self {
        let keys = (0..rows).flat_map(|n| {
            tables
                .iter()
                .map(move |table| format!("{table}:{}", key(n)))
        });
        let words: Vec<String> = ["MGET".to_owned()].into_iter().chain(keys).collect();
        let shared = Arc::<ReadingState>::default();
        let (world, at, state) = (world.clone(), node.at(GATEWAY), Arc::clone(&shared));
        let read = move || {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let mut client = world.net.connect(at, Wire::default()).map(Client::new);
            while !state.over.load(Ordering::Relaxed) {
                let reply = match &mut client {
                    Ok(client) => asked(client, &words),
                    Err(error) => Err(error.kind().into()),
                };
                if reply.is_err() {
                    client = world.net.connect(at, Wire::default()).map(Client::new);
                }
                state.seen().note(&reply);
                world.clock.sleep(PAUSE);
            }
        };
        Self {
            tables: tables.join(" and "),
            shared,
            thread: Some(start_thread("reading", read).expect("a thread")),
        }
    }

    /// Starts a reader at each running node.
    pub fn everywhere(cluster: &SimCluster, tables: &[&str], rows: u32) -> Vec<Self> {
        let running = cluster.nodes.iter().filter(|node| node.is_running());
        let start = |node| Self::start(&cluster.world, node, tables, rows);
        running.map(start).collect()
    }

    /// Waits until that version is the last one it has seen.
    pub fn until(&self, cluster: &SimCluster, version: u32) {
        let what = format!("version {version} of {}", self.tables);
        cluster.until(&what, |_| {
            (self.shared.seen().versions.last() == Some(&version)).then_some(())
        });
    }

    fn over(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the reader did not panic");
        }
    }

    pub fn end(mut self) -> SeenValue {
        self.over();
        std::mem::take(&mut *self.shared.seen())
    }

    /// Ends the reader. Checks that no reply failed or mixed versions, and that it saw these
    /// versions.
    pub fn check_seen(self, versions: &[u32]) {
        let seen = self.end();
        assert_eq!((&seen.failed, &seen.mixed), (&Vec::new(), &Vec::new()));
        assert_eq!(seen.versions, versions);
        assert!(seen.replies > 3, "{seen:?}");
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.over();
    }
}

/// Clients that write keys of their own, each once, and record the outcome.
pub struct Writers {
    over: Arc<AtomicBool>,
    written: Arc<Mutex<ClientWrites>>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug, Default)]
pub struct ClientWrites {
    /// Keys whose values are their names.
    pub acknowledged: Vec<String>,
    /// The reply said that they were not written.
    pub refused: Vec<String>,
    /// The outcome is unknown.
    pub uncertain: Vec<String>,
    pub problems: BTreeMap<String, u64>,
    pub longest: Duration,
}

impl ClientWrites {
    fn note(&mut self, key: String, outcome: io::Result<Reply>) -> bool {
        match outcome {
            Ok(Reply::Simple(text)) if text == "OK" => self.acknowledged.push(key),
            Ok(Reply::Error(text)) => {
                match text.contains("nothing was written") {
                    true => self.refused.push(key),
                    false => self.uncertain.push(key),
                }
                *self.problems.entry(text).or_default() += 1;
            }
            other => {
                self.uncertain.push(key);
                *self.problems.entry(format!("{other:?}")).or_default() += 1;
                return other.is_ok();
            }
        }
        true
    }
}

impl Writers {
    /// Starts two writers at each of these nodes.
    pub fn start(cluster: &SimCluster, table: &str, nodes: &[u8]) -> Self {
        let (over, written) = (
            Arc::<AtomicBool>::default(),
            Arc::<Mutex<ClientWrites>>::default(),
        );
        let mut threads = Vec::new();
        for (number, part) in nodes.iter().flat_map(|number| [(*number, 0), (*number, 1)]) {
            let of = cluster.nodes.iter().find(|node| node.number == number);
            let at = of.expect("a node").at(GATEWAY);
            let (world, table) = (cluster.world.clone(), table.to_owned());
            let (over, written) = (Arc::clone(&over), Arc::clone(&written));
            let write = move || {
                let mut client = None;
                for n in 0u32.. {
                    if over.load(Ordering::Relaxed) {
                        return;
                    }
                    let connect = || world.net.connect(at, Wire::default()).map(Client::new);
                    let key = format!("{table}:{number}-{part}-{n}");
                    let begun = world.clock.monotonic();
                    let outcome = match client.take().map_or_else(connect, Ok) {
                        Ok(mut connected) => {
                            let outcome = asked(&mut connected, &["SET", &key, &key]);
                            client = outcome.is_ok().then_some(connected);
                            outcome
                        }
                        Err(error) => Err(error),
                    };
                    let took = world.clock.monotonic() - begun;
                    let mut written = written.lock().unwrap_or_else(PoisonError::into_inner);
                    written.longest = written.longest.max(took);
                    written.note(key, outcome);
                    drop(written);
                    world.clock.sleep(PAUSE);
                }
            };
            threads.push(start_thread("writing", write).expect("a thread"));
        }
        Self {
            over,
            written,
            threads,
        }
    }

    pub fn acknowledged_keys(&self) -> Vec<String> {
        let written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        written.acknowledged.clone()
    }

    fn acknowledged(&self) -> usize {
        let written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        written.acknowledged.len()
    }

    /// Waits until this many more are acknowledged.
    pub fn resume(&self, cluster: &SimCluster) {
        let wanted = self.acknowledged() + 20 * self.threads.len();
        cluster.until("writes are acknowledged", |_| {
            (self.acknowledged() >= wanted).then_some(())
        });
    }

    fn over(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().expect("the writer did not panic");
        }
    }

    pub fn end(mut self) -> ClientWrites {
        self.over();
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *written)
    }
}

impl Drop for Writers {
    fn drop(&mut self) {
        self.over();
    }
}

impl ClientWrites {
    /// Checks that each running node has the acknowledged writes and none of the refused ones.
    pub fn check(&self, cluster: &SimCluster) {
        println!(
            "{} acknowledged, {:?}",
            self.acknowledged.len(),
            self.problems
        );
        for node in cluster.nodes.iter().filter(|node| node.is_running()) {
            cluster.until("the node is ready", |_| {
                (node.page("/ready")?.0 == 200).then_some(())
            });
            let values = read(node, &self.acknowledged);
            let lost = self
                .acknowledged
                .iter()
                .filter(|key| values.get(*key) != Some(*key));
            assert_eq!(
                lost.collect::<Vec<_>>(),
                Vec::<&String>::new(),
                "lost at {}",
                node.name()
            );
            let values = read(node, &self.refused);
            assert_eq!(
                values,
                BTreeMap::new(),
                "refused, but present at {}",
                node.name()
            );
        }
    }
}

/// Returns a node's values of these keys.
pub fn read(node: &SimNode, keys: &[String]) -> BTreeMap<String, String> {
    let mut client = node.client(GATEWAY);
    let mut found = BTreeMap::new();
    for some in keys.chunks(500) {
        let words: Vec<&str> = ["MGET"]
            .into_iter()
            .chain(some.iter().map(String::as_str))
            .collect();
        let reply = asked(&mut client, &words).expect("a reply");
        let Reply::Array(values) = reply else {
            panic!("{reply:?}");
        };
        let there = some.iter().zip(values);
        let there = there.filter(|(_, value)| *value != Reply::Null);
        found.extend(there.map(|(key, value)| (key.clone(), text_of(&value))));
    }
    found
}
