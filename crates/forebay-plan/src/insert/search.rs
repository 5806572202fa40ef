//! Improves a plan by annealing towards a target.
//!
//! A target is a pair of limits, for inserting and for moving, whose sum is a cost below that of
//! the best plan known. The energy is the sum of what the machines exceed their limits by. A step
//! changes it in at most four machines, while the cost itself (two maxima) is flat nearly
//! everywhere. If the energy reaches 0, the target is met, and the next one is lower.

use super::construct::construct;
use super::fluid::FluidProblem;
use super::problem::Problem;
use super::state::InsertState;
use crate::Random;

/// The steps between two checks whether time is over.
const STEPS_A_QUESTION: u64 = 512;

/// The least steps that a round counts: a target can be met at once.
const STEPS_A_ROUND: u64 = 64;

/// The steps to find room for all bytes.
const RELIEF_STEPS: u64 = 100_000;
const RELIEF_STEPS_AN_ITEM: u64 = 100;

const HEAT_LEAST: f64 = 0.03;
const HEAT_RANGE: f64 = 100.0;

/// The length of a search: until the steps are spent or the caller says that time is over.
pub struct SearchBudget<'a> {
    pub steps: u64,
    pub over: &'a mut dyn FnMut() -> bool,
}

impl SearchBudget<'_> {
    fn spend(&mut self) -> bool {
        if self.steps == 0 {
            return false;
        }
        self.steps -= 1;
        if self.steps.is_multiple_of(STEPS_A_QUESTION) && (self.over)() {
            self.steps = 0;
        }
        true
    }

    /// Spends at least `steps` since the count was `before`.
    fn spend_at_least(&mut self, before: u64, steps: u64) {
        while before - self.steps < steps && self.spend() {}
    }
}

/// The limits to reach, and the machines that exceed them.
struct Target {
    insert: f64,
    moving: f64,
    over: Vec<u32>,
    /// The position in `over`, or `NOWHERE`.
    place: Vec<u32>,
}

const NOWHERE: u32 = u32::MAX;

impl Target {
    fn new(state: &InsertState, insert: f64, moving: f64) -> Self {
        let count = state.insert.len();
        let mut target = Self {
            insert,
            moving,
            over: Vec::new(),
            place: vec![NOWHERE; count],
        };
        for machine in 0..count as u32 {
            target.note(state, machine);
        }
        target
    }

    #[inline]
    fn excess(&self, state: &InsertState, machine: u32) -> f64 {
        let machine = machine as usize;
        (state.insert[machine] - self.insert).max(0.0)
            + (state.moving[machine] - self.moving).max(0.0)
            + state.excess_bytes(machine as u32)
    }

    #[inline]
    fn note(&mut self, state: &InsertState, machine: u32) {
        let place = self.place[machine as usize];
        if self.excess(state, machine) > 0.0 {
            if place == NOWHERE {
                self.place[machine as usize] = self.over.len() as u32;
                self.over.push(machine);
            }
        } else if place != NOWHERE {
            self.over.swap_remove(place as usize);
            if let Some(&other) = self.over.get(place as usize) {
                self.place[other as usize] = place;
            }
            self.place[machine as usize] = NOWHERE;
        }
    }
}

/// One step to try: a partition moves to `to`, and possibly another one moves back for it.
#[derive(Debug, Clone, Copy)]
struct Proposal {
    item: u32,
    to: u32,
    back: Option<u32>,
}

