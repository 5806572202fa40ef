//! Commands on values that are strings or numbers.

pub(in crate::command) mod bits;
pub(in crate::command) mod compare;
pub(in crate::command) mod count;
pub(in crate::command) mod get;
pub(in crate::command) mod string;
