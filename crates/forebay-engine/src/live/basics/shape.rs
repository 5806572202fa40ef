//! The facts about a live table that all its parts need: name, order, kind of deltas, the
//! damage that was found.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use forebay_io::Clock;
use forebay_run::filter::filter_hash;
use forebay_run::hash::{KeyHasher, key_head};
use forebay_run::operation::{CowOperation, DeltaKind, OperandError, Operation};
use forebay_run::{Order, RunError};
use parking_lot::Mutex;

use crate::documents::layout::run_of;
use crate::keys::bound::Bound;
use crate::live::basics::error::LiveError;
use crate::live::basics::options::LiveOptions;
use crate::name::{RunId, TableName};

#[derive(Debug)]
pub(crate) struct Shape {
    pub table: TableName,
    pub order: Order,
    pub hasher: KeyHasher,
    pub delta: Option<DeltaKind>,
    /// The clock that decides which records have expired.
    clock: Arc<dyn Clock>,
    pub damage: MetDamage,
}

/// The source of a partition's time. It is taken under the partition's lock, along with the state
/// that it is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PartTime(u64);

impl PartTime {
    /// The machine's clock, which is read when the time is needed.
    pub const CLOCK: Self = Self(u64::MAX);

    /// The time of a replicated partition's log, which has reached this stamp, in milliseconds
    /// since 1970-01-01 UTC. `u64::MAX` is `CLOCK`, so that stamp is lowered by one.
    #[inline]
    pub fn stamp(stamp_ms: u64) -> Self {
        Self(stamp_ms.min(u64::MAX - 1))
    }
}

/// The position of a key in the order, whatever partition has it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeyPlace {
    /// Its hash64 in a hashed table, otherwise 0: what runs need along with the key.
    pub hash: u64,
    /// The first eight bytes of its position in the order. If two differ, they decide.
    pub head: u64,
    /// Spread evenly in both orders: for hash tables and filters, as the filters of runs need it.
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

    /// Returns the moment that decides which records have expired, in milliseconds since 1970-01-01
    /// UTC.
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

    /// Returns the hash of a cursor's key, and the head that it is sorted by.
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

    /// Returns the position of a key as a bound of partitions.
    pub fn bound(&self, key: &[u8]) -> Bound {
        match self.order {
            Order::Hashed => Bound::Slot(self.hasher.slot(key)),
            Order::Ordered => Bound::Key(key.to_vec()),
        }
    }

    /// Returns the kind by which operations of this table are combined. A table without one has no
    /// deltas, so any kind works.
    #[inline]
    pub fn kind(&self) -> DeltaKind {
        self.delta.unwrap_or(DeltaKind::Append)
    }

    /// Combines `older` with `newer`.
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
            key: crate::keys::key_text::show_key(key),
        }
    }

    /// Converts an error of a run, and records damage.
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
            key: crate::keys::key_text::show_key(key),
            source,
        }
    }
}

/// The runs of a table that could not be read, and why.
///
/// A run never changes: a corrupt page stays corrupt, and every read of it fails. The damage is
/// recorded for the run, and reported for the partitions that have the run now.
#[derive(Debug, Default)]
pub(crate) struct MetDamage(Mutex<BTreeMap<RunId, String>>);

impl MetDamage {
    #[cold]
    pub fn note(&self, error: &RunError) {
        if (error.is_damage() || is_gone(error))
            && let Some(run) = error.path().and_then(run_of)
        {
            self.0
                .lock()
                .entry(run)
                .or_insert_with(|| error.to_string());
        }
    }

    pub fn all(&self) -> BTreeMap<RunId, String> {
        self.0.lock().clone()
    }
}

/// Returns whether the run's file was not found.
fn is_gone(error: &RunError) -> bool {
    matches!(error, RunError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
}
