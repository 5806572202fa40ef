//! Tests with three nodes in one process, and with one replica on a simulated disk.

mod loads;
mod nodes;
mod runs;
mod splits;
