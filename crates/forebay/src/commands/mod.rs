//! One module a command: its arguments, what it does, how it prints.

pub mod checkpoint;
pub mod cluster;
pub mod compact;
pub mod completions;
pub mod create;
pub mod diff;
pub mod drop;
pub mod dry_run;
pub mod export;
pub mod get;
pub mod load;
pub mod man;
pub mod plan;
pub mod pull;
pub mod push;
pub mod push_in_cluster;
pub mod pushed;
pub mod reading;
pub mod rollback;
pub mod scan;
pub mod serve;
pub mod serve_cluster;
pub mod swap;
pub mod tables;
pub mod verify;
pub mod versions;
