//! All tests of this folder in one binary, since each binary is linked by itself.
//! `cargo test -p forebay --test library library::` runs those of library.rs.

mod examples;
mod library;
