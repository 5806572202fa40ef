//! The move/insert problem in numbers: which machine each partition's new records are inserted on.
//!
//! Cost of an assignment = what moving costs the machine that pays most + what inserting costs the
//! machine that pays most. A partition that leaves its home costs its move on both machines.

use super::limits::Limits;

/// What can be moved, a replica of a partition or its only one: its costs on a machine of speed 1,
/// and where it is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct InsertItem {
    /// Cost of its inserts, wherever it is.
    pub insert: f64,
    /// Cost of its move, to the machine it leaves and to the one that it goes to.
    pub moving: f64,
    pub home: u32,
    /// It may not be moved.
    pub pinned: bool,
}

/// A machine: its speed, and what it does besides.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Machine {
    /// How many times faster than a machine of speed 1 it inserts.
    pub insert_speed: f64,
    /// How many times faster it sends and receives partitions.
    pub move_speed: f64,
    /// Insert cost that it has anyway, at speed 1.
    pub insert_load: f64,
    /// Move cost that it has anyway, at speed 1.
    pub move_load: f64,
    /// Partitions may be moved to it.
    pub takes: bool,
    /// Its partitions may be moved away.
    pub gives: bool,
    /// Machines of one zone fail together; none: each by itself.
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
    /// Everything where it is.
    pub fn homes(&self) -> Vec<u32> {
        self.items.iter().map(|item| item.home).collect()
    }

    /// Whether a planner may consider moving this one at all. Moving what receives nothing gains
    /// nothing, unless its bytes have to go.
    pub fn is_movable(&self, item: &InsertItem) -> bool {
        let bytes_count = self
            .limits
            .as_ref()
            .is_some_and(|limits| limits.drained[item.home as usize] || limits.has_room_limits);
        let gains = item.insert > 0.0 || bytes_count;
        !item.pinned && gains && self.machines[item.home as usize].gives
    }

    /// Whether a machine is to hold nothing in the end.
    pub fn is_drained(&self, machine: usize) -> bool {
        self.limits
            .as_ref()
            .is_some_and(|limits| limits.drained[machine])
    }

    /// The machines' times under an assignment, computed from nothing.
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
