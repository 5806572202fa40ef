//! Planners: pure functions from a partition map, loads or samples, and prices, to a plan.
//!
//! A [`Plan`] is data: steps (split, copy, drop, hand over, move) with dependencies, bytes and
//! records, their price, and a lower bound that no plan can beat. It serialises to JSON
//! (docs/reference/plan-json.md), is validated against a [`PartitionMap`], simulated step by step,
//! cut into batches and drawn.
//!
//! Nothing here reads a file or a clock, and randomness comes from a seed: the same input gives the
//! same plan. Where time bounds a search, the caller hands in what says that it is over.

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
