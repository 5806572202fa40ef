//! Three nodes in one process.

mod loads;
mod nodes;
mod runs;
