//! Live tables: creating and loading them, checkpoints.

pub mod checkpoint;
pub mod create;
pub mod create_in_cluster;
pub(in crate::commands) mod index_loads;
pub(in crate::commands) mod insert_planning;
pub mod load;
pub mod load_in_cluster;
pub mod load_rows;
