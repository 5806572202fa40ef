//! Batch tables: pushing, pulling, swapping, rolling back, comparing and compacting versions.

pub mod compact;
pub mod diff;
pub mod dry_run;
pub mod pull;
pub mod push;
pub mod push_in_cluster;
pub mod push_result;
pub mod rollback;
pub mod swap;
pub mod verify;
pub mod versions;
