//! Recovery by an operator after a lost catalog or a lost store.

pub mod repair_store;
pub mod restore;
