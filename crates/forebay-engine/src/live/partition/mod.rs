//! Partitions: their sources, locks and scans, and the table's shared state.

pub(in crate::live) mod access;
pub(in crate::live) mod budget;
pub(in crate::live) mod entry;
pub(in crate::live) mod part;
pub(in crate::live) mod parts;
pub(in crate::live) mod scan;
pub(in crate::live) mod shared;
