//! Keeping tables: backups, restoring, dropping.

pub mod backup;
pub mod drop;
pub mod restore;
pub(in crate::commands) mod restore_in_cluster;
