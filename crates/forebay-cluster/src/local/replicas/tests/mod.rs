//! Three nodes in one process, and one replica on a simulated disk.

mod cuts;
mod loads;
mod nodes;
mod runs;
