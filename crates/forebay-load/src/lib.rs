//! forebay-load

pub mod encode;
pub mod gate;
pub mod key;
pub mod progress;
pub mod sort;
pub mod sources;
pub mod types;
