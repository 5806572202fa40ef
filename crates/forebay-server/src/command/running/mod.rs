//! Running a command: its call, the keys that it holds, transactions.

pub(in crate::command) mod call;
pub(in crate::command) mod evaluation;
pub(in crate::command) mod exec;
pub(in crate::command) mod float_text;
pub(in crate::command) mod held;
pub(in crate::command) mod moments;
pub(in crate::command) mod names;
pub(in crate::command) mod transaction;
pub(in crate::command) mod txn;
pub(in crate::command) mod value;
pub(in crate::command) mod write;