/// Improves `dest` as long as the budget lasts; returns the best assignment found.
pub fn improve(
    problem: &Problem,
    fluid: &FluidProblem,
    dest: Vec<u32>,
    random: &mut Random,
    budget: &mut SearchBudget,
) -> Vec<u32> {
    let (center, bound) = fluid.best();
    let mut best = (problem.cost(&dest), dest);
    let mut state = InsertState::new(problem, best.1.clone());
    let movable = problem.items.iter().filter(|item| problem.is_movable(item));
    let inserts: Vec<f64> = movable.map(|item| item.insert).collect();
    if inserts.is_empty() || problem.machines.len() < 2 {
        return best.1;
    }
    let mean = inserts.iter().sum::<f64>() / inserts.len() as f64;
    let first_length = inserts.len() as u64 * 10 + 1000;
    let mut length = first_length;
    let mut step = 0.5 * (best.0 - bound);
    let mut best_insert = problem.loads(&best.1).insert_max();
    while budget.steps > 0 && best.0 > bound * (1.0 + 1e-9) {
        let cost = best.0 - step;
        // Among the smallest numbers, half of a difference is zero: no cost is between them.
        if cost >= best.0 {
            break;
        }
        let before = budget.steps;
        let (low, high) = fluid.range(center, cost);
        let limit = match random.below(4) {
            0 => 0.5 * (low + high),
            1 => best_insert - step * random.unit(),
            2 => best_insert + (random.unit() - random.unit()) * 0.1 * best.0,
            _ => low + (high - low) * random.unit(),
        };
        let limit = limit.max(low).min(high);
        match random.below(8) {
            0 => {
                let dest = problem.within_moved(construct(fluid, problem, limit));
                state = InsertState::new(problem, dest);
            }
            1..4 => {}
            _ => state = InsertState::new(problem, best.1.clone()),
        }
        let mut target = Target::new(&state, limit, cost - limit);
        let hot = fluid.has_large() || length > first_length;
        let range = if hot { HEAT_RANGE } else { 20.0 };
        let heat = mean * HEAT_LEAST * f64::powf(range, random.unit());
        let met = anneal(&mut state, &mut target, random, budget, length, heat);
        budget.spend_at_least(before, STEPS_A_ROUND);
        state.recompute();
        let cost = problem.cost(state.dest());
        if cost < best.0 && problem.allows(state.dest()) {
            best = (cost, state.dest().to_vec());
            best_insert = state.insert.iter().copied().fold(0.0, f64::max);
        }
        if met {
            step = (step * 1.5).min(0.5 * (best.0 - bound));
            length = first_length;
        } else {
            step *= 0.7;
            if step < 1e-4 * best.0 {
                step = 0.2 * random.unit() * (best.0 - bound);
                length = (length * 2).min(first_length * 64);
            }
        }
    }
    best.1
}

/// Makes moves until no machine has more bytes than it may, if the search finds such moves.
pub fn relieve(problem: &Problem, dest: Vec<u32>, random: &mut Random) -> Vec<u32> {
    let mut state = InsertState::new(problem, dest);
    let mut target = Target::new(&state, f64::INFINITY, f64::INFINITY);
    let inserts: f64 = problem.items.iter().map(|item| item.insert).sum();
    let heat = HEAT_LEAST * (inserts / problem.items.len().max(1) as f64).max(f64::MIN_POSITIVE);
    let steps = RELIEF_STEPS + RELIEF_STEPS_AN_ITEM * problem.items.len() as u64;
    let budget = &mut SearchBudget {
        steps,
        over: &mut || false,
    };
    anneal(&mut state, &mut target, random, budget, steps, heat);
    state.dest().to_vec()
}

/// Searches for an assignment that keeps both limits; returns whether it was found.
fn anneal(
    state: &mut InsertState,
    target: &mut Target,
    random: &mut Random,
    budget: &mut SearchBudget,
    length: u64,
    heat: f64,
) -> bool {
    let cooling = (1e-3f64).powf(1.0 / (length as f64 / 64.0).max(1.0));
    let mut heat = heat;
    for step in 0..length {
        if target.over.is_empty() {
            return true;
        }
        if !budget.spend() {
            return false;
        }
        if step % 64 == 63 {
            heat *= cooling;
        }
        if let Some(proposal) = propose(state, target, random) {
            attempt(state, target, proposal, heat, random);
        }
    }
    target.over.is_empty()
}

