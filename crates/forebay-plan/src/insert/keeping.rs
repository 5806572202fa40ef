//! Checks assignments against the limits, and makes the moves that limits require.

use super::limits::{LIMIT_SLACK, Limits, UnmetLimit};
use super::problem::Problem;

impl Problem {
    /// Returns whether an assignment keeps the limits.
    pub fn allows(&self, dest: &[u32]) -> bool {
        let limits = self.limits.as_ref();
        limits.is_none_or(|limits| limits.check(self, dest).is_ok())
    }

    /// Returns the other replicas of an item's piece.
    #[inline]
    pub fn siblings(&self, item: u32) -> impl Iterator<Item = u32> + use<> {
        let limits = self.limits.as_ref();
        let all = limits.map_or(item..item + 1, |limits| limits.siblings.with(item));
        all.filter(move |other| *other != item)
    }

    /// Returns whether an item may move to a machine that is not its home. The machine has to take
    /// partitions. No sibling may be on it or have its home on it, nor in its zone unless that is
    /// the item's own.
    ///
    /// So no two siblings are on one machine, in whatever order the moves are done, and an item
    /// that returns finds its home free. The rule excludes no good plan. If an item would take the
    /// home of a sibling that moves, it can go to the sibling's target instead, and the sibling
    /// stays.
    #[inline]
    pub fn may_take(&self, machine: u32, item: u32, dest: &[u32]) -> bool {
        let is_near = self.is_in_zone(machine, self.items[item as usize].home);
        let is_free_of = |other: u32| match is_near {
            true => other != machine,
            false => other != machine && !self.is_in_zone(machine, other),
        };
        let apart = |other: u32| {
            is_free_of(dest[other as usize]) && is_free_of(self.items[other as usize].home)
        };
        self.machines[machine as usize].takes && self.siblings(item).all(apart)
    }

    fn is_in_zone(&self, one: u32, other: u32) -> bool {
        let zone = |machine: u32| self.machines[machine as usize].zone;
        zone(one).is_some() && zone(one) == zone(other)
    }

    /// Returns an assignment whose moves carry no more than they may.
    pub fn within_moved(&self, dest: Vec<u32>) -> Vec<u32> {
        match &self.limits {
            Some(limits) => limits.within_moved(self, dest),
            None => dest,
        }
    }
}

impl Limits {
    pub fn moved(&self, problem: &Problem, dest: &[u32]) -> f64 {
        let pairs = problem.items.iter().zip(dest).zip(&self.bytes);
        let moved = pairs.filter(|((item, to), _)| item.home != **to);
        moved.map(|(_, bytes)| bytes).sum()
    }

    /// Checks whether an assignment keeps all limits at its end.
    pub fn check(&self, problem: &Problem, dest: &[u32]) -> Result<(), UnmetLimit> {
        for &machine in dest {
            if self.drained[machine as usize] {
                return Err(UnmetLimit::Drained { machine });
            }
        }
        for (machine, bytes) in self.held(dest).into_iter().enumerate() {
            if !self.fits(machine, bytes) {
                let (room, machine) = (self.room[machine], machine as u32);
                return Err(UnmetLimit::Room {
                    machine,
                    bytes,
                    room,
                });
            }
        }
        let bytes = self.moved(problem, dest);
        if bytes > self.max_moved * LIMIT_SLACK {
            let limit = self.max_moved;
            return Err(UnmetLimit::Moved { bytes, limit });
        }
        Ok(())
    }

    /// Returns the least moves required. A drained partition goes to the machine with room that
    /// inserts least, of those that may take it. All others stay.
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
            let may_take = |to: &usize| problem.may_take(*to as u32, item as u32, &dest);
            let takers = (0..insert.len()).filter(may_take);
            let Some(to) = takers.min_by(|&a, &b| {
                let (a, b) = (key(a), key(b));
                a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1))
            }) else {
                continue;
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
