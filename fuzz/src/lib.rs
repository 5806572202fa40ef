//! The fuzz targets: each `check` takes any bytes and panics when the code under test does, or when
//! an answer of it cannot be right. `samples` are good inputs to start from.

pub mod log;
pub mod manifest;
pub mod mutate;
pub mod replica_log;
pub mod resp;
pub mod run;
