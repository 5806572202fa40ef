//! Commands on hashes, the columns of rows.

pub(in crate::command) mod cell;
pub(in crate::command) mod hash;
pub(in crate::command) mod hash_edit;
