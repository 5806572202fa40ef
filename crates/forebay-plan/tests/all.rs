//! All tests of this folder in one binary, since each binary is linked by itself. `cargo test -p
//! forebay-plan --test plan insert_quality::` runs those of insert_quality.rs.

mod common;
mod insert_limits;
mod insert_properties;
mod insert_quality;
mod insert_replicas;
mod insert_requests;
mod insert_samples;
