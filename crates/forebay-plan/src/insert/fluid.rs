//! The fluid version of the problem, in which partitions may be divided anywhere.
//!
//! It gives a lower bound for every plan, and the insert limits of the good plans.
//!
//! To get below an insert limit I, machine i has to give away at least s_i - I. It does so most
//! cheaply in the order of move cost per insert, the last partition in part: phi_i(I). Another
//! machine takes everything that is given, so the busiest machine moves at least
//!
//! ```text
//! max( max_i phi_i, (sum of all phi + sum of the takers' own phi) / the takers' speed )
//! ```
//!
//! which is convex in I, as is its sum with I.
//!
//! A partition that alone is a good part of a machine's load is not divided. Either it stays and
//! the others at its home make room, or it moves and those at its target do (`LargePartition`).
//! That bound only falls with I, so it is searched by halving intervals.

use super::limits::Limits;
use super::problem::{InsertItem, Problem};

/// One machine's movable partitions in the order in which they are given away.
#[derive(Debug, Clone, Default)]
struct Offers {
    /// Positions in the problem's items.
    items: Vec<u32>,
    /// The insert cost of the first k.
    insert: Vec<f64>,
    /// The move cost of the first k.
    moving: Vec<f64>,
}

impl Offers {
    /// Returns the least move cost of giving away at least `amount` of insert cost, and its slope
    /// (move cost per insert cost at that point). Returns `None` if there is not that much.
    fn least(&self, amount: f64) -> Option<(f64, f64)> {
        let count = self.insert.partition_point(|&sum| sum < amount);
        let (&high, &high_move) = (self.insert.get(count)?, self.moving.get(count)?);
        if count == 0 {
            return Some((0.0, 0.0));
        }
        let (low, low_move) = (self.insert[count - 1], self.moving[count - 1]);
        let slope = (high_move - low_move) / (high - low);
        let part = (amount - low) * slope;
        // If numbers differ too much to divide, the bound is still valid without this part.
        if !slope.is_finite() || !part.is_finite() {
            return Some((low_move, 0.0));
        }
        Some((low_move + part, slope))
    }

    /// Returns the move cost of giving away everything.
    fn all(&self) -> Option<(f64, f64)> {
        Some((self.moving.last().copied()?, 0.0))
    }

    /// Returns the least move cost if the item at `place`, if any, has to stay.
    fn least_without(&self, place: Option<usize>, item: &InsertItem, amount: f64) -> Option<f64> {
        match place {
            Some(place) if self.insert[place] < amount => {
                let with = self.least(amount + item.insert)?;
                Some(with.0 - item.moving)
            }
            _ => self.least(amount).map(|(cost, _)| cost),
        }
    }
}

/// The part of a machine's share of the inserts from which a partition is large.
const LARGE_SHARE: f64 = 0.25;
/// The most large partitions that are considered one by one.
const LARGE_COUNT: usize = 12;
const HALVINGS: usize = 80;

/// The fluid problem, sorted once for all limits.
#[derive(Debug, Clone)]
pub struct FluidProblem<'p> {
    problem: &'p Problem,
    offers: Vec<Offers>,
    /// The insert cost at home, at speed 1.
    at_home: Vec<f64>,
    /// The total speed of the machines that take partitions.
    takers_speed: f64,
    /// No assignment gets below this limit.
    pub least_insert: f64,
    /// This limit is reached without moves.
    pub most_insert: f64,
    base_move: f64,
    whole: Vec<LargePartition>,
}

/// A large partition, and its place in its home's offers if it may leave.
#[derive(Debug, Clone, Copy)]
struct LargePartition {
    item: InsertItem,
    place: Option<usize>,
}

/// The bound at one limit.
#[derive(Debug, Clone, Copy)]
struct Point {
    limit: f64,
    value: f64,
    slope: f64,
}

