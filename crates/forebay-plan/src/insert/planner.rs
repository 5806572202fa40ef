//! The bulk insert planner: turns a request into splits, destinations and the plan for them.

use super::carried::{holders, map, moves, node_prices, steps};
use super::join::join;
use super::outcome::{InsertPlan, PieceReport, RegionPlan, Split};
use super::pieces::{Piece, Pieces, pieces};
use super::problem::Problem;
use super::region::Region;
use super::request::Request;
use super::solve::{Mode, Solution, solve};
use super::timeline::timeline;
use crate::input::InputError;
use crate::{Action, NodePrice, Plan, Price, Step};

/// Plans a bulk insert, update or delete. `over` says when a polish has to end.
pub fn plan(
    request: &Request,
    mode: Mode,
    over: &mut dyn FnMut() -> bool,
) -> Result<InsertPlan, InputError> {
    request.check()?;
    let pieces = fine_enough(request)?;
    let regions = Region::all(request, &pieces)?;
    let mut solved = Vec::with_capacity(regions.len());
    for region in &regions {
        let problem = region.problem(request, &pieces);
        check_total(&problem)?;
        if mode == Mode::Paper && problem.limits.is_some() {
            let unknown = match region.siblings.is_empty() {
                true => "drain, storage_bytes or max_moved_bytes",
                false => "replicas",
            };
            let problem = format!("the paper's algorithm knows no {unknown}: use another mode");
            return Err(InputError::new("input", problem));
        }
        let solution = solve(&problem, mode, request.seed, over);
        if let Some(unmet) = solution.unmet {
            return Err(region.refusal(request, solved.len(), unmet));
        }
        solved.push((problem, solution));
    }
    let (pieces, regions) = match request.joins && !pieces.steps.is_empty() {
        true => joined(request, pieces, regions, &mut solved)?,
        false => (pieces, regions),
    };
    let solved = regions.iter().zip(solved);
    let mut plans: Vec<RegionPlan> = solved
        .map(|(region, (problem, solution))| {
            region_plan(request, region, &pieces, &problem, solution)
        })
        .collect();
    let own = plans.remove(0);
    Ok(InsertPlan {
        name: request.name.clone(),
        mode: mode.word(),
        operation: request.operation,
        splits: pieces.steps.iter().filter_map(split_of).collect(),
        partitions: if pieces.steps.is_empty() {
            Vec::new()
        } else {
            reports(&pieces, &regions[0])
        },
        oversize: pieces.oversize,
        own,
        regions: plans,
    })
}

/// Returns the same plans with only the splits that their moves need. A partition that moves as one
/// is handed over once, so they cost no more.
fn joined<'a>(
    request: &'a Request,
    pieces: Pieces,
    regions: Vec<Region<'a>>,
    solved: &mut [(Problem, Solution)],
) -> Result<(Pieces, Vec<Region<'a>>), InputError> {
    let dests = solved.iter().map(|(_, solution)| solution.dest.clone());
    let (joined, dests) = join(&pieces, &regions, &dests.collect());
    let regions = Region::all(request, &joined)?;
    for ((region, (problem, solution)), dest) in regions.iter().zip(solved).zip(dests) {
        *problem = region.problem(request, &joined);
        let cost = problem.cost(&dest);
        debug_assert!(
            cost <= solution.cost * (1.0 + 1e-9),
            "joining made a plan dearer"
        );
        solution.lower_bound = solution.lower_bound.min(cost);
        (solution.cost, solution.dest) = (cost, dest);
    }
    Ok((joined, regions))
}

/// Hot ranges are split finer as long as the plan is above its bound by more than this. The other
/// two limit the factor and the attempts.
const NEAR_BOUND: f64 = 0.01;
const FINEST: usize = 32;
const MOST_ATTEMPTS: usize = 4;
/// Finer pieces have to make the plan cheaper by this part of it.
const WORTH_CUTTING: f64 = 0.005;
/// The most pieces for which finer ones are tried.
const MOST_PIECES: usize = 100_000;

/// Returns the pieces that let a fast plan get near to its bound.
fn fine_enough(request: &Request) -> Result<Pieces, InputError> {
    let machines = request.most_machines();
    let mut fineness = 1;
    let mut best = pieces(request, machines, fineness)?;
    if best.steps.is_empty() {
        return Ok(best);
    }
    let (mut cost, mut gap) = fast_cost(request, &best)?;
    let mut tried = best.pieces.len();
    for _ in 1..MOST_ATTEMPTS {
        if gap <= NEAR_BOUND || fineness == FINEST {
            break;
        }
        // The excess of one machine is a part of a piece.
        let finer = (gap / NEAR_BOUND).ceil().clamp(2.0, 8.0) as usize;
        fineness = (fineness * finer).min(FINEST);
        let cut = pieces(request, machines, fineness)?;
        let count = cut.pieces.len();
        if count == tried || count > MOST_PIECES {
            break;
        }
        tried = count;
        let (cut_cost, cut_gap) = fast_cost(request, &cut)?;
        gap = cut_gap;
        if cut_cost < cost * (1.0 - WORTH_CUTTING) {
            (best, cost) = (cut, cut_cost);
        }
    }
    Ok(best)
}

