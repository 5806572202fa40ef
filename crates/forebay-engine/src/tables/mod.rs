//! Stores, tables and their versions, open for reading.

pub(crate) mod batch;
pub(crate) mod history;
pub(crate) mod scan;
pub(crate) mod store;
pub(crate) mod table;
pub(crate) mod version;
