//! A simulator of whole clusters, for tests: the machines of several nodes over a model catalog, a
//! model network and model engines, with faults drawn from a seed.
//!
//! Everything happens in one thread, in the order of simulated time, so a seed repeats a run: the
//! same trace hash. What has to hold is checked at every event ([`checks`]); the first thing that
//! does not ends the run and is told with the seed.

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
mod moving_checks;
mod net;
mod offered;
mod placed;
mod plans;
mod read_only;
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

/// What a run is made of.
#[derive(Debug, Clone)]
pub struct Setup {
    pub nodes: usize,
    pub zones: usize,
    /// How long operators push and faults come, in seconds.
    pub stormy_s: u64,
    /// Whether faults come at all.
    pub faults: bool,
}

/// What came of a run.
#[derive(Debug)]
pub struct Outcome {
    pub trace: u64,
    /// What did not hold.
    pub violation: Option<String>,
    /// How often what happened, for people.
    pub counts: BTreeMap<&'static str, u64>,
}

/// A run of a random cluster under random faults, and a planted defect or none.
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
    world.go_on_for_s(3);
    faults::schedule(&mut world, &setup);
    clients::schedule(&mut world, setup.stormy_s);
    world.go_on_for_s(setup.stormy_s);
    world.calm_down();
    world.outcome()
}