/// Proposes a step that could help a machine above its limits; now and then a random one.
#[inline]
fn propose(state: &InsertState, target: &Target, random: &mut Random) -> Option<Proposal> {
    let count = state.insert.len();
    let rng = random.next_u64();
    let machine = if rng & 7 == 0 {
        random.below(count) as u32
    } else {
        target.over[random.below(target.over.len())]
    };
    let over_insert = state.insert[machine as usize] > target.insert;
    let over_move = state.moving[machine as usize] > target.moving;
    if over_move && (!over_insert || rng & 8 == 0) {
        return propose_fewer_moves(state, machine, rng, random);
    }
    let held = state.held_count(machine);
    if held == 0 {
        return None;
    }
    let item = state.held(machine, random.below(held));
    let home = state.home(item);
    let to = if home != machine && rng & 0x30 == 0 {
        home
    } else {
        random.below(count) as u32
    };
    proposal(state, item, to, rng, random)
}

/// Proposes a partition that moved, to go to its home or elsewhere.
fn propose_fewer_moves(
    state: &InsertState,
    machine: u32,
    rng: u64,
    random: &mut Random,
) -> Option<Proposal> {
    let moved = state.moved_count(machine);
    if moved == 0 {
        return None;
    }
    let item = state.moved(machine, random.below(moved));
    let home = state.home(item);
    let to = if rng & 0x30 == 0 && home != machine {
        random.below(state.insert.len()) as u32
    } else {
        home
    };
    proposal(state, item, to, rng, random)
}

fn proposal(
    state: &InsertState,
    item: u32,
    to: u32,
    rng: u64,
    random: &mut Random,
) -> Option<Proposal> {
    let from = state.at(item);
    if to == from || !state.may_go(item, to) {
        return None;
    }
    let held = state.held_count(to);
    if rng & 0x40 == 0 || held == 0 {
        return Some(Proposal {
            item,
            to,
            back: None,
        });
    }
    let back = state.held(to, random.below(held));
    state.may_go(back, from).then_some(Proposal {
        item,
        to,
        back: Some(back),
    })
}

/// Tries a proposal and takes it back unless it lowers the energy or the heat allows it.
#[inline]
fn attempt(
    state: &mut InsertState,
    target: &mut Target,
    proposal: Proposal,
    heat: f64,
    random: &mut Random,
) {
    let Proposal { item, to, back } = proposal;
    let from = state.at(item);
    let mut touched = [
        from,
        to,
        state.home(item),
        back.map_or(from, |b| state.home(b)),
    ];
    touched.sort_unstable();
    let moved_before = state.excess_moved();
    let mut before = 0.0;
    let mut kept = [(0.0, 0.0); 4];
    for (place, &machine) in touched.iter().enumerate() {
        kept[place] = (
            state.insert[machine as usize],
            state.moving[machine as usize],
        );
        if place == 0 || touched[place - 1] != machine {
            before += target.excess(state, machine);
        }
    }
    state.relocate(item, to);
    if let Some(back) = back {
        state.relocate(back, from);
    }
    let mut after = 0.0;
    for (place, &machine) in touched.iter().enumerate() {
        if place == 0 || touched[place - 1] != machine {
            after += target.excess(state, machine);
        }
    }
    let worse = after - before;
    // Moves never carry more than they may, or than they did before.
    let too_many = state.excess_moved() > moved_before;
    if !too_many && (worse <= 0.0 || random.unit() < (-worse / heat).exp()) {
        for machine in touched {
            target.note(state, machine);
        }
        return;
    }
    if let Some(back) = back {
        state.relocate(back, to);
    }
    state.relocate(item, from);
    for (place, &machine) in touched.iter().enumerate() {
        (
            state.insert[machine as usize],
            state.moving[machine as usize],
        ) = kept[place];
    }
}
