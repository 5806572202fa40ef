//! The bulk insert planner: from a request to splits, destinations and the plan that makes them so.

use serde::Serialize;

use super::order::{OrderedMove, in_order};
use super::pieces::{Original, Piece, Pieces, pieces};
use super::problem::Problem;
use super::region::Region;
use super::request::{Operation, Request};
use super::solve::{Mode, Solution, solve};
use super::timeline::timeline;
use crate::draw::Timeline;
use crate::input::InputError;
use crate::{Action, Key, Node, NodePrice, Partition, PartitionMap, Plan, Price, Step};

/// What `forebay plan insert --json` prints. docs/plan.md describes the fields.
#[derive(Debug, Clone, Serialize)]
pub struct InsertPlan {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub mode: &'static str,
    #[serde(skip)]
    pub operation: Operation,
    pub splits: Vec<Split>,
    /// Of the partitions after the splits, where there are any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub partitions: Vec<PieceReport>,
    /// Partitions that will be above the limit, as their keys cannot be told apart by the samples.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub oversize: Vec<u32>,
    #[serde(flatten)]
    pub own: RegionPlan,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub regions: Vec<RegionPlan>,
}

#[derive(Debug, Clone, Serialize)]
pub struct RegionPlan {
    #[serde(rename = "region", skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub machines: usize,
    /// The machine of each partition after the splits.
    pub dest: Vec<u32>,
    pub moves: Vec<Move>,
    pub cost: f64,
    pub cost_no_moves: f64,
    pub lower_bound: f64,
    /// Records that the busiest machine inserts, by its capacity.
    pub s_max: f64,
    /// Records that the busiest machine moves, by its capacity.
    pub o_max: f64,
    pub plan: Plan,
    /// Cut by [`RegionPlan::cut`]: the first step of each batch and the one after its last.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub batches: Vec<[usize; 2]>,
    /// What the plan begins with, for checking it.
    #[serde(skip)]
    pub map: PartitionMap,
    /// Names of the machines, where given.
    #[serde(skip)]
    pub machine_names: Vec<Option<String>>,
    /// When what is done, for the drawing.
    #[serde(skip)]
    pub timeline: Option<Timeline>,
}

