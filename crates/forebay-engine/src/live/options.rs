//! What a live table is made with. Kept in its manifest; fixed once the table exists.

use forebay_run::format::{Compression, Order};
use forebay_run::hash::SLOTS;
use forebay_run::operation::DeltaKind;
use forebay_run::row::{Column, Kind, Schema};
use serde::{Deserialize, Serialize};

use crate::bound::Bound;
use crate::live::expiry::Expiry;
use crate::live::log::Durability;
use crate::manifest::{MAX_PARTITIONS, ValueKind};

/// How to make a live table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LiveOptions {
    pub order: Order,
    /// Where the partitions begin, rising from the first place there is; see
    /// [`LiveOptions::hashed`] and [`LiveOptions::ordered`].
    pub lowers: Vec<Bound>,
    /// What `+` means in this table; without it deltas are refused.
    pub delta: Option<DeltaKind>,
    /// When a write is acknowledged; without it the table has no log, and what was written since the last
    /// flush is lost when its process ends: for bulk loading.
    pub durability: Option<Durability>,
    /// Whether records expire.
    #[serde(default)]
    pub expiry: Expiry,
    /// How many runs of a level are merged into one of the next: the paper's b.
    pub factor: u32,
    /// The most that merges write, in bytes a second; without it as much as the disk takes.
    pub merge_bytes_per_second: Option<u64>,
    pub compression: Compression,
    /// What the values are, for those who show them.
    pub value: ValueKind,
    /// The columns of a row; of a bytes or list table, its one column.
    pub schema: Schema,
}

/// Partitions of a hashed table unless told otherwise.
const HASHED_PARTITIONS: u32 = 4;

impl LiveOptions {
    /// A hashed table of four partitions with bytes as values, every write synced, the paper's factor.
    pub fn hashed() -> Self {
        Self::new(Order::Hashed, Vec::new()).partitions(HASHED_PARTITIONS)
    }

    /// An ordered table; otherwise as [`LiveOptions::hashed`]. `boundaries` are the keys at which
    /// partitions begin, but for the first, which begins before all keys.
    pub fn ordered(boundaries: Vec<Vec<u8>>) -> Self {
        let keys = std::iter::once(Vec::new()).chain(boundaries);
        Self::new(Order::Ordered, keys.map(Bound::Key).collect())
    }

    fn new(order: Order, lowers: Vec<Bound>) -> Self {
        let column = "value".to_owned();
        Self {
            order,
            lowers,
            delta: None,
            durability: Some(Durability::Sync),
            expiry: Expiry::Never,
            factor: 4,
            merge_bytes_per_second: None,
            compression: Compression::None,
            schema: Schema::new(vec![Column::new(&column, Kind::Binary, false)]),
            value: ValueKind::Bytes { column },
        }
    }

    /// Cuts a hashed table into so many partitions of equally many slots.
    #[must_use]
    pub fn partitions(mut self, partitions: u32) -> Self {
        let slot = |number: u32| Bound::Slot((number * SLOTS / partitions.max(1)) as u16);
        self.lowers = (0..partitions.min(SLOTS)).map(slot).collect();
        self
    }

    #[must_use]
    pub fn delta(mut self, kind: DeltaKind) -> Self {
        self.delta = Some(kind);
        self
    }

    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = Some(durability);
        self
    }

    /// Does without a log: see [`LiveOptions::durability`].
    #[must_use]
    pub fn unlogged(mut self) -> Self {
        self.durability = None;
        self
    }

    #[must_use]
    pub fn expiry(mut self, expiry: Expiry) -> Self {
        self.expiry = expiry;
        self
    }

    #[must_use]
    pub fn factor(mut self, factor: u32) -> Self {
        self.factor = factor;
        self
    }

    /// What is wrong with the options, if anything.
    pub(crate) fn check(&self) -> Result<(), String> {
        let first = match self.order {
            Order::Hashed => Bound::Slot(0),
            Order::Ordered => Bound::Key(Vec::new()),
        };
        let of_order =
            |bound: &Bound| matches!(bound, Bound::Slot(_)) == matches!(first, Bound::Slot(_));
        if self.lowers.first() != Some(&first) {
            return Err("the first partition does not begin at the first place there is".into());
        }
        if self.lowers.len() > MAX_PARTITIONS {
            return Err(format!("more than {MAX_PARTITIONS} partitions"));
        }
        if !self.lowers.iter().all(of_order) {
            return Err("its partitions begin at places of another order".into());
        }
        if let Some(pair) = self.lowers.windows(2).find(|pair| pair[0] >= pair[1]) {
            return Err(format!(
                "the boundaries do not rise: {} is not below {}",
                pair[0], pair[1]
            ));
        }
        if !(2..=32).contains(&self.factor) {
            return Err(format!("the factor {} is not from 2 to 32", self.factor));
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

    #[test]
    fn partitions_that_do_not_rise_from_the_start_are_refused() {
        for good in [
            LiveOptions::hashed(),
            LiveOptions::hashed().partitions(1),
            LiveOptions::hashed().partitions(SLOTS),
            LiveOptions::ordered(Vec::new()),
            LiveOptions::ordered(vec![b"g".to_vec(), b"p".to_vec()]),
        ] {
            assert_eq!(good.check(), Ok(()), "{good:?}");
        }
        for bad in [
            LiveOptions::hashed().partitions(0),
            LiveOptions::ordered(vec![b"p".to_vec(), b"g".to_vec()]),
            LiveOptions::ordered(vec![Vec::new()]),
            LiveOptions::hashed().factor(1),
            LiveOptions {
                lowers: vec![Bound::Key(Vec::new())],
                ..LiveOptions::hashed()
            },
        ] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn options_come_back_from_json() {
        let options = LiveOptions::ordered(vec![b"m".to_vec()]).delta(DeltaKind::AddI64);
        let text = serde_json::to_string(&options).unwrap();
        assert_eq!(serde_json::from_str::<LiveOptions>(&text).unwrap(), options);
    }
}
