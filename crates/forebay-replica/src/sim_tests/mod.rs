//! A simulator of one group, for tests.
//!
//! It runs replicas over model engines and disks, or over the engine and its log on simulated
//! disks. It has a network, faults drawn from a seed, and clients whose histories are checked.
//!
//! Everything runs in one thread, in the order of simulated time, so a seed repeats a run with the
//! same trace hash.

mod carry;
mod checks;
mod clients;
mod coordinator;
mod disk;
mod duels;
mod evaluating;
mod failover;
mod faults;
mod hosts;
mod linear;
mod model;
mod real;
mod real_apply;
mod real_store;
mod register;
mod runs;
mod stale;
mod store;
mod world;

use std::collections::BTreeMap;

use clients::Habits;
use real::{RealKind, StoreBug};
use stale::StaleBug;
use world::{MS, SECOND, Stores, World};

use crate::bugs::{Bug, plant};

/// The result of a run.
#[derive(Debug)]
pub struct Outcome {
    pub trace: u64,
    /// The check that failed.
    pub violation: Option<String>,
    /// Counts of events, for people.
    pub counts: BTreeMap<&'static str, u64>,
}

/// Runs a random group under random faults, with a planted defect or none.
pub fn run(seed: u64, bug: Option<Bug>) -> Outcome {
    if seed % 8 == 7 {
        return duels::run(seed, bug);
    }
    plant(bug);
    let mut world = World::new(seed);
    world.evaluates = seed % 2 == 1;
    world.clients.habits.add_blindly = world.evaluates;
    run_storm_of_faults(&mut world, 10, 25);
    finish(world)
}

/// Runs a group with a defect of stale reads.
pub fn run_stale(seed: u64, bug: StaleBug) -> Outcome {
    plant(None);
    let mut world = World::new(seed);
    world.stale.bug = Some(bug);
    run_storm_of_faults(&mut world, 10, 25);
    finish(world)
}

/// Runs replicas with production states and logs, and a planted defect of how they are combined, or
/// none.
pub fn run_on_engine(seed: u64, bug: Option<StoreBug>) -> Outcome {
    plant(None);
    let mut world = World::new(seed);
    let is_ordered = world.chance(500);
    world.evaluates = world.chance(500);
    world.stores = Stores::Real(RealKind { is_ordered, bug });
    world.clients.habits = Habits {
        clients: 6,
        most_pause: 80 * MS,
        add_blindly: true,
        ..Habits::default()
    };
    run_storm_of_faults(&mut world, 5, 12);
    // The later effects of the last fault belong to the storm.
    world.run_for(4 * SECOND);
    finish(world)
}

fn run_storm_of_faults(world: &mut World, least_s: u64, most_s: u64) {
    let replicas = [3, 3, 3, 5, 1][world.rng.below(5) as usize];
    let spares = world.rng.below(2) as usize + usize::from(replicas == 1);
    world.build(replicas, spares);
    world.start_coordinator();
    world.run_for(4 * SECOND);
    let stormy_s = world.between(least_s, most_s);
    faults::schedule(world, stormy_s);
    world.start_clients(stormy_s + 2);
    world.read_stale_for(stormy_s + 2);
    world.run_for(stormy_s * SECOND);
}

/// Ends all faults, completes the remaining work, and checks the histories.
fn finish(mut world: World) -> Outcome {
    world.heal();
    let settled = world.run_until(60 * SECOND, |world| world.unsettled().is_none());
    if settled.is_none() {
        let problem = world.unsettled().unwrap_or_default();
        world.fail(format!("not settled after 60 s without faults: {problem}"));
    }
    world.read_at_the_end();
    world.check_at_the_end();
    if world.violation.is_none() {
        world.check_histories();
    }
    plant(None);
    Outcome {
        trace: world.trace,
        violation: world.violation,
        counts: world.counts,
    }
}
