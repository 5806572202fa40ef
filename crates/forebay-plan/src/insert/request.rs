//! The input of `forebay plan insert`. docs/reference/plan-json.md describes the fields.

use std::fmt;

use serde::de::value::SeqAccessDeserializer;
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::holders::Holders;
use crate::Key;
use crate::input::{objects, some_objects};

/// One planning task: either `partitions` or `tables`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    #[serde(default)]
    pub name: Option<String>,
    pub machines: MachineList,
    #[serde(default, deserialize_with = "some_objects")]
    pub partitions: Option<Vec<PartitionSpec>>,
    #[serde(default, deserialize_with = "some_objects")]
    pub tables: Option<Vec<TableSpec>>,
    /// Further regions: the same partitions and splits, other machines and homes.
    #[serde(default, deserialize_with = "objects")]
    pub regions: Vec<RegionSpec>,
    #[serde(default)]
    pub operation: Operation,
    /// The most records a partition may have.
    #[serde(default)]
    pub pi: Option<f64>,
    /// The most bytes a partition may have, with `record_bytes`.
    #[serde(default)]
    pub pi_bytes: Option<f64>,
    /// The part of the limit that pieces are split to.
    #[serde(default)]
    pub fill: Option<f64>,
    /// The cost of a moved record, at each end, where an inserted one costs `record_price`.
    #[serde(default = "one")]
    pub move_price: f64,
    /// The cost of handing over a partition, at each end, whatever its size.
    #[serde(default)]
    pub handover_price: f64,
    #[serde(default)]
    pub record_price: Option<f64>,
    #[serde(default = "one")]
    pub record_bytes: f64,
    #[serde(default)]
    pub bytes_per_second: Option<f64>,
    #[serde(default)]
    pub records_per_second: Option<f64>,
    #[serde(default = "one_transfer")]
    pub max_transfers: u32,
    /// The bytes that a machine may have, at every step and after the inserts.
    #[serde(default)]
    pub storage_bytes: Option<f64>,
    /// The bytes that all moves of a region may carry together.
    #[serde(default)]
    pub max_moved_bytes: Option<f64>,
    #[serde(default)]
    pub seed: u64,
    /// The limit applies to what moves by itself: neighbouring pieces of a partition with the same
    /// machines in the end are joined again, however large. For tables with keys.
    #[serde(skip)]
    pub joins: bool,
}

impl Default for Request {
    fn default() -> Self {
        Self {
            name: None,
            machines: MachineList::Count(1),
            partitions: None,
            tables: None,
            regions: Vec::new(),
            operation: Operation::default(),
            pi: None,
            pi_bytes: None,
            fill: None,
            move_price: one(),
            handover_price: 0.0,
            record_price: None,
            record_bytes: one(),
            bytes_per_second: None,
            records_per_second: None,
            max_transfers: one_transfer(),
            storage_bytes: None,
            max_moved_bytes: None,
            seed: 0,
            joins: false,
        }
    }
}

impl Request {
    /// Creates a request for tables, with defaults for everything else.
    pub fn of_tables(machines: Vec<MachineSpec>, tables: Vec<TableSpec>) -> Self {
        Self {
            machines: MachineList::Each(machines),
            tables: Some(tables),
            ..Self::default()
        }
    }
}

fn one() -> f64 {
    1.0
}

fn one_transfer() -> u32 {
    1
}

/// The kind of bulk operation. Only inserts make partitions grow, so only they split.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    #[default]
    Insert,
    Update,
    Delete,
}

