//! All tests of this folder in one binary, since each binary is linked by itself.
//! `cargo test -p forebay-engine --test engine crash::` runs those of crash.rs.

mod activate;
mod backup;
mod collisions;
mod common;
mod crash;
mod diff;
mod dropped;
mod full_disk;
mod holding;
mod install;
mod layers;
mod live;
mod partitions;
mod proofs;
mod reads;
mod replica_log;
mod serving;
mod versions;
