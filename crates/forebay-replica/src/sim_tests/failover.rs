//! How long writes pause when a leader dies, hangs or is cut off, in simulated time.

use super::model::Op;
use super::world::{SECOND, World};
use crate::bugs::plant;

/// Groups that lose their leader, of each way.
const RUNS: u64 = 200;

#[derive(Debug, Clone, Copy)]
enum Way {
    Dies,
    Hangs,
    IsCutOff,
}

/// From the fault to the first write that is answered.
fn pause_ms(seed: u64, way: Way) -> u64 {
    plant(None);
    let mut world = World::new(seed);
    world.build(3, 0);
    let led = world.go_on_until(20 * SECOND, |world| world.leader().is_some());
    assert!(led.is_some(), "seed {seed}: no leader");
    // At any moment between two heartbeats.
    let settle = SECOND + world.dice.below(SECOND);
    world.go_on_for(settle);
    let leader = world.leader().unwrap();
    match way {
        Way::Dies => world.end(leader),
        Way::Hangs => world.pause(leader),
        Way::IsCutOff => world.isolate(leader),
    }
    let mut took = None;
    let begun = world.now;
    while took.is_none() {
        // A client that is not answered asks the next host.
        world.clients.leader = (world.clients.leader + 1) % world.hosts.len();
        let request = world.ask(1, Op::Set(1));
        took = world.go_on_until(SECOND / 10, |world| world.is_answered(request));
        assert!(
            world.now < begun + 60 * SECOND,
            "seed {seed}: no writes after {way:?}"
        );
    }
    assert_eq!(world.violation, None, "seed {seed}");
    (world.now - begun) / 1000
}

#[test]
fn writes_resume_within_the_bounds() {
    for way in [Way::Dies, Way::Hangs, Way::IsCutOff] {
        let mut pauses: Vec<_> = (0..RUNS).map(|seed| pause_ms(seed, way)).collect();
        pauses.sort();
        let (median, worst) = (pauses[pauses.len() / 2], pauses[pauses.len() - 1]);
        println!("{way:?}: median {median} ms, worst {worst} ms of {RUNS}");
        assert!(
            median <= 4000 && worst <= 8000,
            "{way:?}: {median} ms, {worst} ms"
        );
    }
}
