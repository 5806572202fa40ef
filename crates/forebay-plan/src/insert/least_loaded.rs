//! Returns machines by how full they are, the emptiest first, while they fill up.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

#[derive(Debug, Clone, Copy, PartialEq)]
struct MachineFill {
    fill: f64,
    machine: u32,
}

impl Eq for MachineFill {}

impl Ord for MachineFill {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_fill = other.fill.total_cmp(&self.fill);
        by_fill.then(other.machine.cmp(&self.machine))
    }
}

impl PartialOrd for MachineFill {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// A heap of machines whose entries may be older than the machines' fill: the top is checked again.
/// Machines that become emptier keep their place until they are checked.
#[derive(Debug, Clone, Default)]
pub struct LeastLoaded {
    heap: BinaryHeap<MachineFill>,
    looked: Vec<MachineFill>,
}

impl LeastLoaded {
    pub fn new(machines: impl Iterator<Item = usize>, fill: impl Fn(usize) -> f64) -> Self {
        let entry = |machine: usize| MachineFill {
            fill: fill(machine),
            machine: machine as u32,
        };
        Self {
            heap: machines.map(entry).collect(),
            looked: Vec::new(),
        }
    }

    fn pop(&mut self, fill: &impl Fn(usize) -> f64) -> Option<MachineFill> {
        while let Some(entry) = self.heap.pop() {
            let now = fill(entry.machine as usize);
            if now <= entry.fill {
                return Some(entry);
            }
            self.heap.push(MachineFill { fill: now, ..entry });
        }
        None
    }

    /// Returns the emptiest machine.
    pub fn least(&mut self, fill: impl Fn(usize) -> f64) -> Option<usize> {
        let entry = self.pop(&fill)?;
        self.heap.push(entry);
        Some(entry.machine as usize)
    }

    /// Passes machines from the emptiest on, at most `count`, until `look` says that no later one
    /// can do. `look` gets the machine and its fill.
    pub fn look(
        &mut self,
        count: usize,
        fill: impl Fn(usize) -> f64,
        mut look: impl FnMut(usize, f64) -> bool,
    ) {
        while self.looked.len() < count {
            let Some(entry) = self.pop(&fill) else { break };
            self.looked.push(entry);
            if !look(entry.machine as usize, entry.fill) {
                break;
            }
        }
        self.heap.extend(self.looked.drain(..));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_emptiest_comes_first_though_others_fill_up() {
        let mut fills = [3.0, 1.0, 2.0];
        let mut least_loaded = LeastLoaded::new(0..3, |machine| fills[machine]);
        assert_eq!(least_loaded.least(|machine| fills[machine]), Some(1));
        fills[1] = 5.0;
        let mut seen = Vec::new();
        least_loaded.look(
            2,
            |machine| fills[machine],
            |machine, fill| {
                seen.push((machine, fill));
                true
            },
        );
        assert_eq!(seen, [(2, 2.0), (0, 3.0)]);
        assert_eq!(least_loaded.least(|machine| fills[machine]), Some(2));
        assert_eq!(LeastLoaded::default().least(|_| 0.0), None);
    }
}
