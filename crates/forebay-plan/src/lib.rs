//! Planners: pure functions from a partition map, loads or samples, and prices, to a plan.
//!
//! A [`Plan`] is data: steps (split, copy, drop, hand over, move) with dependencies, bytes and
//! records, their price, and a lower bound for all plans. It serialises to JSON
//! (docs/reference/plan-json.md). It can be validated against a [`PartitionMap`], simulated step by
//! step, divided into batches and drawn.
//!
//! Planners read no files and no clock, and randomness has a seed: the same input gives the same
//! plan. If time limits a search, the caller passes a function that says when it is over.

pub mod draw;
pub mod input;
pub mod insert;
mod key;
pub mod lists;
pub mod placement;
pub mod plan;
mod random;

pub use input::InputError;
pub use key::Key;
pub use plan::{Action, Node, NodePrice, Partition, PartitionMap, Plan, Price, Step};
pub use random::Random;
