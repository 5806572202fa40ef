//! Live tables: written to one operation at a time, while they are read.

pub mod log;
