//! What nodes measure and report: reads, traffic, the state of replicas.

pub mod reads;
pub mod reporting;
pub mod reports;
pub mod traffic;
