//! The output of `forebay plan insert --json`. docs/reference/plan-json.md describes the fields.

use serde::Serialize;

use super::holders::Holders;
use super::request::Operation;
use crate::draw::Timeline;
use crate::{Key, PartitionMap, Plan};

/// The splits, and the destinations of the pieces in each region.
#[derive(Debug, Clone, Serialize)]
pub struct InsertPlan {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub mode: &'static str,
    #[serde(skip)]
    pub operation: Operation,
    pub splits: Vec<Split>,
    /// The boundaries of the partitions after the splits, if there are any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub partitions: Vec<PieceReport>,
    /// The partitions that will exceed the limit, as the samples do not distinguish their keys.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub oversize: Vec<u32>,
    #[serde(flatten)]
    pub own: RegionPlan,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub regions: Vec<RegionPlan>,
}

#[derive(Debug, Clone, Serialize)]
pub struct RegionPlan {
    #[serde(rename = "region", skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub machines: usize,
    /// The machine of each partition after the splits, or those of its replicas. A replica that
    /// moved has the position of the one that it replaces.
    pub dest: Vec<Holders>,
    pub moves: Vec<Move>,
    pub cost: f64,
    pub cost_no_moves: f64,
    pub lower_bound: f64,
    /// The records that the busiest machine inserts, by its capacity.
    pub s_max: f64,
    /// The records that the busiest machine moves, by its capacity.
    pub o_max: f64,
    pub plan: Plan,
    /// The batches of [`RegionPlan::cut`]: the first step of each and the one after its last.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub batches: Vec<[usize; 2]>,
    /// The map before the plan, for checking it.
    #[serde(skip)]
    pub map: PartitionMap,
    /// The names of the machines, if given.
    #[serde(skip)]
    pub machine_names: Vec<Option<String>>,
    /// The times of all work, for the drawing.
    #[serde(skip)]
    pub timeline: Option<Timeline>,
}

impl RegionPlan {
    /// Divides the plan into batches of at most this many bytes.
    pub fn cut(&mut self, bytes: f64) {
        let batches = self.plan.batches(bytes).into_iter();
        self.batches = batches.map(|batch| [batch.start, batch.end]).collect();
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Split {
    pub partition: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Key>,
    pub right: u32,
}

/// The move of a partition, or of one replica of it, to another machine.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Move {
    pub partition: u32,
    pub from: u32,
    pub to: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PieceReport {
    pub id: u32,
    /// The partition, as given, that it is a piece of.
    pub of: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub table: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub low: Option<Key>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub high: Option<Key>,
    pub e: f64,
    pub n: f64,
    pub h: Holders,
}
