//! An assignment under change, with every machine's times and lists updated at each move.

use super::limits::Limits;
use super::problem::Problem;

/// The movable partitions of a machine.
#[derive(Debug, Clone, Default)]
struct Lists {
    /// Partitions at home on this machine.
    stay: Vec<u32>,
    /// Partitions on this machine from others.
    guest: Vec<u32>,
    /// Partitions of this machine that are on others.
    out: Vec<u32>,
}

/// An assignment with its sums. Only movable partitions are in the lists.
#[derive(Debug, Clone)]
pub struct InsertState<'p> {
    pub problem: &'p Problem,
    dest: Vec<u32>,
    lists: Vec<Lists>,
    /// The position in `stay` or `guest`.
    held_place: Vec<u32>,
    /// The position in `out`, for those that are away.
    out_place: Vec<u32>,
    /// The insert time of each machine.
    pub insert: Vec<f64>,
    /// The move time of each machine.
    pub moving: Vec<f64>,
    /// The time for one unit of cost.
    insert_pace: Vec<f64>,
    move_pace: Vec<f64>,
    limits: Option<StateLimits<'p>>,
}

/// The bytes that limits count.
#[derive(Debug, Clone)]
struct StateLimits<'p> {
    limits: &'p Limits,
    /// The bytes on each machine in the end.
    held: Vec<f64>,
    /// The bytes of all moves.
    moved: f64,
    /// The weight of an excess byte against a unit of cost.
    weight: f64,
}

impl<'p> StateLimits<'p> {
    fn new(problem: &'p Problem, limits: &'p Limits, dest: &[u32]) -> Self {
        let insert: f64 = problem.items.iter().map(|item| item.insert).sum();
        let bytes: f64 = limits.grown.iter().sum();
        let weight = if insert > 0.0 && bytes > 0.0 {
            insert / bytes
        } else {
            1.0
        };
        Self {
            limits,
            held: limits.held(dest),
            moved: limits.moved(problem, dest),
            weight,
        }
    }
}

impl<'p> InsertState<'p> {
    pub fn new(problem: &'p Problem, dest: Vec<u32>) -> Self {
        let machines = &problem.machines;
        let mut state = Self {
            problem,
            lists: vec![Lists::default(); machines.len()],
            held_place: vec![0; dest.len()],
            out_place: vec![0; dest.len()],
            insert: Vec::new(),
            moving: Vec::new(),
            insert_pace: machines.iter().map(|m| 1.0 / m.insert_speed).collect(),
            move_pace: machines.iter().map(|m| 1.0 / m.move_speed).collect(),
            limits: None,
            dest,
        };
        for (index, item) in problem.items.iter().enumerate() {
            if problem.is_movable(item) {
                state.enter(index as u32);
            }
        }
        state.recompute();
        state
    }

    /// Sums everything again: additions and subtractions accumulate rounding errors.
    pub fn recompute(&mut self) {
        let loads = self.problem.loads(&self.dest);
        self.insert = loads.insert;
        self.moving = loads.moving;
        let limits = self.problem.limits.as_ref();
        self.limits = limits.map(|limits| StateLimits::new(self.problem, limits, &self.dest));
    }

    /// Returns the excess of a machine beyond its room, in units of cost.
    #[inline]
    pub fn excess_bytes(&self, machine: u32) -> f64 {
        let Some(state) = &self.limits else {
            return 0.0;
        };
        let machine = machine as usize;
        let over = state.held[machine] - state.limits.room[machine];
        over.max(0.0) * state.weight
    }

    /// Returns whether a machine would still have room with one more.
    pub fn has_room(&self, item: u32, machine: u32) -> bool {
        self.limits.as_ref().is_none_or(|state| {
            let bytes = state.held[machine as usize] + state.limits.grown[item as usize];
            state.limits.fits(machine as usize, bytes)
        })
    }

    /// Returns the bytes moved beyond the limit.
    #[inline]
    pub fn excess_moved(&self) -> f64 {
        let state = self.limits.as_ref();
        state.map_or(0.0, |state| (state.moved - state.limits.max_moved).max(0.0))
    }

