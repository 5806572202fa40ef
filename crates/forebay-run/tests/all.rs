//! All tests of this folder in one binary, since each binary is linked by itself.
//! `cargo test -p forebay-run --test run damage::` runs those of damage.rs.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::type_complexity
)]

mod algebra;
mod common;
mod damage;
mod merging;
mod round_trips;