impl Operation {
    /// Returns the price of a record. A delete carries the key alone.
    pub fn record_price(self) -> f64 {
        match self {
            Self::Insert | Self::Update => 1.0,
            Self::Delete => 0.25,
        }
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartitionSpec {
    /// The number of existing records.
    pub e: f64,
    /// The number of new records.
    pub n: f64,
    /// Its machine, or those of its replicas.
    pub h: Holders,
    /// The records that a running insert has still to insert.
    #[serde(default)]
    pub running: f64,
    /// Whether it stays on its machine.
    #[serde(default)]
    pub pinned: bool,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableSpec {
    #[serde(default)]
    pub name: Option<String>,
    /// The keys between the partitions; or the least key of each; or both ends and those between.
    pub boundaries: Vec<Key>,
    /// The machine of each partition, or those of its replicas.
    pub home: Vec<Holders>,
    /// The records in each partition, which its existing samples share evenly.
    #[serde(default)]
    pub existing: Option<Vec<f64>>,
    /// The record size of this table; the request's if it is not given.
    #[serde(default)]
    pub record_bytes: Option<f64>,
    /// All new records, which the new samples share evenly.
    #[serde(default)]
    pub new_records: Option<f64>,
    #[serde(default)]
    pub existing_samples: Vec<Key>,
    #[serde(default)]
    pub new_samples: Vec<Key>,
    /// The part of the records that was sampled, of both kinds unless one is given by itself.
    #[serde(default)]
    pub sample_fraction: Option<f64>,
    #[serde(default)]
    pub existing_fraction: Option<f64>,
    #[serde(default)]
    pub new_fraction: Option<f64>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RegionSpec {
    pub name: String,
    pub machines: MachineList,
    /// The home of each partition, a list for each table.
    pub homes: Vec<Vec<Holders>>,
}

/// A number of equal machines, or one object for each.
#[derive(Debug, Clone)]
pub enum MachineList {
    Count(usize),
    Each(Vec<MachineSpec>),
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineSpec {
    #[serde(default)]
    pub name: Option<String>,
    /// How many times faster than a machine of capacity 1 it inserts.
    #[serde(default = "one")]
    pub capacity: f64,
    /// How many times faster it moves; `capacity` if it is not given.
    #[serde(default)]
    pub move_capacity: Option<f64>,
    /// Its zone: machines of one zone fail together. Replicas in different zones stay so.
    #[serde(default)]
    pub zone: Option<String>,
    /// Whether partitions may be moved to it.
    #[serde(default = "yes")]
    pub takes: bool,
    /// Whether its partitions may be moved away.
    #[serde(default = "yes")]
    pub gives: bool,
    /// Whether all its partitions are moved away, and nothing is moved to it.
    #[serde(default)]
    pub drain: bool,
    /// The bytes that it may have.
    #[serde(default)]
    pub storage_bytes: Option<f64>,
    /// The records that it has to insert anyway.
    #[serde(default)]
    pub insert_load: f64,
    /// The records that it has to move anyway.
    #[serde(default)]
    pub move_load: f64,
    #[serde(default)]
    pub bytes_per_second: Option<f64>,
    #[serde(default)]
    pub records_per_second: Option<f64>,
    #[serde(default)]
    pub max_transfers: Option<u32>,
}

fn yes() -> bool {
    true
}

impl Default for MachineSpec {
    fn default() -> Self {
        Self {
            name: None,
            capacity: 1.0,
            move_capacity: None,
            zone: None,
            takes: true,
            gives: true,
            drain: false,
            storage_bytes: None,
            insert_load: 0.0,
            move_load: 0.0,
            bytes_per_second: None,
            records_per_second: None,
            max_transfers: None,
        }
    }
}

/// The most machines of a request: each costs memory.
const MOST_MACHINES: u64 = 10_000_000;

impl<'de> Deserialize<'de> for MachineList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(MachineListVisitor)
    }
}

struct MachineListVisitor;

impl MachineListVisitor {
    fn count<E: Error>(count: u64) -> Result<MachineList, E> {
        match count {
            1..=MOST_MACHINES => Ok(MachineList::Count(count as usize)),
            _ => Err(E::custom(format_args!(
                "{count} is not a number of machines between 1 and {MOST_MACHINES}"
            ))),
        }
    }
}

impl<'de> Visitor<'de> for MachineListVisitor {
    type Value = MachineList;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number of machines, or a list of them")
    }

    fn visit_u64<E: Error>(self, count: u64) -> Result<MachineList, E> {
        Self::count(count)
    }

    fn visit_i64<E: Error>(self, count: i64) -> Result<MachineList, E> {
        Err(E::custom(format_args!(
            "{count} is not a number of machines of at least 1"
        )))
    }

    fn visit_f64<E: Error>(self, count: f64) -> Result<MachineList, E> {
        if count.fract() == 0.0 && count >= 0.0 && count <= MOST_MACHINES as f64 {
            return Self::count(count as u64);
        }
        Err(E::custom(format_args!(
            "{count} is not a number of machines of at least 1"
        )))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<MachineList, A::Error> {
        let machines: Vec<MachineSpec> = objects(SeqAccessDeserializer::new(list))?;
        if machines.is_empty() {
            return Err(A::Error::custom("there has to be at least one machine"));
        }
        Ok(MachineList::Each(machines))
    }
}
