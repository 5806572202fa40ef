//! From an instance to an assignment, by mode.

use std::str::FromStr;

use super::construct::construct;
use super::fluid::Fluid;
use super::paper;
use super::problem::Problem;
use super::search::{SearchBudget, improve};
use super::trim::trim;
use crate::Random;

/// How much is done for a good plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// The paper's algorithm, with what is wrong in it corrected.
    Paper,
    /// A number of steps that depends on the instance's size alone.
    #[default]
    Fast,
    /// Goes on from there until time is over.
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

/// An assignment, what it costs, and what none comes below.
#[derive(Debug, Clone)]
pub struct Solution {
    pub dest: Vec<u32>,
    pub cost: f64,
    pub lower_bound: f64,
}

/// Rounding may take the bound above the best plan's cost by its last digits.
const BOUND_SLACK: f64 = 1e-9;
/// Insert limits at which `construct` is tried, and how near to the bound a plan is good enough.
const CONSTRUCTED: usize = 8;
const GOOD_ENOUGH: f64 = 1.0005;

/// Plans. `over` says when a polish has to end; nobody else asks it. Never dearer than no moves.
pub fn solve(problem: &Problem, mode: Mode, seed: u64, over: &mut dyn FnMut() -> bool) -> Solution {
    let fluid = Fluid::new(problem);
    let (center, bound) = fluid.best();
    let dest = match mode {
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
            let start = constructed(problem, &fluid, center, bound);
            let mut budget = SearchBudget { steps, over };
            let random = &mut Random::new(seed);
            trim(
                problem,
                improve(problem, &fluid, start, random, &mut budget),
            )
        }
    };
    let cost = problem.cost(&dest);
    let lower_bound = (bound * (1.0 - BOUND_SLACK)).min(cost);
    Solution {
        dest,
        cost,
        lower_bound,
    }
}

/// Steps of the search: few partitions are cheap to search well, many need some for each.
fn fast_steps(partitions: usize) -> u64 {
    let partitions = partitions.max(1) as u64;
    let searched = (60_000_000 / partitions).clamp(120_000, 1_500_000);
    searched.min(60_000 * partitions) + 3 * partitions
}

/// The best of some first plans around the fluid optimum, and of no moves.
fn constructed(problem: &Problem, fluid: &Fluid, center: f64, bound: f64) -> Vec<u32> {
    let mut best = (problem.cost(&problem.homes()), problem.homes());
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
        let dest = construct(fluid, problem, limit);
        let cost = problem.cost(&dest);
        if cost < best.0 {
            best = (cost, dest);
        }
    }
    best.1
}
