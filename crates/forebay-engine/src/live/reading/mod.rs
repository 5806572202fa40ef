//! The path of a read: single keys and snapshots.

pub(in crate::live) mod many;
pub(in crate::live) mod snapshot;
