//! Plans splits and moves before a bulk insert, so that all machines insert alike.
//!
//! docs/papers/planned-bulk-insertion.md describes the method.

mod carried;
mod construct;
mod fluid;
mod holders;
mod homes;
mod join;
mod keeping;
mod least_loaded;
mod limits;
mod order;
mod outcome;
mod paper;
mod picture;
mod pieces;
mod planner;
mod problem;
mod region;
mod request;
mod samples;
mod search;
mod siblings;
mod solve;
mod split;
mod state;
mod timeline;

pub use holders::Holders;
pub use limits::{Limits, UnmetLimit};
pub use outcome::{InsertPlan, Move, PieceReport, RegionPlan, Split};
pub use planner::plan;
pub use problem::{InsertItem, Loads, Machine, Problem};
pub use request::{
    MachineList, MachineSpec, Operation, PartitionSpec, RegionSpec, Request, TableSpec,
};
pub use siblings::Siblings;
pub use solve::{Mode, Solution, solve};
