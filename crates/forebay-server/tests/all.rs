//! All tests of this folder in one binary, because each binary is linked separately.
//!
//! `cargo test -p forebay-server --test server security::` runs those of security.rs.

mod administration;
mod cluster;
mod cluster_commands;
mod cluster_faults;
mod cluster_http;
mod cluster_live;
mod cluster_tls;
mod cluster_walks;
mod commands;
mod common;
mod compare;
mod default_table;
mod events;
mod http;
mod net;
mod partitions;
mod probes;
mod records;
mod secrets;
mod security;
mod serving;
mod time;
mod transactions;
