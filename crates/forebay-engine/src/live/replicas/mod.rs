//! Partitions that are placed, copied, split and released, as replicas are.

pub(in crate::live) mod copies;
pub(in crate::live) mod entry_load;
pub(in crate::live) mod holding;
pub(in crate::live) mod place_copy;
pub(in crate::live) mod split;