    pub fn dest(&self) -> &[u32] {
        &self.dest
    }

    #[inline]
    pub fn at(&self, item: u32) -> u32 {
        self.dest[item as usize]
    }

    #[inline]
    pub fn home(&self, item: u32) -> u32 {
        self.problem.items[item as usize].home
    }

    /// Returns the movable partitions that a machine has: those at home first.
    #[inline]
    pub fn held_count(&self, machine: u32) -> usize {
        let lists = &self.lists[machine as usize];
        lists.stay.len() + lists.guest.len()
    }

    #[inline]
    pub fn held(&self, machine: u32, place: usize) -> u32 {
        let lists = &self.lists[machine as usize];
        match place.checked_sub(lists.stay.len()) {
            None => lists.stay[place],
            Some(place) => lists.guest[place],
        }
    }

    /// Returns the partitions that moved to a machine or from it.
    #[inline]
    pub fn moved_count(&self, machine: u32) -> usize {
        let lists = &self.lists[machine as usize];
        lists.guest.len() + lists.out.len()
    }

    #[inline]
    pub fn moved(&self, machine: u32, place: usize) -> u32 {
        let lists = &self.lists[machine as usize];
        match place.checked_sub(lists.guest.len()) {
            None => lists.guest[place],
            Some(place) => lists.out[place],
        }
    }

    #[inline]
    pub fn may_go(&self, item: u32, to: u32) -> bool {
        if self.home(item) == to {
            return !self.problem.is_drained(to as usize);
        }
        self.problem.may_take(to, item, &self.dest)
    }

    /// Moves a partition to a machine that it is not on.
    #[inline]
    pub fn relocate(&mut self, item: u32, to: u32) {
        let from = self.at(item);
        self.leave(item);
        self.dest[item as usize] = to;
        self.enter(item);
        let it = self.problem.items[item as usize];
        let (from, to, home) = (from as usize, to as usize, it.home as usize);
        self.insert[from] -= it.insert * self.insert_pace[from];
        self.insert[to] += it.insert * self.insert_pace[to];
        if let Some(state) = &mut self.limits {
            let (bytes, grown) = (
                state.limits.bytes[item as usize],
                state.limits.grown[item as usize],
            );
            state.held[from] -= grown;
            state.held[to] += grown;
            if from == home {
                state.moved += bytes;
            } else if to == home {
                state.moved -= bytes;
            }
        }
        if from == home {
            self.moving[home] += it.moving * self.move_pace[home];
        } else {
            self.moving[from] -= it.moving * self.move_pace[from];
        }
        if to == home {
            self.moving[home] -= it.moving * self.move_pace[home];
        } else {
            self.moving[to] += it.moving * self.move_pace[to];
        }
    }

    fn enter(&mut self, item: u32) {
        let (home, at) = (self.home(item), self.at(item));
        if home == at {
            let list = &mut self.lists[at as usize].stay;
            self.held_place[item as usize] = list.len() as u32;
            list.push(item);
            return;
        }
        let list = &mut self.lists[at as usize].guest;
        self.held_place[item as usize] = list.len() as u32;
        list.push(item);
        let list = &mut self.lists[home as usize].out;
        self.out_place[item as usize] = list.len() as u32;
        list.push(item);
    }

    fn leave(&mut self, item: u32) {
        let (home, at) = (self.home(item), self.at(item));
        let lists = &mut self.lists[at as usize];
        let list = if home == at {
            &mut lists.stay
        } else {
            &mut lists.guest
        };
        remove(list, &mut self.held_place, item);
        if home != at {
            remove(
                &mut self.lists[home as usize].out,
                &mut self.out_place,
                item,
            );
        }
    }
}

fn remove(list: &mut Vec<u32>, places: &mut [u32], item: u32) {
    let place = places[item as usize] as usize;
    list.swap_remove(place);
    if let Some(&other) = list.get(place) {
        places[other as usize] = place as u32;
    }
}
