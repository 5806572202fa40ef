//! Work in the background: flushes and merges, and the pace and room for them.

pub(in crate::live) mod background;
pub(in crate::live) mod compaction;
pub(in crate::live) mod flush;
pub(in crate::live) mod freeze;
pub(in crate::live) mod memory_compaction;
pub(in crate::live) mod pace;
pub(in crate::live) mod room;
pub(in crate::live) mod size;
pub(in crate::live) mod stats;
pub(in crate::live) mod sweep;