/// Returns the cost of a fast plan for the request's own machines, and how far it is above its
/// bound.
fn fast_cost(request: &Request, pieces: &Pieces) -> Result<(f64, f64), InputError> {
    let regions = Region::all(request, pieces)?;
    let problem = regions[0].problem(request, pieces);
    check_total(&problem)?;
    let solution = solve(&problem, Mode::Fast, request.seed, &mut || false);
    if solution.unmet.is_some() {
        // Finer pieces may find room.
        return Ok((f64::INFINITY, f64::INFINITY));
    }
    let bound = solution.lower_bound.max(f64::MIN_POSITIVE);
    Ok((solution.cost, solution.cost / bound - 1.0))
}

/// Checks that sums do not overflow: all plans would cost the same.
fn check_total(problem: &Problem) -> Result<(), InputError> {
    let items = problem.items.iter();
    let items = items.map(|item| item.insert + 2.0 * item.moving);
    let loads = problem.machines.iter();
    let loads = loads.map(|machine| machine.insert_load + machine.move_load);
    let total: f64 = items.chain(loads).sum();
    let slowest = problem
        .machines
        .iter()
        .map(|m| m.insert_speed.min(m.move_speed));
    let slowest = slowest.fold(f64::INFINITY, f64::min);
    if (total / slowest).is_finite() {
        return Ok(());
    }
    Err(InputError::new(
        "input",
        "the records and prices add up to more than a number can hold",
    ))
}

fn split_of(step: &Step) -> Option<Split> {
    match &step.action {
        Action::Split {
            partition,
            at,
            right,
        } => Some(Split {
            partition: *partition,
            at: at.clone(),
            right: *right,
        }),
        _ => None,
    }
}

fn reports(pieces: &Pieces, region: &Region) -> Vec<PieceReport> {
    let report = |(id, piece): (usize, &Piece)| PieceReport {
        id: id as u32,
        of: piece.of,
        table: piece
            .table
            .map(|table| pieces.tables[table as usize].clone()),
        low: piece.low.clone(),
        high: piece.high.clone(),
        e: piece.existing,
        n: piece.new,
        h: region.homes[piece.of as usize].clone(),
    };
    pieces.pieces.iter().enumerate().map(report).collect()
}

fn region_plan(
    request: &Request,
    region: &Region,
    pieces: &Pieces,
    problem: &Problem,
    solution: Solution,
) -> RegionPlan {
    let homes = problem.homes();
    let nodes = region.nodes(request);
    let steps = steps(region, pieces, problem, &solution.dest);
    let loads = problem.loads(&solution.dest);
    let records = region.problem_in_records(pieces).loads(&solution.dest);
    let mut plan = Plan {
        name: request.name.clone(),
        price: Price {
            moving: loads.move_max(),
            insert: loads.insert_max(),
            total: solution.cost,
            nodes: node_prices(region, pieces, &homes, &solution.dest),
        },
        steps,
        lower_bound: solution.lower_bound,
        duration_seconds: None,
    };
    let inserting = inserting_seconds(request, region, &plan.price.nodes);
    plan.duration_seconds = plan
        .moving_seconds(&nodes)
        .zip(inserting)
        .map(|(a, b)| a + b)
        .filter(|seconds| seconds.is_finite());
    let map = map(region, pieces, nodes);
    RegionPlan {
        timeline: timeline(request, region, &plan, &map, pieces),
        name: region.name.map(str::to_owned),
        machines: region.machines.len(),
        moves: moves(region, &homes, &solution.dest),
        dest: holders(region, pieces, &solution.dest),
        cost: solution.cost,
        cost_no_moves: problem.cost(&homes),
        lower_bound: solution.lower_bound,
        s_max: records.insert_max(),
        o_max: records.move_max(),
        plan,
        batches: Vec::new(),
        map,
        machine_names: region
            .machines
            .iter()
            .map(|spec| spec.name.clone())
            .collect(),
    }
}

fn inserting_seconds(request: &Request, region: &Region, nodes: &[NodePrice]) -> Option<f64> {
    let rates = region.insert_rates(request)?;
    let times = nodes
        .iter()
        .zip(rates)
        .map(|(node, rate)| node.insert_after / rate);
    Some(times.fold(0.0, f64::max))
}
