//! The paper's algorithm (sections 4.4 and 4.5): Offload, MinMove and Onload.
//!
//! It runs for some insert limits, and keeps the cheapest plan.
//! docs/papers/planned-bulk-insertion.md lists what is corrected.

use super::fluid::FluidProblem;
use super::least_loaded::LeastLoaded;
use super::problem::Problem;

/// Up to this many partitions all limits are scanned: the cost has several local minima.
const SCANNED_PARTITIONS: usize = 50;
const SCANNED_LIMITS: usize = 200;
const TRIED_LIMITS: usize = 12;

/// A partition of the common pool as a vector (insert, move cost).
#[derive(Debug, Clone, Copy)]
struct Vector {
    item: u32,
    x: f64,
    y: f64,
}

/// The room of a machine.
#[derive(Debug, Clone, Copy)]
struct Bin {
    machine: u32,
    u: f64,
    /// For a move limit of 1.
    v: f64,
}

/// Returns the cheapest of the paper's plans, and of no moves.
pub fn plan(problem: &Problem, fluid: &FluidProblem) -> Vec<u32> {
    let mut best = (problem.cost(&problem.homes()), problem.homes());
    let bound = fluid.best().1;
    for limit in limits(problem, fluid) {
        if best.0 <= bound {
            break;
        }
        let dest = plan_under(problem, fluid, limit);
        let cost = problem.cost(&dest);
        if cost < best.0 {
            best = (cost, dest);
        }
    }
    best.1
}

/// Returns the insert limits to try: over the whole range for few partitions, otherwise around the
/// fluid optimum.
fn limits(problem: &Problem, fluid: &FluidProblem) -> Vec<f64> {
    let (low, high) = (fluid.least_insert, fluid.most_insert);
    if problem.items.len() <= SCANNED_PARTITIONS {
        let step = (high - low) / SCANNED_LIMITS as f64;
        return (0..=SCANNED_LIMITS)
            .map(|k| low + step * k as f64)
            .collect();
    }
    let (center, bound) = fluid.best();
    let (low, high) = fluid.range(center, bound * 1.02);
    let step = (high - low) / (TRIED_LIMITS - 1) as f64;
    let around = (0..TRIED_LIMITS).map(|k| low + step * k as f64);
    around.chain([center]).collect()
}

fn plan_under(problem: &Problem, fluid: &FluidProblem, limit: f64) -> Vec<u32> {
    let mut dest = problem.homes();
    let (mut pool, at_home, offloaded) = offload(problem, fluid, limit);
    let mut bins: Vec<Bin> = (0..problem.machines.len())
        .filter_map(|index| {
            let machine = problem.machines[index];
            let u = limit * machine.insert_speed - at_home[index];
            let fits = machine.takes && u > 0.0;
            fits.then_some(Bin {
                machine: index as u32,
                u,
                v: machine.move_speed,
            })
        })
        .collect();
    let of = |vector: &Vector| slope(vector.x, vector.y);
    pool.sort_by(|a, b| of(a).total_cmp(&of(b)).then(a.item.cmp(&b.item)));
    let of = |bin: &Bin| slope(bin.u, bin.v);
    bins.sort_by(|a, b| of(a).total_cmp(&of(b)).then(a.machine.cmp(&b.machine)));
    let left = match min_move(&pool, &bins).max(offloaded) {
        // Moves cost nothing: one dimension remains, which `spread` packs.
        moving if moving <= 0.0 => pool,
        moving => onload(&pool, &bins, moving, &mut dest),
    };
    spread(problem, left, &mut dest);
    dest
}

