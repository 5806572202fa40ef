//! Simulated clusters: real servers, coordinators and replicas in one process on simulated time.
//!
//! Disks and the network are in memory. The clock advances only while all of them wait. So no test
//! depends on the speed of the machine, and none waits for long.
//!
//! It is a binary of its own, and its tests run one after another, because the clock stands still
//! while anything in the process runs.

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
