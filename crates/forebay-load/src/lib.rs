//! forebay-load

pub mod gate;
pub mod progress;
pub mod sort;
