//! The writes to a table, and so the states that may be found in it.

use std::collections::BTreeMap;

use forebay_run::operation::{DeltaKind, Operation};

pub type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// An operation on a key, and its effect on a map: the algebra in its simplest form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    Insert(Vec<u8>, Vec<u8>),
    Update(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
    Delta(Vec<u8>, Vec<u8>),
}

impl Op {
    pub fn key(&self) -> &[u8] {
        match self {
            Op::Insert(key, _) | Op::Update(key, _) | Op::Delete(key) | Op::Delta(key, _) => key,
        }
    }

    pub fn operation(&self) -> Operation<'_> {
        match self {
            Op::Insert(_, value) => Operation::Insert(value),
            Op::Update(_, value) => Operation::Update(value),
            Op::Delete(_) => Operation::Delete,
            Op::Delta(_, delta) => Operation::Delta(delta),
        }
    }

    fn apply(&self, map: &mut Map, kind: Option<DeltaKind>) {
        match self.clone() {
            Op::Insert(key, value) => {
                map.entry(key).or_insert(value);
            }
            Op::Update(key, value) => {
                map.insert(key, value);
            }
            Op::Delete(key) => {
                map.remove(&key);
            }
            Op::Delta(key, delta) => {
                let sum = match map.get(&key) {
                    None => delta,
                    Some(value) => add(kind.unwrap(), value, &delta),
                };
                map.insert(key, sum);
            }
        }
    }
}

pub fn add(kind: DeltaKind, value: &[u8], delta: &[u8]) -> Vec<u8> {
    let int = |bytes: &[u8]| i64::from_le_bytes(bytes.try_into().unwrap());
    let float = |bytes: &[u8]| f64::from_le_bytes(bytes.try_into().unwrap());
    match kind {
        DeltaKind::AddI64 => int(value).wrapping_add(int(delta)).to_le_bytes().to_vec(),
        DeltaKind::AddI64Saturating => int(value).saturating_add(int(delta)).to_le_bytes().to_vec(),
        DeltaKind::AddF64 => (float(value) + float(delta)).to_le_bytes().to_vec(),
        DeltaKind::Append => [value, delta].concat(),
        DeltaKind::Min => int(value).min(int(delta)).to_le_bytes().to_vec(),
        DeltaKind::Max => int(value).max(int(delta)).to_le_bytes().to_vec(),
    }
}

/// Operations that are visible together or not at all.
pub type Unit = Vec<Op>;

/// A table's past: the durable writes, and the writes since.
#[derive(Debug, Clone)]
pub struct History {
    kind: Option<DeltaKind>,
    durable: Map,
    since: Vec<Unit>,
    /// Writes of which an unknown number was done before the table refused more.
    doubtful: Vec<Unit>,
    now: Map,
}

impl History {
    pub fn new(kind: Option<DeltaKind>) -> Self {
        Self {
            kind,
            durable: Map::new(),
            since: Vec::new(),
            doubtful: Vec::new(),
            now: Map::new(),
        }
    }

    /// Returns the state that readers see.
    pub fn now(&self) -> &Map {
        &self.now
    }

    pub fn wrote(&mut self, unit: Unit) {
        assert!(self.doubtful.is_empty(), "a closed table took a write");
        for op in &unit {
            op.apply(&mut self.now, self.kind);
        }
        self.since.push(unit);
    }

    pub fn doubted(&mut self, units: Vec<Unit>) {
        if self.doubtful.is_empty() {
            self.doubtful = units;
        }
    }

    /// Marks all writes so far as durable.
    pub fn acknowledged(&mut self) {
        self.durable.clone_from(&self.now);
        self.since.clear();
    }

    /// Accepts the state that was found after the process ended, or panics. It must be the state
    /// after some write, with all durable ones; if nothing may be lost, with all writes.
    pub fn found(&mut self, found: Map, may_lose: bool, words: &str) {
        let mut state = self.durable.clone();
        let mut fits = may_lose && state == found;
        for unit in &self.since {
            if fits {
                break;
            }
            for op in unit {
                op.apply(&mut state, self.kind);
            }
            fits = may_lose && state == found;
        }
        fits = fits || state == found;
        for unit in std::mem::take(&mut self.doubtful) {
            if fits {
                break;
            }
            for op in &unit {
                op.apply(&mut state, self.kind);
            }
            fits = state == found;
        }
        assert!(
            fits,
            "{words}: {} writes since the last durable state, and what is found is after none of them.\n\
             found: {}\ndurable: {}\nlast: {}",
            self.since.len(),
            show(&found),
            show(&self.durable),
            show(&self.now)
        );
        self.now = found;
        self.acknowledged();
    }
}

pub fn show(map: &Map) -> String {
    let short = |bytes: &[u8]| match bytes.len() {
        0..=24 => bytes.escape_ascii().to_string(),
        long => format!("{}...({long})", bytes[..16].escape_ascii()),
    };
    let records = map
        .iter()
        .map(|(key, value)| format!("{}={}", short(key), short(value)));
    records.collect::<Vec<_>>().join(" ")
}
