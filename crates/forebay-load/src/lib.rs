//! From files to versions, and back to files.
//!
//! `sources` reads Parquet, CSV, JSON lines and Arrow files as batches, whose values `convert`
//! brings to the types of the table; `encode` makes keys and values of their rows; `sort` brings
//! them in order within a memory budget and writes runs; `gate` compares a version with the one
//! that serves; `push` is all of it together, `distributed` a push that tasks of another engine
//! build, and `load` the same into live tables.

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
