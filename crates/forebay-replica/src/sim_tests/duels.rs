//! Tests of runs in which two replicas may act as the leader, with clients that ask both all the
//! time.
//!
//! If a lease's promise is broken, it is broken for moments only.

use super::clients::Habits;
use super::faults::restart_a_voter;
use super::world::{MS, SECOND, World};
use super::{Outcome, finish};
use crate::bugs::{Bug, plant};

pub fn run(seed: u64, bug: Option<Bug>) -> Outcome {
    plant(bug);
    let mut world = World::new(seed);
    world.build(3, 0);
    world.start_coordinator();
    world.run_for(4 * SECOND);
    world.clients.habits = Habits {
        clients: 8,
        keys: 1,
        most_pause: 8 * MS,
        patience: 60 * MS,
        reads_to_leader: 0,
        writes_to_leader: 300,
        are_plain: true,
        add_blindly: false,
    };
    world.start_clients(7);
    world.run_for(SECOND);
    let long = world.between(1000 * MS, 4500 * MS);
    match world.rng.below(3) {
        0 => restart_a_voter(&mut world, long),
        1 => stop_alone(&mut world, long),
        _ => receive_late(&mut world, long),
    }
    world.run_for(7 * SECOND);
    world.clients.habits.patience = 4 * SECOND;
    finish(world)
}

/// Pauses and isolates the leader; when it resumes it has received nothing.
fn stop_alone(world: &mut World, long: u64) {
    let Some(leader) = world.leader() else { return };
    world.isolate(leader);
    world.pause(leader);
    world.after(long, move |world| {
        world.resume(leader);
        world.after(500 * MS, move |world| world.rejoin(leader));
    });
}

/// Delivers answers to the leader after it has been isolated for long.
fn receive_late(world: &mut World, long: u64) {
    let Some(leader) = world.leader() else { return };
    world.net.late = 700;
    let pause = world.between(300 * MS, 1500 * MS);
    world.after(pause, move |world| {
        world.net.late = 0;
        world.isolate(leader);
        world.after(long, move |world| world.rejoin(leader));
    });
}
