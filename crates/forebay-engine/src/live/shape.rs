//! What every part of a live table needs to know of it: name, order, kind of deltas.

use std::sync::Arc;

use forebay_io::Clock;
use forebay_run::filter::filter_hash;
use forebay_run::hash::{KeyHasher, key_head};
use forebay_run::operation::{CowOperation, DeltaKind, OperandError, Operation};
use forebay_run::{Order, RunError};

use crate::bound::Bound;
use crate::live::damage::MetDamage;
use crate::live::error::LiveError;
use crate::live::options::LiveOptions;
use crate::name::TableName;

#[derive(Debug)]
pub(crate) struct Shape {
    pub table: TableName,
    pub order: Order,
    pub hasher: KeyHasher,
    pub delta: Option<DeltaKind>,
    /// Tells what has expired.
    clock: Arc<dyn Clock>,
    pub damage: MetDamage,
}

/// What tells a partition's time. It is taken under the partition's lock, along with the state that
/// is judged by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PartTime(u64);

impl PartTime {
    /// The machine's clock, which is asked when the time is needed.
    pub const CLOCK: Self = Self(u64::MAX);

    /// The log of a replicated partition, which has come to this stamp, in milliseconds since
    /// 1970-01-01 UTC. The last number, which means never elsewhere, is taken for that before it.
    #[inline]
    pub fn stamp(stamp_ms: u64) -> Self {
        Self(stamp_ms.min(u64::MAX - 1))
    }
}

/// Where a key lies in the order, whatever partition that is in.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeyPlace {
    /// Its hash64 in a hashed table, else 0: what runs want along with the key.
    pub hash: u64,
    /// The first eight bytes of its place in the order. Where two differ, they decide.
    pub head: u64,
    /// Spread evenly in both orders: for hash tables and filters, as filters of runs want it.
    pub spread: u64,
}

impl Shape {
    pub fn new(table: TableName, options: &LiveOptions, clock: Arc<dyn Clock>) -> Self {
        Self {
            hasher: KeyHasher::new(&table.wire_prefix()),
            table,
            order: options.order,
            delta: options.delta,
            clock,
            damage: MetDamage::default(),
        }
    }

    /// The moment that decides what has expired, in milliseconds since 1970-01-01 UTC.
    #[inline]
    pub fn now_ms(&self, time: PartTime) -> u64 {
        match time {
            PartTime::CLOCK => self.clock.unix_ms(),
            PartTime(stamp_ms) => stamp_ms,
        }
    }

    #[inline]
    pub fn place(&self, key: &[u8]) -> KeyPlace {
        let (hash, head) = self.hash_and_head(key);
        let spread = match self.order {
            Order::Hashed => hash,
            Order::Ordered => filter_hash(key),
        };
        KeyPlace { hash, head, spread }
    }

    /// The hash that a cursor tells of a key, and the head that it is sorted by.
    #[inline]
    pub fn hash_and_head(&self, key: &[u8]) -> (u64, u64) {
        match self.order {
            Order::Hashed => {
                let hash = self.hasher.hash64(key);
                (hash, hash)
            }
            Order::Ordered => (0, key_head(key)),
        }
    }

    /// Where a key lies, as bounds of partitions say it.
    pub fn bound(&self, key: &[u8]) -> Bound {
        match self.order {
            Order::Hashed => Bound::Slot(self.hasher.slot(key)),
            Order::Ordered => Bound::Key(key.to_vec()),
        }
    }

    /// The kind by which operations of this table compose. A table without one has no deltas, so
    /// that any will do.
    #[inline]
    pub fn kind(&self) -> DeltaKind {
        self.delta.unwrap_or(DeltaKind::Append)
    }

    /// Does `older` and then `newer`.
    pub fn compose(
        &self,
        key: &[u8],
        older: &Operation<'_>,
        newer: &Operation<'_>,
    ) -> Result<CowOperation<'static>, LiveError> {
        let composed = newer.after(older, self.kind());
        composed.map_err(|source| self.operand(key, source))
    }

    #[cold]
    pub fn not_here(&self, key: &[u8]) -> LiveError {
        LiveError::NotHere {
            table: self.table.clone(),
            key: crate::key_text::show_key(key),
        }
    }

    /// Damage is noted.
    pub fn run_error(&self, source: RunError) -> LiveError {
        self.damage.note(&source);
        LiveError::Run {
            table: self.table.clone(),
            source,
        }
    }

    pub fn operand(&self, key: &[u8], source: OperandError) -> LiveError {
        LiveError::Operand {
            table: self.table.clone(),
            key: crate::key_text::show_key(key),
            source,
        }
    }
}