impl<'p> FluidProblem<'p> {
    pub fn new(problem: &'p Problem) -> Self {
        let count = problem.machines.len();
        let mut offers = vec![Offers::default(); count];
        let mut at_home: Vec<f64> = problem.machines.iter().map(|m| m.insert_load).collect();
        for (index, item) in problem.items.iter().enumerate() {
            at_home[item.home as usize] += item.insert;
            if problem.is_movable(item) {
                offers[item.home as usize].items.push(index as u32);
            }
        }
        for offer in &mut offers {
            sort_by_ratio(problem, offer);
        }
        let takers = problem.machines.iter().filter(|m| m.takes);
        let bases = problem.machines.iter();
        let mut fluid = Self {
            problem,
            offers,
            takers_speed: takers.map(|m| m.move_speed).sum(),
            least_insert: 0.0,
            most_insert: 0.0,
            base_move: bases
                .map(|m| m.move_load / m.move_speed)
                .fold(0.0, f64::max),
            at_home,
            whole: Vec::new(),
        };
        fluid.most_insert = fluid
            .times()
            .fold(0.0, |most: f64, (_, time)| most.max(time));
        let limits = problem.limits.as_ref();
        if limits.is_some_and(Limits::may_ask_for_moves) {
            // Partitions that have to leave may make another machine insert more than any does
            // without moves.
            let speeds = problem.machines.iter().map(|m| m.insert_speed);
            let slowest = speeds.fold(f64::INFINITY, f64::min);
            fluid.most_insert = fluid.at_home.iter().sum::<f64>() / slowest;
        }
        fluid.least_insert = fluid.insert_bound().min(fluid.most_insert);
        fluid.whole = fluid.large();
        fluid
    }

    fn times(&self) -> impl Iterator<Item = (usize, f64)> {
        let machines = self.problem.machines.iter().enumerate();
        machines.map(|(index, machine)| (index, self.at_home[index] / machine.insert_speed))
    }

    /// Returns the order in which a machine's partitions are best given away.
    pub fn order(&self, machine: usize) -> &[u32] {
        &self.offers[machine].items
    }

    /// Returns the insert cost that is at home on a machine, at speed 1.
    pub fn at_home(&self, machine: usize) -> f64 {
        self.at_home[machine]
    }

    /// Returns what machine `index` has to give away to reach the limit, at speed 1; infinite if it
    /// is drained.
    pub fn excess(&self, index: usize, limit: f64) -> f64 {
        if self.problem.is_drained(index) {
            return f64::INFINITY;
        }
        let speed = self.problem.machines[index].insert_speed;
        (self.at_home[index] - limit * speed).max(0.0)
    }

    /// Returns the least move time of the busiest machine under an insert limit; infinite if the
    /// limit cannot be kept.
    pub fn moving(&self, limit: f64) -> f64 {
        let fluid = self.moving_and_slope(limit).0;
        let whole = self
            .whole
            .iter()
            .map(|whole| self.moving_whole(whole, limit));
        whole.fold(fluid, f64::max)
    }

    /// Returns whether some partition alone is a good part of a machine's share.
    pub fn has_large(&self) -> bool {
        !self.whole.is_empty()
    }

    /// Returns the partitions that are large against a machine's share, the largest first.
    fn large(&self) -> Vec<LargePartition> {
        let items = &self.problem.items;
        let speeds = self.problem.machines.iter().map(|m| m.insert_speed);
        let share = self.at_home.iter().sum::<f64>() / speeds.sum::<f64>();
        let mut large: Vec<usize> = (0..items.len())
            .filter(|&index| items[index].insert > LARGE_SHARE * share)
            .filter(|&index| !self.problem.is_drained(items[index].home as usize))
            .collect();
        large.sort_by(|&a, &b| items[b].insert.total_cmp(&items[a].insert).then(a.cmp(&b)));
        large.truncate(LARGE_COUNT);
        let whole = |index: usize| {
            let item = items[index];
            let mut offers = self.offers[item.home as usize].items.iter();
            let place = offers.position(|&other| other as usize == index);
            LargePartition { item, place }
        };
        large.into_iter().map(whole).collect()
    }

