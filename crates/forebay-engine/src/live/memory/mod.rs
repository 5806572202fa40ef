//! The records in memory, and the runs that they become.

pub(in crate::live) mod cursor;
pub(in crate::live) mod memtable;
pub(in crate::live) mod mini;
pub(in crate::live) mod run;
