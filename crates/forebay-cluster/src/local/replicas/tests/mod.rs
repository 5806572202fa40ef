//! Three nodes in one process, and one replica on a simulated disk.

mod loads;
mod nodes;
mod runs;
mod splits;
