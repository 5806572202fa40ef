//! The model engine: a map with blind writes, and writes that depend on the current value.

use std::collections::BTreeMap;

use bytes::Bytes;
use xxhash_rust::xxh3::xxh3_64;

/// The first key that expires. Values that depend on time are compared between replicas. The
/// histories of clients are of the other keys.
pub const EXPIRING: u8 = 100;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    Get,
    Set(i64),
    Delete,
    /// Adds, and answers the sum.
    Add(i64),
    SetIfAbsent(i64),
    CompareAndSet(i64, i64),
    /// Sets for this many milliseconds.
    SetFor(i64, u64),
    /// Adds, and does not answer the sum.
    Increase(i64),
}

/// The answer of an operation: the value, or whether it was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    Value(Option<i64>),
    Done(bool),
}

impl Op {
    pub fn encode(self, key: u8) -> Bytes {
        let (kind, one, other) = match self {
            Self::Get => (0, 0, 0),
            Self::Set(value) => (1, value, 0),
            Self::Delete => (2, 0, 0),
            Self::Add(delta) => (3, delta, 0),
            Self::SetIfAbsent(value) => (4, value, 0),
            Self::CompareAndSet(expected, value) => (5, expected, value),
            Self::SetFor(value, ms) => (6, value, ms as i64),
            Self::Increase(delta) => (7, delta, 0),
        };
        let mut out = vec![kind, key];
        out.extend(i64::to_le_bytes(one));
        out.extend(i64::to_le_bytes(other));
        out.into()
    }

    pub fn decode(bytes: &[u8]) -> (u8, Self) {
        let number = |at: usize| i64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        let (one, other) = (number(2), number(10));
        let op = match bytes[0] {
            0 => Self::Get,
            1 => Self::Set(one),
            2 => Self::Delete,
            3 => Self::Add(one),
            4 => Self::SetIfAbsent(one),
            5 => Self::CompareAndSet(one, other),
            7 => Self::Increase(one),
            _ => Self::SetFor(one, other as u64),
        };
        (bytes[1], op)
    }

    /// Applies it to one key: returns the new value, and the answer.
    pub fn apply(self, value: Option<i64>) -> (Option<i64>, Answer) {
        let sets =
            |does: bool, new: i64| (if does { Some(new) } else { value }, Answer::Done(does));
        match self {
            Self::Get => (value, Answer::Value(value)),
            Self::Set(new) | Self::SetFor(new, _) => sets(true, new),
            Self::Delete => (None, Answer::Done(true)),
            Self::Add(delta) => {
                let sum = Some(value.unwrap_or(0) + delta);
                (sum, Answer::Value(sum))
            }
            Self::Increase(delta) => sets(true, value.unwrap_or(0) + delta),
            Self::SetIfAbsent(new) => sets(value.is_none(), new),
            Self::CompareAndSet(expected, new) => sets(value == Some(expected), new),
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct State(BTreeMap<u8, (i64, Option<u64>)>);

/// Keys with their values, and their expiry times.
impl FromIterator<(u8, (i64, Option<u64>))> for State {
    fn from_iter<I: IntoIterator<Item = (u8, (i64, Option<u64>))>>(all: I) -> Self {
        Self(all.into_iter().collect())
    }
}

impl State {
    pub fn get(&self, key: u8) -> Option<i64> {
        self.0.get(&key).map(|(value, _)| *value)
    }

    pub fn apply(&mut self, bytes: &[u8], stamp_ms: u64) -> Answer {
        let (key, op) = Op::decode(bytes);
        self.0
            .retain(|_, (_, expires)| expires.is_none_or(|at| at > stamp_ms));
        let (value, answer) = op.apply(self.get(key));
        let expires = match op {
            Op::SetFor(_, ms) => Some(stamp_ms + ms),
            _ => self.0.get(&key).and_then(|(_, expires)| *expires),
        };
        match value {
            Some(value) => self.0.insert(key, (value, expires)),
            None => self.0.remove(&key),
        };
        answer
    }

    pub fn hash(&self) -> u64 {
        let mut bytes = Vec::new();
        for (key, (value, expires)) in &self.0 {
            bytes.push(*key);
            bytes.extend(value.to_le_bytes());
            bytes.extend(expires.unwrap_or(0).to_le_bytes());
        }
        xxh3_64(&bytes)
    }
}
