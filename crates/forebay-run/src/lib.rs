//! Forebay's run format: immutable, sorted, checksummed files of records.
//!
//! A *run* contains records in one of two orders, by hash or by key; `docs/reference/run-format.md`
//! specifies it byte by byte. This crate writes, reads, merges and verifies runs. It does not
//! depend on tables, versions or the network.

pub mod batch;
pub mod bytes;
mod compose;
mod compress;
pub mod content;
mod decoded;
mod delta;
pub mod error;
pub mod filter;
pub mod format;
pub mod hash;
mod index;
pub mod merge;
pub mod number;
pub mod operation;
mod page;
mod pages;
pub mod record;
pub mod row;
pub mod run;
mod run_scan;
pub mod scan;
pub mod settle;
pub mod times;
pub mod verify;
pub mod writer;

pub use error::RunError;
pub use format::{Compression, MAX_KEY_BYTES, Order, RunOptions, RunSummary};
pub use record::FoundRecord;
pub use run::{Lookup, Run};
pub use run_scan::RunScan;
pub use writer::RunWriter;
