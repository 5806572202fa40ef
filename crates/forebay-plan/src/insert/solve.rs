//! Solves an instance: finds an assignment, by mode.

use std::str::FromStr;

use super::construct::construct;
use super::fluid::FluidProblem;
use super::limits::UnmetLimit;
use super::order::carried_out;
use super::paper;
use super::problem::Problem;
use super::search::{SearchBudget, improve, relieve};
use super::state::InsertState;
use crate::Random;

/// The effort for a good plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// The paper's algorithm, with its errors corrected.
    Paper,
    /// A number of steps that depends on the instance's size alone.
    #[default]
    Fast,
    /// Continues from there until time is over.
    Polish,
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "paper" => Ok(Self::Paper),
            "fast" => Ok(Self::Fast),
            "polish" => Ok(Self::Polish),
            _ => Err(format!("'{word}' is not a mode: paper, fast or polish")),
        }
    }
}

impl Mode {
    pub fn word(self) -> &'static str {
        match self {
            Self::Paper => "paper",
            Self::Fast => "fast",
            Self::Polish => "polish",
        }
    }
}

/// An assignment, its cost, and a lower bound of the cost.
#[derive(Debug, Clone)]
pub struct Solution {
    pub dest: Vec<u32>,
    pub cost: f64,
    pub lower_bound: f64,
    /// The limit that no plan was found for. If there is one, the assignment must not be used.
    pub unmet: Option<UnmetLimit>,
}

/// Rounding may raise the bound above the best plan's cost by its last digits.
const BOUND_SLACK: f64 = 1e-9;
/// The insert limits at which `construct` is tried, and how near to the bound a plan is good
/// enough.
const CONSTRUCTED: usize = 8;
const GOOD_ENOUGH: f64 = 1.0005;

/// Solves the problem. `over` says when a polish has to end; other modes do not call it. The result
/// is never dearer than no moves, or than those that limits require. The paper's mode ignores
/// limits.
pub fn solve(problem: &Problem, mode: Mode, seed: u64, over: &mut dyn FnMut() -> bool) -> Solution {
    let fluid = FluidProblem::new(problem);
    let (center, bound) = fluid.best();
    let (first, unmet) = match first(problem, seed) {
        Ok(first) => (first, None),
        Err(unmet) => (problem.homes(), Some(unmet)),
    };
    let dest = match mode {
        _ if unmet.is_some() => first,
        Mode::Paper => paper::plan(problem, &fluid),
        Mode::Fast | Mode::Polish => {
            let mut never = || false;
            let (steps, over) = match mode {
                Mode::Polish => (u64::MAX, over),
                _ => (
                    fast_steps(problem.items.len()),
                    &mut never as &mut dyn FnMut() -> bool,
                ),
            };
            let start = constructed(problem, &fluid, first.clone(), center, bound);
            let mut budget = SearchBudget { steps, over };
            let random = &mut Random::new(seed);
            let dest = trim(
                problem,
                improve(problem, &fluid, start, random, &mut budget),
            );
            in_steps(problem, dest, &first).unwrap_or(first)
        }
    };
    let cost = problem.cost(&dest);
    let lower_bound = (bound * (1.0 - BOUND_SLACK)).min(cost);
    Solution {
        dest,
        cost,
        lower_bound,
        unmet,
    }
}

/// Returns the start of the search: no moves, or those that limits require.
fn first(problem: &Problem, seed: u64) -> Result<Vec<u32>, UnmetLimit> {
    let Some(limits) = &problem.limits else {
        return Ok(problem.homes());
    };
    let mut dest = limits.forced(problem);
    if let Err(UnmetLimit::Room { .. }) = limits.check(problem, &dest) {
        dest = relieve(problem, dest, &mut Random::new(seed));
    }
    limits.check(problem, &dest)?;
    carried_out(problem, limits, dest)
}

/// Returns the assignment, or one near to it whose moves have an order in which all limits are
/// kept. Returns none if that one costs more than the first.
fn in_steps(problem: &Problem, dest: Vec<u32>, first: &[u32]) -> Option<Vec<u32>> {
    let Some(limits) = &problem.limits else {
        return Some(dest);
    };
    let dest = carried_out(problem, limits, dest).ok()?;
    let good = problem.allows(&dest) && problem.cost(&dest) <= problem.cost(first);
    good.then_some(dest)
}

/// Returns the steps of the search: few partitions are cheap to search well, many need some for
/// each.
fn fast_steps(partitions: usize) -> u64 {
    let partitions = partitions.max(1) as u64;
    let searched = (60_000_000 / partitions).clamp(120_000, 1_500_000);
    searched.min(60_000 * partitions) + 3 * partitions
}

/// Returns the best of some first plans around the fluid optimum, and of no moves.
fn constructed(
    problem: &Problem,
    fluid: &FluidProblem,
    first: Vec<u32>,
    center: f64,
    bound: f64,
) -> Vec<u32> {
    let mut best = (problem.cost(&first), first);
    let (low, high) = fluid.range(center, bound + 0.25 * (best.0 - bound));
    let step = (high - low) / CONSTRUCTED as f64;
    for k in 0..CONSTRUCTED {
        if best.0 <= bound * GOOD_ENOUGH {
            break;
        }
        let limit = if k == 0 {
            center
        } else {
            low + step * k as f64
        };
        let dest = problem.within_moved(construct(fluid, problem, limit));
        let cost = problem.cost(&dest);
        if cost < best.0 && problem.allows(&dest) {
            best = (cost, dest);
        }
    }
    best.1
}

/// Takes back moves that gain nothing: if one machine sets the cost, others have room. Returns
/// partitions to their homes, the dearest to move first, as long as that raises neither the busiest
/// inserter's time nor the busiest mover's.
fn trim(problem: &Problem, dest: Vec<u32>) -> Vec<u32> {
    let cost = problem.cost(&dest);
    let loads = problem.loads(&dest);
    let (insert_max, move_max) = (loads.insert_max(), loads.move_max());
    let mut moved: Vec<u32> = (0..dest.len() as u32)
        .filter(|&index| dest[index as usize] != problem.items[index as usize].home)
        .collect();
    let key = |index: &u32| {
        let item = &problem.items[*index as usize];
        (item.moving, -item.insert)
    };
    moved.sort_by(|a, b| {
        let (a_key, b_key) = (key(a), key(b));
        let by_move = b_key.0.total_cmp(&a_key.0);
        by_move.then(b_key.1.total_cmp(&a_key.1)).then(a.cmp(b))
    });
    let mut state = InsertState::new(problem, dest.clone());
    for item in moved {
        let home = state.home(item);
        let it = &problem.items[item as usize];
        let pace = problem.machines[home as usize].insert_speed;
        let may_return = state.may_go(item, home) && state.has_room(item, home);
        if may_return && state.insert[home as usize] + it.insert / pace <= insert_max {
            state.relocate(item, home);
            debug_assert!(state.moving[home as usize] <= move_max * (1.0 + 1e-9) + 1e-9);
        }
    }
    let trimmed = state.dest().to_vec();
    // Sums in another order may differ in their last digits.
    if problem.cost(&trimmed) <= cost {
        trimmed
    } else {
        dest
    }
}
