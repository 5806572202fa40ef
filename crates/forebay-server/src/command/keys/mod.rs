//! Commands on keys of any kind: expiry, renaming, scans, ranges, records.

pub(in crate::command) mod expire;
pub(in crate::command) mod keyspace;
pub(in crate::command) mod put;
pub(in crate::command) mod range;
pub(in crate::command) mod record;
pub(in crate::command) mod rename;
pub(in crate::command) mod scan;
