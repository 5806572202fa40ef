//! The plan that every planner makes: steps, their order, their price.

mod batch;
mod map;
mod schedule;
mod simulate;

use serde::{Deserialize, Serialize};

pub use map::{Node, Partition, PartitionMap};
pub use schedule::StepTime;
pub use simulate::{Simulation, SimulationError};

use crate::Key;

/// What a step does. Partitions are numbered as in the map; a split gives its right piece a new
/// number, the next one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub enum Action {
    /// Cuts a partition in two on every node that holds it: it keeps the keys below `at`, `right`
    /// gets the others.
    Split {
        partition: u32,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at: Option<Key>,
        right: u32,
    },
    /// Makes a replica on `to` from the one on `from`.
    Copy { partition: u32, from: u32, to: u32 },
    /// Gives up a replica that is not the primary.
    Drop { partition: u32, node: u32 },
    /// Makes the replica on `to` the primary in place of the one on `from`.
    HandOver { partition: u32, from: u32, to: u32 },
    /// The replica on `from` goes to `to` and leaves nothing behind: copy, hand over if it was the
    /// primary, drop. The new replica has the old one's place among the others.
    Move { partition: u32, from: u32, to: u32 },
}

/// One step: what it does, what it carries, which steps have to be done before.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Step {
    #[serde(flatten)]
    pub action: Action,
    /// Records that cross the network; for a split, those of the right piece.
    pub records: f64,
    pub bytes: f64,
    /// Positions in the plan of the steps that this one waits for; all stand before it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<u32>,
}

/// What one node pays, and its load at each stage, in the planner's unit of load.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct NodePrice {
    /// Its load before the plan.
    pub before: f64,
    /// Its load when all steps are done.
    pub after: f64,
    pub moved_in: f64,
    pub moved_out: f64,
    /// What would be inserted on it without the plan.
    pub insert_before: f64,
    /// What is inserted on it after the plan.
    pub insert_after: f64,
}

/// The price of a plan.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Price {
    /// What moving costs: the node that pays most.
    #[serde(rename = "move")]
    pub moving: f64,
    /// What inserting costs: the node that pays most.
    pub insert: f64,
    pub total: f64,
    pub nodes: Vec<NodePrice>,
}

/// An ordered list of steps and what they cost. docs/reference/plan-json.md describes the JSON.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub steps: Vec<Step>,
    pub price: Price,
    /// No plan for the same input costs less.
    pub lower_bound: f64,
    /// How long the steps and then the inserts take, where bandwidths were given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_seconds: Option<f64>,
}
