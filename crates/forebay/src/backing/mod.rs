//! Checkpoints of tables that are copied: from the nodes of a cluster, into and out of backups.

pub mod cluster_checkpoint;
mod node_files;
pub mod place;
pub mod scratch;
