//! forebay-load

pub mod progress;
