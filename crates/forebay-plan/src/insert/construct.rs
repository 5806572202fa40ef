//! Constructs a first plan under an insert limit.
//!
//! Machines give away partitions down to the limit. Then these are placed by best fit in two
//! dimensions, the largest first.

use super::fluid::FluidProblem;
use super::least_loaded::LeastLoaded;
use super::problem::Problem;

/// The most machines that are considered for one partition.
const LOOKED_AT: usize = 12;

/// The machines' times while a plan is made.
struct MachineLoads<'p> {
    problem: &'p Problem,
    insert: Vec<f64>,
    moving: Vec<f64>,
    insert_limit: f64,
    move_limit: f64,
    /// The bytes on each machine, if limits count them.
    held: Vec<f64>,
}

impl MachineLoads<'_> {
    /// Returns the fuller of the two dimensions if this were added.
    fn fill(&self, machine: usize, insert: f64, moving: f64) -> f64 {
        let m = &self.problem.machines[machine];
        let insert = self.insert[machine] + insert / m.insert_speed;
        let moving = self.moving[machine] + moving / m.move_speed;
        let move_part = if moving > 0.0 {
            moving / self.move_limit
        } else {
            0.0
        };
        (insert / self.insert_limit).max(move_part)
    }

    /// Returns whether a machine has room for it.
    fn fits(&self, machine: usize, item: u32) -> bool {
        let limits = self.problem.limits.as_ref();
        limits.is_none_or(|limits| {
            let bytes = self.held[machine] + limits.grown[item as usize];
            !limits.drained[machine] && limits.fits(machine, bytes)
        })
    }

    /// Adds an item's bytes to a machine, or removes them.
    fn hold(&mut self, machine: usize, item: u32, sign: f64) {
        if let Some(limits) = &self.problem.limits {
            self.held[machine] += sign * limits.grown[item as usize];
        }
    }

    fn add(&mut self, machine: usize, insert: f64, moving: f64) {
        let m = &self.problem.machines[machine];
        self.insert[machine] += insert / m.insert_speed;
        self.moving[machine] += moving / m.move_speed;
    }
}

/// Returns an assignment whose machines insert about `limit` and move about as much as in the fluid
/// plan.
pub fn construct(fluid: &FluidProblem, problem: &Problem, limit: f64) -> Vec<u32> {
    let mut dest = problem.homes();
    let loads = problem.loads(&dest);
    let mut filling = MachineLoads {
        problem,
        held: problem
            .limits
            .as_ref()
            .map_or_else(Vec::new, |limits| limits.held(&dest)),
        insert: loads.insert,
        moving: loads.moving,
        insert_limit: limit.max(f64::MIN_POSITIVE),
        move_limit: fluid.moving(limit).max(limit * 1e-9).max(f64::MIN_POSITIVE),
    };
    let mut pool = give(fluid, &mut filling, limit);
    let size = |item: u32| {
        let it = &problem.items[item as usize];
        (it.insert / filling.insert_limit).max(it.moving / filling.move_limit)
    };
    let mut keyed: Vec<(f64, u32)> = pool.drain(..).map(|item| (size(item), item)).collect();
    keyed.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    let takers = (0..problem.machines.len()).filter(|&machine| problem.machines[machine].takes);
    let mut least_loaded = LeastLoaded::new(takers, |machine| filling.fill(machine, 0.0, 0.0));
    for (_, item) in keyed {
        place(&mut filling, &mut least_loaded, &mut dest, item);
    }
    dest
}

/// Takes from every machine above the limit what it gives away most cheaply. The last partition
/// goes if that leaves the machine nearer to the limit than keeping it.
fn give(fluid: &FluidProblem, filling: &mut MachineLoads, limit: f64) -> Vec<u32> {
    let mut pool = Vec::new();
    for machine in 0..filling.problem.machines.len() {
        let mut excess = fluid.excess(machine, limit);
        for &item in fluid.order(machine) {
            if excess <= 0.0 {
                break;
            }
            let it = filling.problem.items[item as usize];
            if it.insert > 2.0 * excess {
                // A later, smaller partition may fit.
                continue;
            }
            excess -= it.insert;
            filling.add(machine, -it.insert, it.moving);
            filling.hold(machine, item, -1.0);
            pool.push(item);
        }
    }
    pool
}

/// Places one partition so that its machine is the least full; at home if that is no fuller than
/// others.
fn place(filling: &mut MachineLoads, least_loaded: &mut LeastLoaded, dest: &mut [u32], item: u32) {
    let it = filling.problem.items[item as usize];
    let home = it.home as usize;
    // Each sibling excludes two machines: where it is, and where it comes from.
    let looked_at = LOOKED_AT + 2 * filling.problem.siblings(item).count();
    let mut best = (f64::INFINITY, home);
    if filling.fits(home, item) {
        best.0 = filling.fill(home, it.insert, -it.moving);
    }
    least_loaded.look(
        looked_at,
        |machine| filling.fill(machine, 0.0, 0.0),
        |machine, now| {
            let fill = filling.fill(machine, it.insert, it.moving);
            let may_go = || filling.problem.may_take(machine as u32, item, dest);
            let better = machine != home && fill < best.0;
            if better && filling.fits(machine, item) && may_go() {
                best = (fill, machine);
            }
            now < best.0
        },
    );
    let (_, to) = best;
    filling.hold(to, item, 1.0);
    if to == home {
        filling.add(home, it.insert, -it.moving);
    } else {
        filling.add(to, it.insert, it.moving);
        dest[item as usize] = to as u32;
    }
}
