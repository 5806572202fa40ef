//! A simulator of whole clusters, for tests.
//!
//! It runs the state machines of several nodes over a model catalog, a model network and model
//! engines, with faults drawn from a seed.
//!
//! Everything happens in one thread, in the order of simulated time, so a seed repeats a run: the
//! same trace hash. Invariants are checked at every event ([`checks`]); the first violation ends
//! the run and is reported with the seed.

#[cfg(test)]
mod balanced;
mod checks;
mod clients;
mod engine;
mod faults;
mod inserts;
mod live;
mod live_checks;
mod live_loads;
mod live_losses;
mod live_runs;
mod lost;
mod matrix;
mod net;
mod offered;
mod placed;
mod plans;
mod reads;
mod runs;
mod shell;
mod splits;
mod store;
mod world;

use std::collections::BTreeMap;
use std::time::Duration;

use world::{PlantedDefects, World};

use crate::bugs::{Bug, plant};

/// The setup of a run.
#[derive(Debug, Clone)]
pub struct Setup {
    pub nodes: usize,
    pub zones: usize,
    /// How long operators push and faults occur, in seconds.
    pub stormy_s: u64,
    /// Whether faults occur at all.
    pub faults: bool,
}

/// The outcome of a run.
#[derive(Debug)]
pub struct Outcome {
    pub trace: u64,
    /// The violated invariant.
    pub violation: Option<String>,
    /// The number of events of each kind, for people.
    pub counts: BTreeMap<&'static str, u64>,
}

/// Runs a random cluster under random faults, with a planted defect or none.
pub fn run(seed: u64, bug: Option<Bug>, wrong: PlantedDefects) -> Outcome {
    plant(bug);
    let mut world = World::new(seed);
    world.draw_timing(seed);
    world.wrong = wrong;
    let setup = Setup {
        nodes: 3 + world.rng.below(5) as usize,
        zones: 1 + world.rng.below(3) as usize,
        stormy_s: 20 + world.rng.below(50),
        faults: !world.rng.chance(50),
    };
    world.is_faultless = !setup.faults;
    if world.rng.chance(200) {
        let seconds = world.rng.between(15, 30);
        world.settings.replace_after = Some(Duration::from_secs(seconds));
    }
    world.build(&setup);
    world.run_for_s(3);
    faults::schedule(&mut world, &setup);
    clients::schedule(&mut world, setup.stormy_s);
    world.run_for_s(setup.stormy_s);
    world.calm_down();
    world.outcome()
}
