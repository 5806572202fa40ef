//! Commands on lists.

pub(in crate::command) mod list;
pub(in crate::command) mod list_edit;
pub(in crate::command) mod list_move;
