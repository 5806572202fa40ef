//! All tests of this folder in one binary, since each binary is linked by itself.
//! `cargo test -p forebay-run --test run damage::` runs those of damage.rs.

mod algebra;
mod common;
mod damage;
mod merging;
mod round_trips;
