//! Faults that the seed draws.

use super::engine::Trouble;
use super::world::{MS, SECOND, World};
use super::{Setup, engine::SimDiskState};
use crate::node::{FollowerEvent, NodeEvent};

/// Schedules faults now and then, until the storm is over.
pub fn schedule(world: &mut World, setup: &Setup) {
    if !setup.faults {
        return;
    }
    if world.rng.chance(300) {
        world.net.loss = world.rng.below(50);
        world.net.doubles = world.rng.below(50);
        world.net.late = world.rng.below(50);
    }
    if world.rng.chance(300) {
        world.store.fails = world.rng.below(150);
        world.store.slow = world.rng.below(100);
    }
    world.is_stormy = true;
    let end = world.now + setup.stormy_s * SECOND;
    next_fault(world, end);
}

fn next_fault(world: &mut World, end: u64) {
    let pause = world.rng.between(200, 9000) * MS;
    if world.now + pause > end {
        return;
    }
    world.after(pause, move |world| {
        world.count("faults");
        let at = world.rng.below(world.hosts.len() as u64) as usize;
        let long = world.rng.between(100, 35_000) * MS;
        fault(world, at, long);
        next_fault(world, end);
    });
}

/// Injects faults when a rollout enters its next phase: they matter most then.
pub fn at_phase(world: &mut World) {
    if !world.is_stormy || !world.rng.chance(250) {
        return;
    }
    let pause = world.rng.below(300) * MS;
    world.after(pause, |world| {
        let at = world.rng.below(world.hosts.len() as u64) as usize;
        let long = world.rng.between(100, 35_000) * MS;
        if world.is_stormy {
            fault(world, at, long);
        }
    });
}

fn fault(world: &mut World, at: usize, long: u64) {
    let other = world.rng.below(world.hosts.len() as u64) as usize;
    match world.rng.below(16) {
        0..=2 => {
            world.kill(at);
            // Disks are seldom lost. A lost disk is empty.
            if world.rng.chance(200) {
                world.hosts[at].disk = SimDiskState::default();
            }
            let quick = world.rng.chance(400);
            let pause = if quick { long / 40 } else { long };
            world.after(pause, move |world| world.start(at));
        }
        3 => {
            world.pause(at);
            world.after(long, move |world| world.resume(at));
        }
        14 => {
            // Its last messages arrive when the next process already runs.
            world.net.late = 600;
            world.after(2 * SECOND, move |world| {
                world.net.late = if world.is_stormy { 10 } else { 0 };
                world.kill(at);
                if world.rng.chance(500) {
                    world.hosts[at].disk = SimDiskState::default();
                }
                world.after(200 * MS, move |world| world.start(at));
            });
        }
        4 => {
            world.net.cuts.insert((at, other));
            world.after(long, move |world| {
                world.net.cuts.remove(&(at, other));
            });
        }
        5 => world.isolate_for(at, long + 15 * SECOND),
        6 => {
            world.store.is_away = true;
            world.after(long / 2, |world| world.store.is_away = false);
        }
        15 => {
            world.store.is_read_only = true;
            world.after(long, |world| world.store.is_read_only = false);
        }
        7 => {
            world.store.cut.insert(at);
            world.after(long, move |world| {
                world.store.cut.remove(&at);
            });
        }
        8 => {
            let life = world.life(at);
            world.notify(life, NodeEvent::Follower(FollowerEvent::Leave));
        }
        kind => {
            let trouble = &mut world.hosts[at].trouble;
            match kind {
                9 => trouble.is_full = true,
                10 => trouble.is_damaged = true,
                11 => trouble.is_stuck = true,
                12 => trouble.refuses_activation = true,
                _ => trouble.is_slow = true,
            }
            world.after(long, move |world| {
                world.hosts[at].trouble = Trouble::default()
            });
        }
    }
}

impl World {
    /// Ends all faults, and starts all processes.
    pub fn heal(&mut self) {
        self.is_stormy = false;
        self.net.cuts.clear();
        (self.net.loss, self.net.doubles, self.net.late) = (0, 0, 0);
        (self.store.is_away, self.store.is_read_only) = (false, false);
        self.store.cut.clear();
        (self.store.fails, self.store.slow) = (0, 0);
        for at in 0..self.hosts.len() {
            self.hosts[at].trouble = Trouble::default();
            self.resume(at);
            self.start(at);
        }
    }
}
