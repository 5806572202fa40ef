//! Three nodes in one process.

mod nodes;
mod runs;
