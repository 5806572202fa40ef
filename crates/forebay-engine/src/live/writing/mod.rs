//! The path of a write: batches, transactions, commits, deletes of ranges, runs from outside.

pub(in crate::live) mod commit;
pub(in crate::live) mod ingest;
pub(in crate::live) mod pause;
pub(in crate::live) mod removal;
pub(in crate::live) mod settle;
pub(in crate::live) mod transact;
pub(in crate::live) mod write;
