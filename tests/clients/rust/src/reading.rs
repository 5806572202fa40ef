//! The reads of the Rust clients, and their results. See ../../python/reading.py.

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use redis::{RedisError, RedisResult};
use serde_json::{Value, json};

const TABLES: [&str; 2] = ["people", "prices"];
const PAUSE: Duration = Duration::from_millis(10);
const STRIDE: usize = 7919;
const SPELL_S: f64 = 2.0;

type Values = Vec<Option<String>>;

/// Failures of one kind with short pauses between them.
struct Spell {
    kind: String,
    count: u64,
    since: f64,
    until: f64,
    text: String,
}

pub struct Reading {
    client: &'static str,
    version: &'static str,
    variant: String,
    addresses: Vec<String>,
    groups: usize,
    versions: u32,
    reads: u64,
    wrong: u64,
    parts: u64,
    spells: Vec<Spell>,
    last: BTreeMap<String, u32>,
    longest: Duration,
    answered_at: Option<Instant>,
}

/// The content of an answer.
enum Seen {
    /// The version of each table.
    Versions(BTreeMap<String, u32>),
    TwoVersions,
    Wrong(String),
}

impl Reading {
    /// Takes the command line: the client, then the arguments of all programs.
    pub fn new(client: &'static str, version: &'static str) -> Reading {
        let words: Vec<String> = std::env::args().skip(2).collect();
        let number = |i: usize| words[i].parse().expect("a number");
        Reading {
            client,
            version,
            variant: words[0].clone(),
            addresses: words[1]
                .split(',')
                .map(|one| format!("redis://{one}/"))
                .collect(),
            groups: number(2),
            versions: number(3) as u32,
            reads: 0,
            wrong: 0,
            parts: 0,
            spells: Vec::new(),
            last: BTreeMap::new(),
            longest: Duration::ZERO,
            answered_at: None,
        }
    }

    pub fn addresses(&self) -> Vec<String> {
        self.addresses.clone()
    }

    pub fn replicas(&self) -> bool {
        self.variant == "replicas"
    }

    /// Reads until standard input ends, and prints the results.
    pub fn run(mut self, mut read: impl FnMut(&[String]) -> RedisResult<Values>) {
        let over = Arc::new(AtomicBool::new(false));
        let end = Arc::clone(&over);
        std::thread::spawn(move || {
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            end.store(true, Ordering::Relaxed);
        });
        let mut count = 0;
        while !over.load(Ordering::Relaxed) {
            count += 1;
            let keys = self.keys(count);
            match read(&keys) {
                Ok(values) => self.answered(&keys, &values),
                Err(error) => self.failed(&kind_of(&error), &error.to_string()),
            }
            std::thread::sleep(PAUSE);
        }
        println!("{}", self.results());
    }

    /// In turn: a GET of each table, an MGET of one slot, and an MGET over slots.
    fn keys(&self, count: usize) -> Vec<String> {
        let group = count * STRIDE % self.groups;
        match count % 4 {
            kind @ (0 | 1) => vec![format!("{}:{{{group}}}:{kind}", TABLES[kind])],
            2 => (0..4).map(|i| format!("people:{{{group}}}:{i}")).collect(),
            _ => (0..8)
                .map(|i| {
                    format!(
                        "{}:{{{}}}:{}",
                        TABLES[i % 2],
                        (group + i) % self.groups,
                        i % 4
                    )
                })
                .collect(),
        }
    }

    fn answered(&mut self, keys: &[String], values: &Values) {
        let now = Instant::now();
        match self.answered_at.replace(now) {
            None => println!("reading"),
            Some(before) => self.longest = self.longest.max(now - before),
        }
        self.reads += 1;
        let slot = |key: &String| key.split(':').nth(1).map(str::to_owned);
        match self.seen(keys, values) {
            Seen::Versions(seen) => self.last.extend(seen),
            // The client splits the MGET, so its parts are separate commands.
            Seen::TwoVersions if keys.iter().any(|key| slot(key) != slot(&keys[0])) => {
                self.parts += 1
            }
            Seen::TwoVersions => self.is_wrong(format!("two versions: {values:?}")),
            Seen::Wrong(text) => self.is_wrong(text),
        }
    }

    fn seen(&self, keys: &[String], values: &Values) -> Seen {
        if keys.len() != values.len() {
            return Seen::Wrong(format!("{} values for {keys:?}", values.len()));
        }
        let mut seen = BTreeMap::new();
        let mut mixed = false;
        for (key, value) in keys.iter().zip(values) {
            let (found, version) = value
                .as_deref()
                .and_then(|one| one.split_once(' '))
                .unwrap_or_default();
            let version = version.parse().unwrap_or(0);
            if found != key || !(1..=self.versions).contains(&version) {
                return Seen::Wrong(format!("{key}: {value:?}"));
            }
            let table = key.split(':').next().unwrap_or_default().to_owned();
            mixed |= seen
                .insert(table, version)
                .is_some_and(|before| before != version);
        }
        if mixed {
            Seen::TwoVersions
        } else {
            Seen::Versions(seen)
        }
    }

    fn is_wrong(&mut self, text: String) {
        self.wrong += 1;
        self.failed("wrong answer", &text);
    }

    fn failed(&mut self, kind: &str, text: &str) {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_secs_f64();
        let recent = |one: &&mut Spell| one.kind == kind && now - one.until < SPELL_S;
        if let Some(spell) = self.spells.iter_mut().rev().find(recent) {
            spell.count += 1;
            spell.until = now;
            return;
        }
        let text = text.chars().take(300).collect();
        self.spells.push(Spell {
            kind: kind.to_owned(),
            count: 1,
            since: now,
            until: now,
            text,
        });
    }

    fn results(&self) -> Value {
        let spell = |one: &Spell| json!({"kind": one.kind, "count": one.count, "since": one.since, "until": one.until, "text": one.text});
        json!({
            "client": self.client,
            "version": self.version,
            "variant": self.variant,
            "reads": self.reads,
            "wrong": self.wrong,
            "parts": self.parts,
            "spells": self.spells.iter().map(spell).collect::<Vec<_>>(),
            "longest_pause_ms": self.longest.as_millis() as u64,
            "last": self.last,
        })
    }
}

fn kind_of(error: &RedisError) -> String {
    error
        .code()
        .map_or_else(|| format!("{:?}", error.kind()), str::to_owned)
}
