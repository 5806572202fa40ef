//! What `forebay plan insert --json` prints. docs/reference/plan-json.md describes the fields.

use serde::Serialize;

use super::holders::Holders;
use super::request::Operation;
use crate::draw::Timeline;
use crate::{Key, PartitionMap, Plan};

/// Splits, and for each region where the pieces go.
#[derive(Debug, Clone, Serialize)]
pub struct InsertPlan {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub mode: &'static str,
    #[serde(skip)]
    pub operation: Operation,
    pub splits: Vec<Split>,
    /// Of the partitions after the splits, where there are any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub partitions: Vec<PieceReport>,
    /// Partitions that will be above the limit, as their keys cannot be told apart by the samples.
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
    /// The machine of each partition after the splits, or those of its replicas: one that moved
    /// stands where the one that it replaces stood.
    pub dest: Vec<Holders>,
    pub moves: Vec<Move>,
    pub cost: f64,
    pub cost_no_moves: f64,
    pub lower_bound: f64,
    /// Records that the busiest machine inserts, by its capacity.
    pub s_max: f64,
    /// Records that the busiest machine moves, by its capacity.
    pub o_max: f64,
    pub plan: Plan,
    /// Cut by [`RegionPlan::cut`]: the first step of each batch and the one after its last.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub batches: Vec<[usize; 2]>,
    /// What the plan begins with, for checking it.
    #[serde(skip)]
    pub map: PartitionMap,
    /// Names of the machines, where given.
    #[serde(skip)]
    pub machine_names: Vec<Option<String>>,
    /// When what is done, for the drawing.
    #[serde(skip)]
    pub timeline: Option<Timeline>,
}

impl RegionPlan {
    /// Cuts the plan into batches of at most so many bytes.
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

/// A partition, or one replica of it, goes to another machine.
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