/// Takes partitions from every machine above the limit in increasing move cost per insert. The
/// partition that crosses the limit goes if that leaves the machine nearer to it. Returns the pool,
/// the remaining loads, and the most that one machine pays.
fn offload(problem: &Problem, fluid: &FluidProblem, limit: f64) -> (Vec<Vector>, Vec<f64>, f64) {
    let mut pool = Vec::new();
    let mut kept = vec![0.0; problem.machines.len()];
    let mut most: f64 = 0.0;
    for (index, kept) in kept.iter_mut().enumerate() {
        let machine = problem.machines[index];
        let allowed = limit * machine.insert_speed;
        let (mut insert, mut moving) = (fluid.at_home(index), machine.move_load);
        for &item in fluid.order(index) {
            let it = problem.items[item as usize];
            if insert <= allowed || it.insert > 2.0 * (insert - allowed) {
                break;
            }
            insert -= it.insert;
            moving += it.moving;
            pool.push(Vector {
                item,
                x: it.insert,
                y: it.moving,
            });
        }
        *kept = insert;
        most = most.max(moving / machine.move_speed);
    }
    (pool, kept, most)
}

/// Returns y/x of a vector or a bin. Both have x above zero, since a partition that receives
/// nothing is never offloaded.
fn slope(x: f64, y: f64) -> f64 {
    y / x
}

/// Returns the least move limit at which the bins' diagonal is above the vectors' envelope. Between
/// two ends of bins the diagonal is straight and the envelope convex, so the ends decide.
fn min_move(pool: &[Vector], bins: &[Bin]) -> f64 {
    let room: f64 = bins.iter().map(|bin| bin.u).sum();
    let load: f64 = pool.iter().map(|vector| vector.x).sum();
    let mut limit: f64 = 0.0;
    let (mut x, mut y) = ((room - load).max(0.0), 0.0);
    let (mut end, mut speed) = (0.0, 0.0);
    let mut next = 0;
    for bin in bins {
        end += bin.u;
        speed += bin.v;
        while next < pool.len() && x + pool[next].x <= end {
            x += pool[next].x;
            y += pool[next].y;
            next += 1;
        }
        let part = pool.get(next).map_or(0.0, |vector| {
            let part = ((end - x) / vector.x).clamp(0.0, 1.0);
            vector.y * part
        });
        limit = limit.max((y + part) / speed);
    }
    limit
}

/// The slack in both dimensions, which may be given out in parts.
struct Slack {
    x: f64,
    y: f64,
}

/// The vectors that no bin has taken yet, in order of slope: a linked list with both ends marked.
struct Pool<'a> {
    vectors: &'a [Vector],
    next: Vec<usize>,
    before: Vec<usize>,
}

impl Pool<'_> {
    /// Creates the pool. Position k of the list is vector k - 1; 0 and the last stand for the
    /// slack.
    fn new(vectors: &[Vector]) -> Pool<'_> {
        let end = vectors.len() + 1;
        Pool {
            vectors,
            next: (1..=end + 1).collect(),
            before: (0..=end).map(|k| k.saturating_sub(1)).collect(),
        }
    }

    fn end(&self) -> usize {
        self.vectors.len() + 1
    }

    fn get(&self, place: usize) -> Option<Vector> {
        self.vectors.get(place.checked_sub(1)?).copied()
    }

    fn remove(&mut self, place: usize) {
        let (before, next) = (self.before[place], self.next[place]);
        self.next[before] = next;
        self.before[next] = before;
    }
}

/// Fills the bins along their diagonals. Returns the vectors that no bin took.
fn onload(vectors: &[Vector], bins: &[Bin], limit: f64, dest: &mut [u32]) -> Vec<Vector> {
    let sum = |of: fn(&Vector) -> f64| vectors.iter().map(of).sum::<f64>();
    let mut slack = Slack {
        x: (bins.iter().map(|bin| bin.u).sum::<f64>() - sum(|v| v.x)).max(0.0),
        y: (bins.iter().map(|bin| bin.v * limit).sum::<f64>() - sum(|v| v.y)).max(0.0),
    };
    let mut pool = Pool::new(vectors);
    let mut low = 0;
    for bin in bins {
        let bin = Bin {
            v: bin.v * limit,
            ..*bin
        };
        // The slopes of the bins grow, so the search continues where it ended.
        while let Some(vector) = pool.get(pool.next[low]) {
            if slope(vector.x, vector.y) > slope(bin.u, bin.v) {
                break;
            }
            low = pool.next[low];
        }
        low = fill(&mut pool, &mut slack, low, bin, dest);
    }
    let mut left = Vec::new();
    let mut place = pool.next[0];
    while let Some(vector) = pool.get(place) {
        left.push(vector);
        place = pool.next[place];
    }
    left
}

