//! The options of a live table.

use forebay_run::format::{Compression, Order};
use forebay_run::hash::SLOTS;
use forebay_run::operation::DeltaKind;
use forebay_run::row::{Column, Kind, Schema};
use serde::{Deserialize, Serialize};

use crate::documents::manifest::ValueKind;
use crate::keys::bound::Bound;
use crate::keys::partition::{OpenPartitions, PartitionRange, check_apart, numbered};
use crate::live::basics::expiry::Expiry;
use crate::live::log::Durability;

/// The options that a live table has from its creation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LiveOptions {
    pub order: Order,
    /// The meaning of a delta (`+`) in this table. Without it deltas are refused.
    pub delta: Option<DeltaKind>,
    /// When a write is acknowledged. Without it the table has no log, and writes since the last
    /// flush are lost when its process ends: for bulk loading. In a replicated table it is the
    /// durability of the log beside it, which is not the engine's.
    pub durability: Option<Durability>,
    /// Set if its partitions are replicas, to which only decided entries are written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replication: Option<Replication>,
    /// Whether records expire.
    #[serde(default)]
    pub expiry: Expiry,
    /// How many runs of a level are merged into one of the next: the paper's b.
    pub factor: u32,
    /// The limit of all merges together, in bytes a second written into files of runs. Without it
    /// they use as much as the disk takes. Reads are not counted.
    pub merge_bytes_per_second: Option<u64>,
    pub compression: Compression,
    /// The type of the values, for programs that show them.
    pub value: ValueKind,
    /// The columns of a row. A bytes or list table has one column.
    pub schema: Schema,
}

/// How the replicas of a partition agree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Replication {
    /// One replica leads, and a majority decides each write.
    Leader,
}

/// The description of a new live table: see [`LiveDraft::hashed`] and [`LiveDraft::ordered`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveDraft {
    pub options: LiveOptions,
    /// Rising. Operations on keys outside all of them fail with
    /// [`LiveError::NotHere`](crate::live::LiveError::NotHere).
    pub partitions: Vec<PartitionRange>,
}

/// The default number of partitions of a hashed table.
const HASHED_PARTITIONS: u32 = 4;

impl LiveDraft {
    /// Describes a hashed table of four partitions with bytes as values, every write synced, and
    /// the paper's factor.
    pub fn hashed() -> Self {
        Self::new(Order::Hashed, Vec::new()).partitions(HASHED_PARTITIONS)
    }

    /// Describes an ordered table; otherwise like [`LiveDraft::hashed`]. `boundaries` are the keys
    /// at which partitions begin, without the first partition, which begins before all keys.
    pub fn ordered(boundaries: Vec<Vec<u8>>) -> Self {
        let keys = std::iter::once(Vec::new()).chain(boundaries);
        Self::new(Order::Ordered, numbered(keys.map(Bound::Key).collect()))
    }

    fn new(order: Order, partitions: Vec<PartitionRange>) -> Self {
        let column = "value".to_owned();
        let options = LiveOptions {
            order,
            delta: None,
            durability: Some(Durability::Sync),
            replication: None,
            expiry: Expiry::Never,
            factor: 4,
            merge_bytes_per_second: None,
            compression: Compression::None,
            schema: Schema::new(vec![Column::new(&column, Kind::Binary, false)]),
            value: ValueKind::Bytes { column },
        };
        Self {
            options,
            partitions,
        }
    }

    /// Divides a hashed table into this many partitions of equally many slots.
    #[must_use]
    pub fn partitions(mut self, partitions: u32) -> Self {
        let slot = |number: u32| Bound::Slot((number * SLOTS / partitions.max(1)) as u16);
        self.partitions = numbered((0..partitions.min(SLOTS)).map(slot).collect());
        self
    }

    /// Removes the partitions that are not `held`.
    #[must_use]
    pub fn holding(mut self, held: &OpenPartitions) -> Self {
        self.partitions.retain(|range| held.holds(range.id));
        self
    }

    #[must_use]
    pub fn delta(mut self, kind: DeltaKind) -> Self {
        self.options.delta = Some(kind);
        self
    }

    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.options.durability = Some(durability);
        self
    }

    /// Removes the log: see [`LiveOptions::durability`].
    #[must_use]
    pub fn unlogged(mut self) -> Self {
        self.options.durability = None;
        self
    }

    /// Makes the partitions replicas: see [`LiveOptions::replication`]. There may be no partition
    /// yet.
    #[must_use]
    pub fn replicated(mut self, replication: Replication) -> Self {
        self.options.replication = Some(replication);
        self
    }

    #[must_use]
    pub fn expiry(mut self, expiry: Expiry) -> Self {
        self.options.expiry = expiry;
        self
    }

    #[must_use]
    pub fn factor(mut self, factor: u32) -> Self {
        self.options.factor = factor;
        self
    }

    /// Returns an error if the draft is not valid.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.partitions.is_empty() && self.options.replication.is_none() {
            return Err("it has no partition".into());
        }
        let ranges = self.partitions.iter();
        check_apart(
            self.options.order,
            ranges.map(|range| (range.id, &range.bounds)),
        )?;
        self.options.check()
    }
}

impl LiveOptions {
    /// Returns an error if the options are not valid.
    pub(crate) fn check(&self) -> Result<(), String> {
        if !(2..=32).contains(&self.factor) {
            return Err(format!("the factor {} is not from 2 to 32", self.factor));
        }
        if self.replication.is_some() && self.durability.is_none() {
            return Err("replicas without a durability promise nothing: give one".into());
        }
        if self.expiry == Expiry::AfterMs(0) {
            return Err("records that expire after 0 ms are never there".into());
        }
        if self.merge_bytes_per_second == Some(0) {
            return Err("merges that may write 0 bytes a second never end".into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::partition::PartitionId;

    #[test]
    fn partitions_that_do_not_rise_are_refused() {
        let second = OpenPartitions::Only([PartitionId(1)].into());
        for good in [
            LiveDraft::hashed(),
            LiveDraft::hashed().partitions(1),
            LiveDraft::hashed().partitions(SLOTS),
            LiveDraft::hashed().holding(&second),
            LiveDraft::ordered(Vec::new()),
            LiveDraft::ordered(vec![b"g".to_vec(), b"p".to_vec()]),
            LiveDraft::hashed()
                .partitions(0)
                .replicated(Replication::Leader),
        ] {
            assert_eq!(good.check(), Ok(()), "{good:?}");
        }
        for bad in [
            LiveDraft::hashed().partitions(0),
            LiveDraft::ordered(vec![b"p".to_vec(), b"g".to_vec()]),
            LiveDraft::ordered(vec![Vec::new()]),
            LiveDraft::hashed().factor(1),
            LiveDraft::hashed()
                .unlogged()
                .replicated(Replication::Leader),
            LiveDraft {
                partitions: numbered(vec![Bound::Key(Vec::new())]),
                ..LiveDraft::hashed()
            },
        ] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn options_are_read_back_from_json() {
        let plain = LiveDraft::hashed().delta(DeltaKind::AddI64);
        let replicated = plain.clone().replicated(Replication::Leader);
        for (draft, is_named) in [(plain, false), (replicated, true)] {
            let options = draft.options;
            let text = serde_json::to_string(&options).unwrap();
            assert_eq!(serde_json::from_str::<LiveOptions>(&text).unwrap(), options);
            assert_eq!(text.contains(r#""replication":"leader""#), is_named);
        }
    }
}