impl RegionPlan {
    /// Cuts the plan into batches of at most so many bytes.
    pub fn cut(&mut self, bytes: f64) {
        let batches = self.plan.batches(bytes).into_iter();
        self.batches = batches.map(|batch| [batch.start, batch.end]).collect();
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Split {
    pub partition: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Key>,
    pub right: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Move {
    pub partition: u32,
    pub from: u32,
    pub to: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PieceReport {
    pub id: u32,
    /// The partition, as given, that it is a piece of.
    pub of: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub table: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub low: Option<Key>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub high: Option<Key>,
    pub e: f64,
    pub n: f64,
    pub h: u32,
}

/// Plans a bulk insert, update or delete. `over` says when a polish has to end.
pub fn plan(
    request: &Request,
    mode: Mode,
    over: &mut dyn FnMut() -> bool,
) -> Result<InsertPlan, InputError> {
    request.check()?;
    let pieces = fine_enough(request)?;
    let regions = Region::all(request, &pieces)?;
    let mut plans = Vec::with_capacity(regions.len());
    for region in &regions {
        let problem = region.problem(request, &pieces);
        check_total(&problem)?;
        if mode == Mode::Paper && problem.limits.is_some() {
            let problem = "the paper's algorithm knows no drain, storage_bytes or max_moved_bytes: \
                           use another mode";
            return Err(InputError::new("input", problem));
        }
        let solution = solve(&problem, mode, request.seed, over);
        if let Some(unmet) = solution.unmet {
            return Err(region.refusal(request, plans.len(), unmet));
        }
        plans.push(region_plan(request, region, &pieces, &problem, solution));
    }
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

/// Hot ranges are cut finer as long as the plan stays above its bound by more than this, up to so
/// many times, in so many attempts.
const NEAR_BOUND: f64 = 0.01;
const FINEST: usize = 32;
const MOST_ATTEMPTS: usize = 4;
/// Finer pieces have to make the plan cheaper by this part of it.
const WORTH_CUTTING: f64 = 0.005;
/// No finer pieces are tried beyond this number.
const MOST_PIECES: usize = 100_000;

/// The pieces that let a fast plan come near to its bound.
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
        // What one machine gets too much of is a part of a piece.
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

/// The cost of a fast plan for the request's own machines, and how far it is above its bound.
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

/// Sums that overflow would make every plan cost alike.
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
        h: region.homes[piece.of as usize],
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
    let steps = steps(request, pieces, problem, &solution.dest);
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
    let map = map(request, region, pieces, nodes);
    RegionPlan {
        timeline: timeline(request, region, &plan, &map, pieces),
        name: region.name.map(str::to_owned),
        machines: region.machines.len(),
        moves: moves(&homes, &solution.dest),
        dest: solution.dest,
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

/// The partitions as they are before the plan.
fn map(request: &Request, region: &Region, pieces: &Pieces, nodes: Vec<Node>) -> PartitionMap {
    let mut records = vec![0.0; pieces.originals.len()];
    for piece in &pieces.pieces {
        records[piece.of as usize] += piece.existing;
    }
    let partition = |(index, original): (usize, &Original)| Partition {
        table: original
            .table
            .map(|table| pieces.tables[table as usize].clone()),
        low: original.low.clone(),
        high: original.high.clone(),
        records: records[index],
        bytes: records[index] * request.record_bytes,
        replicas: vec![region.homes[index]],
    };
    PartitionMap {
        nodes,
        partitions: pieces.originals.iter().enumerate().map(partition).collect(),
        min_live: 1,
    }
}

fn moves(homes: &[u32], dest: &[u32]) -> Vec<Move> {
    let pairs = homes.iter().zip(dest).enumerate();
    let moved = pairs.filter(|(_, (from, to))| from != to);
    moved
        .map(|(partition, (&from, &to))| Move {
            partition: partition as u32,
            from,
            to,
        })
        .collect()
}

/// The splits, then the moves: the largest first so that none is left alone at the end, as far as
/// there is room.
fn steps(request: &Request, pieces: &Pieces, problem: &Problem, dest: &[u32]) -> Vec<Step> {
    let mut steps = pieces.steps.clone();
    for step in &mut steps {
        step.bytes = step.records * request.record_bytes;
    }
    let splits = steps.len() as u32;
    steps.extend(ordered(pieces, problem, dest).into_iter().map(|at| {
        let records = pieces.pieces[at.item as usize].existing;
        let action = Action::Move {
            partition: at.item,
            from: problem.items[at.item as usize].home,
            to: dest[at.item as usize],
        };
        let mut step = Step::new(action, records, records * request.record_bytes);
        step.after = pieces.split_of[at.item as usize].into_iter().collect();
        step.after
            .extend(at.after.iter().map(|place| splits + place));
        step
    }));
    steps
}

fn ordered(pieces: &Pieces, problem: &Problem, dest: &[u32]) -> Vec<OrderedMove> {
    if let Some(limits) = &problem.limits {
        // The solution was taken for having an order.
        return in_order(problem, limits, dest).unwrap_or_default();
    }
    let mut moves = moves(&problem.homes(), dest);
    let existing = |at: &Move| pieces.pieces[at.partition as usize].existing;
    moves.sort_by(|a, b| {
        let by_size = existing(b).total_cmp(&existing(a));
        by_size.then(a.partition.cmp(&b.partition))
    });
    let alone = |at: Move| OrderedMove {
        item: at.partition,
        after: Vec::new(),
    };
    moves.into_iter().map(alone).collect()
}

fn node_prices(region: &Region, pieces: &Pieces, homes: &[u32], dest: &[u32]) -> Vec<NodePrice> {
    let mut nodes = vec![NodePrice::default(); region.machines.len()];
    for (node, spec) in nodes.iter_mut().zip(&region.machines) {
        node.insert_before = spec.insert_load;
        node.insert_after = spec.insert_load;
    }
    for (piece, (&from, &to)) in pieces.pieces.iter().zip(homes.iter().zip(dest)) {
        let (from, to) = (from as usize, to as usize);
        nodes[from].before += piece.existing;
        nodes[to].after += piece.existing;
        nodes[from].insert_before += piece.new + piece.running;
        nodes[to].insert_after += piece.new + piece.running;
        if from != to {
            nodes[from].moved_out += piece.existing;
            nodes[to].moved_in += piece.existing;
        }
    }
    nodes
}

fn inserting_seconds(request: &Request, region: &Region, nodes: &[NodePrice]) -> Option<f64> {
    let rates = region.insert_rates(request)?;
    let times = nodes
        .iter()
        .zip(rates)
        .map(|(node, rate)| node.insert_after / rate);
    Some(times.fold(0.0, f64::max))
}