    /// Returns the least move time of the busiest machine if this partition is not divided.
    fn moving_whole(&self, whole: &LargePartition, limit: f64) -> f64 {
        let LargePartition { item, place } = *whole;
        let home = item.home as usize;
        let machines = &self.problem.machines;
        let time = |machine: usize, cost: Option<f64>| {
            let m = &machines[machine];
            cost.map_or(f64::INFINITY, |cost| (cost + m.move_load) / m.move_speed)
        };
        let excess = self.excess(home, limit);
        let stay = time(home, self.offers[home].least_without(place, &item, excess));
        if place.is_none() || excess <= 0.0 {
            return stay;
        }
        let rest = (excess - item.insert).max(0.0);
        let left = self.offers[home].least_without(place, &item, rest);
        let leave = time(home, left.map(|cost| cost + item.moving));
        let go = (0..machines.len())
            .filter(|&to| to != home && machines[to].takes)
            .map(|to| {
                let room = limit * machines[to].insert_speed - self.at_home[to];
                let cost = self.offers[to].least((item.insert - room).max(0.0));
                time(to, cost.map(|(cost, _)| cost + item.moving))
            })
            .fold(f64::INFINITY, f64::min);
        stay.min(leave.max(go))
    }

    fn moving_and_slope(&self, limit: f64) -> (f64, f64) {
        let (mut most, mut most_slope) = (self.base_move, 0.0);
        let (mut total, mut total_slope) = (0.0, 0.0);
        for (index, machine) in self.problem.machines.iter().enumerate() {
            let excess = self.excess(index, limit);
            if excess <= 0.0 {
                total += if machine.takes {
                    machine.move_load
                } else {
                    0.0
                };
                continue;
            }
            let least = match self.problem.is_drained(index) {
                true => self.offers[index].all(),
                false => self.offers[index].least(excess),
            };
            let Some((cost, ratio)) = least else {
                return (f64::INFINITY, f64::NEG_INFINITY);
            };
            let slope = -ratio * machine.insert_speed;
            let time = (cost + machine.move_load) / machine.move_speed;
            if time > most {
                (most, most_slope) = (time, slope / machine.move_speed);
            }
            let counted = if machine.takes { 2.0 } else { 1.0 };
            total += counted * cost
                + if machine.takes {
                    machine.move_load
                } else {
                    0.0
                };
            total_slope += counted * slope;
        }
        if total > most * self.takers_speed {
            if self.takers_speed <= 0.0 {
                return (f64::INFINITY, f64::NEG_INFINITY);
            }
            return (total / self.takers_speed, total_slope / self.takers_speed);
        }
        (most, most_slope)
    }

    fn point(&self, limit: f64) -> Point {
        let (moving, slope) = self.moving_and_slope(limit);
        Point {
            limit,
            value: limit + moving,
            slope: 1.0 + slope,
        }
    }

    /// Returns the limit at which the bound is lowest, and that bound.
    pub fn best(&self) -> (f64, f64) {
        let (limit, bound) = self.best_fluid();
        if self.whole.is_empty() {
            return (limit, bound);
        }
        self.best_whole(bound)
    }

    /// Halves the interval of limits whose bound is lowest until that is no longer worth it.
    fn best_whole(&self, fluid: f64) -> (f64, f64) {
        // Within [low, high] no plan is below low + moving(high).
        let bound = |low: f64, high: f64| low + self.moving(high);
        let (low, high) = (self.least_insert, self.most_insert);
        let mut open = vec![(bound(low, high), low, high)];
        let mut best = (high + self.moving(high), high);
        for _ in 0..HALVINGS {
            let lowest = |a: &usize, b: &usize| open[*a].0.total_cmp(&open[*b].0);
            let Some(place) = (0..open.len()).min_by(lowest) else {
                break;
            };
            let (value, low, high) = open[place];
            if best.0 - value <= 1e-4 * best.0 {
                break;
            }
            let middle = 0.5 * (low + high);
            let moving = self.moving(middle);
            if middle + moving < best.0 {
                best = (middle + moving, middle);
            }
            open[place] = (low + moving, low, middle);
            open.push((bound(middle, high), middle, high));
        }
        let whole = open.iter().map(|open| open.0).fold(f64::INFINITY, f64::min);
        (best.1, whole.max(fluid))
    }