/// Fills one bin from the vectors below and above its slope, so that their sum stays at its
/// diagonal. Stops once a component reaches the bin's.
fn fill(pool: &mut Pool, slack: &mut Slack, mut low: usize, bin: Bin, dest: &mut [u32]) -> usize {
    let mut high = pool.next[low];
    let (mut x, mut y) = (0.0, 0.0);
    while x < bin.u && y < bin.v {
        let (below, above) = (pool.get(low), pool.get(high));
        let (lx, ly) = below.map_or((slack.x, 0.0), |v| (v.x, v.y));
        let (rx, ry) = above.map_or((0.0, slack.y), |v| (v.x, v.y));
        let steep = (y + ly + ry) * bin.u >= (x + lx + rx) * bin.v;
        // The part of the slack that returns the sum to the diagonal.
        let flat_part = (y * bin.u / bin.v - x).clamp(0.0, slack.x);
        let steep_part = (x * bin.v / bin.u - y).clamp(0.0, slack.y);
        match (steep, below, above) {
            (true, Some(vector), _) | (false, Some(vector), None) if steep || steep_part <= 0.0 => {
                (x, y) = (x + vector.x, y + vector.y);
                dest[vector.item as usize] = bin.machine;
                let before = pool.before[low];
                pool.remove(low);
                low = before;
            }
            (false, _, Some(vector)) | (true, None, Some(vector)) if !steep || flat_part <= 0.0 => {
                (x, y) = (x + vector.x, y + vector.y);
                dest[vector.item as usize] = bin.machine;
                let next = pool.next[high];
                pool.remove(high);
                high = next;
            }
            _ if below.is_none() && flat_part > 0.0 => {
                x += flat_part;
                slack.x -= flat_part;
            }
            _ if above.is_none() && steep_part > 0.0 => {
                y += steep_part;
                slack.y -= steep_part;
            }
            _ => break,
        }
    }
    debug_assert!(high <= pool.end());
    low
}

/// Places the remaining vectors, the largest first. Each goes to the machine on which the sum of
/// the two times becomes least, or stays at home. In one dimension this is the longest-first rule.
fn spread(problem: &Problem, mut left: Vec<Vector>, dest: &mut [u32]) {
    left.sort_by(|a, b| b.x.total_cmp(&a.x).then(a.item.cmp(&b.item)));
    // The vectors that are not yet placed are on no machine.
    let mut rest = problem.clone();
    for vector in &left {
        let item = &mut rest.items[vector.item as usize];
        (item.insert, item.moving) = (0.0, 0.0);
    }
    let loads = rest.loads(dest);
    let (mut insert, mut moving) = (loads.insert, loads.moving);
    let takers = (0..problem.machines.len()).filter(|&index| problem.machines[index].takes);
    let mut least_loaded = LeastLoaded::new(takers, |index| insert[index] + moving[index]);
    for vector in left {
        let home = problem.items[vector.item as usize].home as usize;
        let best = least_loaded.least(|index| insert[index] + moving[index]);
        let here = insert[home] + vector.x / problem.machines[home].insert_speed;
        let there = |to: usize| {
            let m = &problem.machines[to];
            insert[to] + moving[to] + vector.x / m.insert_speed + vector.y / m.move_speed
        };
        let to = best
            .filter(|&to| there(to) < here + moving[home])
            .unwrap_or(home);
        dest[vector.item as usize] = to as u32;
        insert[to] += vector.x / problem.machines[to].insert_speed;
        if to != home {
            moving[to] += vector.y / problem.machines[to].move_speed;
            moving[home] += vector.y / problem.machines[home].move_speed;
        }
    }
}
