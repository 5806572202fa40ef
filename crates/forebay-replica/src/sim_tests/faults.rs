//! Injects faults that a seed draws.

use super::store::Trouble;
use super::world::{MS, SECOND, Stores, World};
use crate::bugs::{Bug, is_planted};
use crate::events::Event;
use crate::memory::Durability;

/// More calls of its disk than any process makes.
const NEVER: u64 = 1 << 60;

/// Injects faults now and then, until the storm is over.
pub fn schedule(world: &mut World, seconds: u64) {
    if world.chance(400) {
        world.net.loss = world.rng.below(60);
        world.net.doubles = world.rng.below(60);
        world.net.late = [60, 300][world.rng.below(2) as usize];
    }
    world.is_stormy = true;
    let end = world.now + seconds * SECOND;
    if let Stores::Real(_) = world.stores {
        next_death(world, end);
    }
    next_fault(world, end);
}

/// Ends a process now and then in the middle of a write, a flush, a merge or the like.
fn next_death(world: &mut World, end: u64) {
    let pause = world.between(200 * MS, 4000 * MS);
    if world.now + pause > end {
        return;
    }
    world.after(pause, move |world| {
        let hosts = world.hosts.len() as u64;
        let (at, calls) = (world.rng.below(hosts), world.rng.below(40));
        let life = world.life(at as usize);
        if let Some(store) = world.store(life) {
            store.die_within(calls);
        }
        next_death(world, end);
    });
}

fn next_fault(world: &mut World, end: u64) {
    let pause = world.between(200 * MS, 6000 * MS);
    if world.now + pause > end {
        return;
    }
    world.after(pause, move |world| {
        world.count("faults");
        // A fault of the leader matters most.
        let hosts = world.hosts.len() as u64;
        let any = world.rng.below(hosts) as usize;
        let at = if world.chance(500) {
            world.leader().unwrap_or(any)
        } else {
            any
        };
        let long = match world.chance(600) {
            true => world.between(50 * MS, 3 * SECOND),
            false => world.between(SECOND, 12 * SECOND),
        };
        fault(world, at, long);
        next_fault(world, end);
    });
}

fn fault(world: &mut World, at: usize, long: u64) {
    let hosts = world.hosts.len() as u64;
    let other = world.rng.below(hosts) as usize;
    match world.rng.below(16) {
        0 | 1 => {
            world.end(at);
            world.after(long / 8, move |world| world.start(at));
        }
        2..=4 => power(world, at, long),
        5 | 6 => {
            world.pause(at);
            world.after(long, move |world| world.resume(at));
        }
        7 | 8 => {
            world.isolate(at);
            world.after(long, move |world| world.rejoin(at));
        }
        9 => {
            world.net.cuts.insert((at, other));
            world.after(long, move |world| {
                world.net.cuts.remove(&(at, other));
            });
        }
        10 => {
            world.set_full(at, true);
            world.after(long, move |world| world.set_full(at, false));
        }
        11 => {
            world.hosts[at].is_slow = true;
            world.after(long, move |world| world.hosts[at].is_slow = false);
        }
        12 => world.hosts[at].unix_offset_ms += world.rng.below(20_000) as i64 - 10_000,
        13 => transfer(world),
        14 => restart_a_voter(world, long),
        _ => relocate(world, at),
    }
}

/// Fails the power, at one host or at all.
fn power(world: &mut World, at: usize, long: u64) {
    if world.durability == Durability::Sync {
        let all = world.chance(250);
        for host in (0..world.hosts.len()).filter(|host| all || *host == at) {
            world.lose_power(host);
            let pause = world.between(10 * MS, long);
            world.after(pause, move |world| world.start(host));
        }
        if !all && world.chance(150) && world.may_forget(at) {
            damage(world, at);
        }
    } else if world.chance(200) {
        world.reboot_clean(at);
        world.after(long, move |world| world.start(at));
    } else if world.may_forget(at) {
        world.lose_power(at);
        // If a process waits before it returns, the others continue without it.
        let quick = world.chance(600);
        world.after(if quick { 50 * MS } else { long }, move |world| {
            world.start(at)
        });
    }
}

fn damage(world: &mut World, at: usize) {
    if let Some(disk) = &mut world.hosts[at].disk
        && !is_planted(Bug::VotesAfterForgetting)
    {
        disk.found.log_is_whole = false;
    }
}

fn transfer(world: &mut World) {
    let Some(leader) = world.leader() else { return };
    let hosts = world.hosts.len() as u64;
    let to = world.rng.below(hosts) as usize;
    if let Some(to) = world.peer_of(to) {
        world.count("transfers");
        let life = world.life(leader);
        world.on_host(life, move |world| {
            world.notify(life, Event::Transfer { to })
        });
    }
}

/// Isolates a voter from the leader, so that it stands for election. Then the leader loses the
/// other voter, which has just promised not to help, and which is restarted.
pub fn restart_a_voter(world: &mut World, long: u64) {
    let Some(leader) = world.leader() else { return };
    let mut others = (0..world.hosts.len()).filter(|at| *at != leader);
    let (Some(stands), Some(votes)) = (others.next(), others.next()) else {
        return;
    };
    let (stands, votes) = match world.chance(500) {
        true => (stands, votes),
        false => (votes, stands),
    };
    world.net.cuts.extend([(leader, stands), (stands, leader)]);
    let pause = world.between(1500 * MS, 4000 * MS);
    world.after(pause, move |world| {
        // No fault begins in the final phase.
        if !world.is_stormy {
            return;
        }
        world.end(votes);
        world.net.cuts.extend([(leader, votes), (votes, leader)]);
        world.after(20 * MS, move |world| world.start(votes));
        world.after(long, move |world| world.rejoin(leader));
    });
}

/// Moves a replica to another host.
fn relocate(world: &mut World, at: usize) {
    let spare = (0..world.hosts.len()).find(|at| world.hosts[*at].disk.is_none());
    if let Some(to) = spare.filter(|_| world.wanted.contains(&at)) {
        world.count("moves");
        world.wanted.remove(&at);
        world.wanted.insert(to);
    }
}

impl World {
    /// Ends all faults, and starts all processes.
    pub fn heal(&mut self) {
        self.is_stormy = false;
        self.net = super::world::SimNet::default();
        for at in 0..self.hosts.len() {
            self.set_full(at, false);
            self.hosts[at].is_slow = false;
            self.resume(at);
            self.start(at);
            self.cancel_death(at);
        }
    }

    /// Cancels a planned death; one that has happened unnoticed is handled.
    fn cancel_death(&mut self, at: usize) {
        let life = self.life(at);
        let Some(store) = self.store(life) else {
            return;
        };
        store.die_within(NEVER);
        if store.is_dead() {
            self.trouble(life, Trouble::NoRoom);
        }
    }
}