    /// Returns the limit at which the fluid plan is cheapest, and a lower bound of every plan's
    /// cost.
    fn best_fluid(&self) -> (f64, f64) {
        let mut low = self.point(self.least_insert);
        let mut high = self.point(self.most_insert);
        if low.slope >= 0.0 {
            return (low.limit, low.value);
        }
        if high.slope <= 0.0 {
            return (high.limit, high.value);
        }
        for _ in 0..100 {
            let middle = self.point(0.5 * (low.limit + high.limit));
            if middle.limit <= low.limit || middle.limit >= high.limit {
                break;
            }
            *(if middle.slope < 0.0 {
                &mut low
            } else {
                &mut high
            }) = middle;
        }
        let limit = if low.value < high.value {
            low.limit
        } else {
            high.limit
        };
        // The two tangents meet below the convex function.
        let bound = if low.value.is_finite() {
            let width = high.limit - low.limit;
            let meet = (high.value - low.value - high.slope * width) / (low.slope - high.slope);
            (low.value + low.slope * meet.clamp(0.0, width)).min(low.value.min(high.value))
        } else {
            high.value - high.slope * (high.limit - low.limit)
        };
        (limit, bound)
    }

    /// Returns the limits at which the fluid plan costs at most `cost`: around `center`, the
    /// cheapest one.
    pub fn range(&self, center: f64, cost: f64) -> (f64, f64) {
        let within = |limit: f64| limit + self.moving(limit) <= cost;
        let edge = |mut inside: f64, mut outside: f64| {
            if within(outside) {
                return outside;
            }
            for _ in 0..24 {
                let middle = 0.5 * (inside + outside);
                *(if within(middle) {
                    &mut inside
                } else {
                    &mut outside
                }) = middle;
            }
            inside
        };
        (
            edge(center, self.least_insert),
            edge(center, self.most_insert),
        )
    }

    /// Returns a lower bound of the busiest machine's inserts: on average, and by the pigeonhole
    /// principle (of the q * m + 1 largest partitions some machine has q + 1).
    fn insert_bound(&self) -> f64 {
        let machines = &self.problem.machines;
        let takes_part = |index: &usize| !self.problem.is_drained(*index);
        let kept = (0..machines.len()).filter(takes_part);
        let speed: f64 = kept.map(|index| machines[index].insert_speed).sum();
        if speed <= 0.0 {
            return 0.0;
        }
        let mut bound = self.at_home.iter().sum::<f64>() / speed * (1.0 - 1e-12);
        for (index, machine) in machines.iter().enumerate() {
            if !takes_part(&index) {
                continue;
            }
            let given = self.offers[index].insert.last().copied().unwrap_or(0.0);
            // A partition that may not leave stays.
            bound = bound.max((self.at_home[index] - given) / machine.insert_speed * (1.0 - 1e-12));
        }
        bound.max(self.pigeonhole())
    }

    fn pigeonhole(&self) -> f64 {
        let fastest = self
            .problem
            .machines
            .iter()
            .map(|m| m.insert_speed)
            .fold(0.0, f64::max);
        let mut inserts: Vec<f64> = self.problem.items.iter().map(|item| item.insert).collect();
        inserts.sort_unstable_by(|a, b| b.total_cmp(a));
        let (count, mut bound) = (self.problem.machines.len(), 0.0f64);
        // The smallest q + 1 of the first q * m + 1; more than this many are never the tightest
        // bound.
        for q in 0..64 {
            let Some(last) = (q * count < inserts.len()).then_some(q * count) else {
                break;
            };
            if last < q {
                break;
            }
            bound = bound.max(inserts[last - q..=last].iter().sum::<f64>());
        }
        bound / fastest * (1.0 - 1e-12)
    }
}

fn sort_by_ratio(problem: &Problem, offers: &mut Offers) {
    let ratio = |index: u32| {
        let item = &problem.items[index as usize];
        item.moving / item.insert
    };
    let mut keyed: Vec<(f64, u32)> = offers.items.iter().map(|&i| (ratio(i), i)).collect();
    keyed.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let (mut insert, mut moving) = (0.0, 0.0);
    offers.insert.push(0.0);
    offers.moving.push(0.0);
    for (place, &(_, index)) in keyed.iter().enumerate() {
        let item = &problem.items[index as usize];
        offers.items[place] = index;
        insert += item.insert;
        moving += item.moving;
        offers.insert.push(insert);
        offers.moving.push(moving);
    }
}
