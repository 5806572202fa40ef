//! Forebay's run format: immutable, sorted, checksummed files of records.
//!
//! A *run* holds records in one of two orders, by hash or by key; `docs/format.md` specifies it byte
//! by byte. This crate writes runs, reads them, merges them and verifies them. It knows nothing of
//! tables, versions or the network.

pub mod content;
pub mod hash;
pub mod io;
pub mod raw;
