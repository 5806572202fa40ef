//! Tests of hosts with logs and states in memory, in real time: what threads add to the state
//! machines.
//!
//! `forebay-replica` tests the machines themselves, over simulated time.

mod engine;
mod fakes;
mod full_disk;
mod groups;
mod partition;
mod ring;
mod small_disk;
