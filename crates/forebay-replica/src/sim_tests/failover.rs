//! Measures how long writes pause when a leader dies, hangs or is isolated, in simulated time.

use super::model::Op;
use super::world::{SECOND, World};
use crate::bugs::plant;
use crate::events::Event;

/// The number of groups that lose their leader, for each kind of failure.
const RUNS: u64 = 200;

#[derive(Debug, Clone, Copy)]
enum Failure {
    Dies,
    Hangs,
    IsCutOff,
}

/// Returns three hosts and their leader, at a random moment between two heartbeats.
fn led_world(seed: u64) -> (World, usize) {
    plant(None);
    let mut world = World::new(seed);
    world.build(3, 0);
    let led = world.run_until(20 * SECOND, |world| world.leader().is_some());
    assert!(led.is_some(), "seed {seed}: no leader");
    // A random moment between two heartbeats.
    let settle = SECOND + world.rng.below(SECOND);
    world.run_for(settle);
    let leader = world.leader().unwrap();
    (world, leader)
}

/// Returns the time from the fault to the first write that is answered.
fn pause_ms(seed: u64, way: Failure) -> u64 {
    let (mut world, leader) = led_world(seed);
    match way {
        Failure::Dies => world.end(leader),
        Failure::Hangs => world.pause(leader),
        Failure::IsCutOff => world.isolate(leader),
    }
    let mut took = None;
    let begun = world.now;
    while took.is_none() {
        // A client without an answer asks the next host.
        world.clients.leader = (world.clients.leader + 1) % world.hosts.len();
        let request = world.ask(1, Op::Set(1));
        took = world.run_until(SECOND / 10, |world| world.is_answered(request));
        assert!(
            world.now < begun + 60 * SECOND,
            "seed {seed}: no writes after {way:?}"
        );
    }
    assert_eq!(world.violation, None, "seed {seed}");
    (world.now - begun) / 1000
}

/// Returns the time from the hand-over to the first write that is answered. The new leader answers
/// it, or the old one, which takes the lead back if the new one hangs.
fn hand_over_ms(seed: u64, hangs: bool) -> u64 {
    let (mut world, leader) = led_world(seed);
    let forced_peer = (leader + 1) % world.hosts.len();
    let (to, life) = (world.peer_of(forced_peer).unwrap(), world.life(leader));
    if hangs {
        world.pause(forced_peer);
    }
    world.on_host(life, move |world| {
        world.notify(life, Event::Transfer { to })
    });
    let (mut requests, begun) = (Vec::new(), world.now);
    loop {
        // Another host each time, as a client does without an answer.
        requests.push(world.ask(1, Op::Set(1)));
        let asked = requests.clone();
        let is_answered = |world: &World| asked.iter().any(|one| world.is_answered(*one));
        if world.run_until(SECOND / 20, is_answered).is_some() {
            break;
        }
        world.clients.leader = (world.clients.leader + 1) % world.hosts.len();
        let limit = begun + 60 * SECOND;
        assert!(world.now < limit, "seed {seed}: no writes, hangs: {hangs}");
    }
    assert_eq!(world.violation, None, "seed {seed}");
    (world.now - begun) / 1000
}

#[test]
fn writes_wait_briefly_for_a_hand_over() {
    for (hangs, most_ms) in [(false, 300), (true, 700)] {
        let mut pauses: Vec<_> = (0..RUNS).map(|seed| hand_over_ms(seed, hangs)).collect();
        pauses.sort();
        let (median, worst) = (pauses[pauses.len() / 2], pauses[pauses.len() - 1]);
        println!("hangs {hangs}: median {median} ms, worst {worst} ms of {RUNS}");
        assert!(worst <= most_ms, "hangs {hangs}: {median} ms, {worst} ms");
    }
}

#[test]
fn writes_resume_within_the_bounds() {
    for way in [Failure::Dies, Failure::Hangs, Failure::IsCutOff] {
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
