//! Builds versions of tables from files, and writes tables to files.
//!
//! `sources` reads Parquet, CSV, JSON lines and Arrow files as batches. `convert` converts their
//! values to the types of the table. `encode` makes keys and values from rows. `sort` sorts them
//! within a memory budget and writes runs. `gate` compares a version with the serving one. `push`
//! combines all of these; `distributed` does so with tasks of another engine, and `load` for live
//! tables. `export` writes tables to files.

pub(crate) mod column_profile;
pub mod convert;
pub mod distributed;
pub mod encode;
pub mod export;
pub mod gate;
pub mod key;
pub mod load;
mod near;
pub mod progress;
pub mod push;
pub mod sort;
pub mod sources;
pub mod type_name;
pub mod types;
mod uuid;
