//! Splits and moves before a bulk insert, so that it runs on all machines alike
//! (docs/papers/planned-bulk-insertion.md).

mod construct;
mod fluid;
mod keeping;
mod least_loaded;
mod limits;
mod order;
mod paper;
mod picture;
mod pieces;
mod planner;
mod problem;
mod region;
mod request;
mod search;
mod solve;
mod split;
mod state;
mod timeline;
mod trim;

pub use limits::{Limits, Unmet};
pub use planner::{InsertPlan, Move, PieceReport, RegionPlan, Split, plan};
pub use problem::{InsertItem, Loads, Machine, Problem};
pub use request::{MachineList, MachineSpec, Operation, PartitionSpec, Request, TableSpec};
pub use solve::{Mode, Solution, solve};
