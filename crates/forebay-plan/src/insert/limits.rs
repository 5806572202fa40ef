//! What a plan has to keep to besides its cost: bytes that a machine may hold, bytes that may be
//! moved in all, machines that are drained. Bytes are kept at every step, not only at the end.

use super::problem::Problem;

/// Sums in another order may differ in their last digits.
const SLACK: f64 = 1.0 + 1e-12;

/// The limits of one instance.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Limits {
    /// Bytes of each item that its move carries.
    pub bytes: Vec<f64>,
    /// The most bytes of each item, now or after the inserts.
    pub grown: Vec<f64>,
    /// Bytes that each machine may hold; infinite where there is no limit.
    pub room: Vec<f64>,
    /// Whether one of these is finite.
    pub has_room_limits: bool,
    /// Bytes that all moves may carry together.
    pub max_moved: f64,
    /// Machines that are to hold nothing in the end. They take nothing.
    pub drained: Vec<bool>,
}

/// The limit that no plan was found for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Unmet {
    /// A machine would hold so many bytes of those that it may.
    Room { machine: u32, bytes: f64, room: f64 },
    /// Moves that have to be made carry so many bytes of those that may be moved.
    Moved { bytes: f64, limit: f64 },
    /// A drained machine's partitions fit nowhere else.
    Drained { machine: u32 },
    /// At the end the machine has room, but moves to it wait for moves that wait for them.
    Order { machine: u32 },
}

impl Limits {
    /// Bytes on each machine when all is done.
    pub fn held(&self, dest: &[u32]) -> Vec<f64> {
        self.sums(&self.grown, dest)
    }

    /// Bytes on each machine while nothing has been inserted.
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
        bytes <= self.room[machine] * SLACK
    }

    pub fn moved(&self, problem: &Problem, dest: &[u32]) -> f64 {
        let pairs = problem.items.iter().zip(dest).zip(&self.bytes);
        let moved = pairs.filter(|((item, to), _)| item.home != **to);
        moved.map(|(_, bytes)| bytes).sum()
    }

    /// Whether an assignment keeps all limits at its end.
    pub fn check(&self, problem: &Problem, dest: &[u32]) -> Result<(), Unmet> {
        for &machine in dest {
            if self.drained[machine as usize] {
                return Err(Unmet::Drained { machine });
            }
        }
        for (machine, bytes) in self.held(dest).into_iter().enumerate() {
            if !self.fits(machine, bytes) {
                let (room, machine) = (self.room[machine], machine as u32);
                return Err(Unmet::Room {
                    machine,
                    bytes,
                    room,
                });
            }
        }
        let bytes = self.moved(problem, dest);
        if bytes > self.max_moved * SLACK {
            let limit = self.max_moved;
            return Err(Unmet::Moved { bytes, limit });
        }
        Ok(())
    }

    /// The least that has to be done: what is drained goes to the machine with room that inserts
    /// least; all else stays.
    pub fn forced(&self, problem: &Problem) -> Vec<u32> {
        let mut dest = problem.homes();
        let loads = problem.loads(&dest);
        let (mut insert, mut held) = (loads.insert, self.held(&dest));
        let leaves = |&item: &usize| self.drained[problem.items[item].home as usize];
        let mut items: Vec<usize> = (0..dest.len()).filter(leaves).collect();
        let size = |item: usize| (problem.items[item].insert, self.grown[item]);
        items.sort_by(|&a, &b| {
            let (a_size, b_size) = (size(a), size(b));
            let by_insert = b_size.0.total_cmp(&a_size.0);
            by_insert
                .then(b_size.1.total_cmp(&a_size.1))
                .then(a.cmp(&b))
        });
        for item in items {
            let it = &problem.items[item];
            let key = |to: usize| {
                let over = (held[to] + self.grown[item] - self.room[to]).max(0.0);
                (
                    over,
                    insert[to] + it.insert / problem.machines[to].insert_speed,
                )
            };
            let takers = (0..insert.len()).filter(|&to| problem.machines[to].takes);
            let Some(to) = takers.min_by(|&a, &b| {
                let (a, b) = (key(a), key(b));
                a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1))
            }) else {
                break;
            };
            insert[to] += it.insert / problem.machines[to].insert_speed;
            held[to] += self.grown[item];
            dest[item] = to as u32;
        }
        dest
    }

    /// Takes moves back, those that carry most for what they insert first, until the moves carry no
    /// more than they may.
    pub fn within_moved(&self, problem: &Problem, mut dest: Vec<u32>) -> Vec<u32> {
        let mut moved = self.moved(problem, &dest);
        if moved <= self.max_moved {
            return dest;
        }
        let may_return = |&item: &usize| {
            let home = problem.items[item].home;
            dest[item] != home && !self.drained[home as usize]
        };
        let mut items: Vec<usize> = (0..dest.len()).filter(may_return).collect();
        let worth = |item: usize| problem.items[item].insert / self.bytes[item];
        items.sort_by(|&a, &b| worth(a).total_cmp(&worth(b)).then(a.cmp(&b)));
        for item in items {
            if moved <= self.max_moved {
                break;
            }
            moved -= self.bytes[item];
            dest[item] = problem.items[item].home;
        }
        dest
    }
}
