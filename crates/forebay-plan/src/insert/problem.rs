//! The move/insert problem in numbers: which machine inserts each partition's new records.
//!
//! Cost of an assignment = what moving costs the machine that pays most + what inserting costs the
//! machine that pays most. A partition that leaves its home costs its move on both machines.

use super::limits::Limits;

/// A replica of a partition, or its only one, that can be moved: its costs on a machine of speed 1,
/// and its home.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct InsertItem {
    /// The cost of its inserts, on any machine.
    pub insert: f64,
    /// The cost of its move, to its old and to its new machine.
    pub moving: f64,
    pub home: u32,
    /// Whether it may not be moved.
    pub pinned: bool,
}

/// A machine: its speed, and its other work.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Machine {
    /// How many times faster than a machine of speed 1 it inserts.
    pub insert_speed: f64,
    /// How many times faster it sends and receives partitions.
    pub move_speed: f64,
    /// The insert cost of its other work, at speed 1.
    pub insert_load: f64,
    /// The move cost of its other work, at speed 1.
    pub move_load: f64,
    /// Whether partitions may be moved to it.
    pub takes: bool,
    /// Whether its partitions may be moved away.
    pub gives: bool,
    /// Its zone: machines of one zone fail together. None: the machine fails alone.
    pub zone: Option<u32>,
}

impl Default for Machine {
    fn default() -> Self {
        Self {
            insert_speed: 1.0,
            move_speed: 1.0,
            insert_load: 0.0,
            move_load: 0.0,
            takes: true,
            gives: true,
            zone: None,
        }
    }
}

/// One instance. Homes are below the number of machines, of which there is at least one.
#[derive(Debug, Clone, Default)]
pub struct Problem {
    pub items: Vec<InsertItem>,
    pub machines: Vec<Machine>,
    pub limits: Option<Limits>,
}

/// Each machine's time for moving and for inserting.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Loads {
    pub insert: Vec<f64>,
    pub moving: Vec<f64>,
}

impl Loads {
    pub fn insert_max(&self) -> f64 {
        max(&self.insert)
    }

    pub fn move_max(&self) -> f64 {
        max(&self.moving)
    }

    pub fn cost(&self) -> f64 {
        self.insert_max() + self.move_max()
    }
}

fn max(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max)
}

impl Problem {
    /// Returns the assignment without moves.
    pub fn homes(&self) -> Vec<u32> {
        self.items.iter().map(|item| item.home).collect()
    }

    /// Returns whether a planner may consider moving this item. Moving one that receives nothing
    /// gains nothing, unless its bytes have to move.
    pub fn is_movable(&self, item: &InsertItem) -> bool {
        let bytes_count = self
            .limits
            .as_ref()
            .is_some_and(|limits| limits.drained[item.home as usize] || limits.has_room_limits);
        let gains = item.insert > 0.0 || bytes_count;
        !item.pinned && gains && self.machines[item.home as usize].gives
    }

    /// Returns whether a machine has to be empty in the end.
    pub fn is_drained(&self, machine: usize) -> bool {
        self.limits
            .as_ref()
            .is_some_and(|limits| limits.drained[machine])
    }

    /// Returns the machines' times under an assignment, computed from nothing.
    pub fn loads(&self, dest: &[u32]) -> Loads {
        let mut insert: Vec<f64> = self.machines.iter().map(|m| m.insert_load).collect();
        let mut moving: Vec<f64> = self.machines.iter().map(|m| m.move_load).collect();
        for (item, &to) in self.items.iter().zip(dest) {
            insert[to as usize] += item.insert;
            if to != item.home {
                moving[to as usize] += item.moving;
                moving[item.home as usize] += item.moving;
            }
        }
        for (index, machine) in self.machines.iter().enumerate() {
            insert[index] /= machine.insert_speed;
            moving[index] /= machine.move_speed;
        }
        Loads { insert, moving }
    }

    pub fn cost(&self, dest: &[u32]) -> f64 {
        self.loads(dest).cost()
    }
}
