//! Clusters in one process on simulated time: real servers, coordinators and replicas, on disks and
//! a network in memory, by a clock that passes while all of them wait. So no test depends on how
//! fast the machine is, and none waits for long.
//!
//! It is a binary of its own, and its tests run one after the other: the clock stands still while
//! anything of the process runs.

mod batch;
mod checkpoints;
mod clients;
mod cluster;
#[allow(dead_code, reason = "the other tests use the rest")]
#[path = "../common/mod.rs"]
mod common;
mod events;
mod live;
mod node;
