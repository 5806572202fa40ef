//! Reading and showing tables.

pub(in crate::commands) mod column_figures;
pub mod describe;
pub mod events;
pub mod export;
pub mod get;
pub mod reading;
pub mod scan;
pub mod tables;
pub mod top;
