//! Splits and moves before a bulk insert, so that it runs on all machines alike.

mod construct;
mod fluid;
mod paper;
mod problem;
mod rooms;
mod search;
mod solve;
mod state;
mod trim;

pub use problem::{Item, Loads, Machine, Problem};
pub use solve::{Mode, Solution, solve};
