//! The limits of a plan besides its cost.
//!
//! They are the bytes that a machine may have, the bytes that may be moved in all, drained
//! machines, and separate replicas. The limits on bytes and replicas hold at every step, not only
//! at the end.

use super::siblings::Siblings;

/// A tolerance: sums in another order may differ in their last digits.
pub const LIMIT_SLACK: f64 = 1.0 + 1e-12;

/// The limits of one instance.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Limits {
    /// The bytes that each item's move carries.
    pub bytes: Vec<f64>,
    /// The most bytes of each item, now or after the inserts.
    pub grown: Vec<f64>,
    /// The bytes that each machine may have; infinite if there is no limit.
    pub room: Vec<f64>,
    /// Whether one of these is finite.
    pub has_room_limits: bool,
    /// The bytes that all moves may carry together.
    pub max_moved: f64,
    /// The machines that have to be empty in the end. They take no partitions.
    pub drained: Vec<bool>,
    /// The items that may not be on one machine.
    pub siblings: Siblings,
}

/// The limit that no plan was found for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum UnmetLimit {
    /// A machine would have more bytes than it may.
    Room { machine: u32, bytes: f64, room: f64 },
    /// The required moves carry more bytes than may be moved.
    Moved { bytes: f64, limit: f64 },
    /// A drained machine's partitions fit nowhere else.
    Drained { machine: u32 },
    /// At the end the machine has room, but moves to it wait for moves that wait for them.
    Order { machine: u32 },
}

impl Limits {
    /// Returns limits that restrict nothing.
    pub fn open(items: usize, machines: usize) -> Self {
        Self {
            bytes: vec![0.0; items],
            grown: vec![0.0; items],
            room: vec![f64::INFINITY; machines],
            has_room_limits: false,
            max_moved: f64::INFINITY,
            drained: vec![false; machines],
            siblings: Siblings::default(),
        }
    }

    /// Returns whether an assignment without moves may break them.
    pub fn may_ask_for_moves(&self) -> bool {
        self.has_room_limits || self.drained.contains(&true)
    }

    /// Returns the bytes on each machine after the inserts.
    pub fn held(&self, dest: &[u32]) -> Vec<f64> {
        self.sums(&self.grown, dest)
    }

    /// Returns the bytes on each machine before the inserts.
    pub fn existing(&self, dest: &[u32]) -> Vec<f64> {
        self.sums(&self.bytes, dest)
    }

    fn sums(&self, bytes: &[f64], dest: &[u32]) -> Vec<f64> {
        let mut sums = vec![0.0; self.room.len()];
        for (bytes, &to) in bytes.iter().zip(dest) {
            sums[to as usize] += bytes;
        }
        sums
    }

    pub fn fits(&self, machine: usize, bytes: f64) -> bool {
        bytes <= self.room[machine] * LIMIT_SLACK
    }
}
