//! Machines and processes: they start, end, pause, and lose their logs.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::disk::ModelStore;
use super::model::Answer;
use super::real::RealStore;
use super::store::{Store, Trouble};
use super::world::{GROUP, Job, Life, MS, Stores, World};
use crate::basis::NewProposal;
use crate::events::{Committed, Event, Permit, Persist};
use crate::freshness::Freshness;
use crate::ids::{PeerId, RequestId};
use crate::memory::{Durability, FoundMemory, check_memory};
use crate::pending::Pending;
use crate::quiet::QuietTicks;
use crate::replica::Replica;
use crate::start::Start;
use crate::tail::SnapshotFacts;
use crate::time::{Now, TICK};

/// A machine that may have a replica.
pub struct SimHost {
    /// Raised whenever its process starts or ends: events for an earlier one are lost.
    pub life: u64,
    pub boot: u128,
    pub process: Option<SimProcess>,
    pub disk: Option<HostDisk>,
    /// Its process is stopped (SIGSTOP), and events wait meanwhile.
    pub is_paused: bool,
    pub backlog: Vec<Job>,
    /// The time when it was stopped, and the time that requests are handled with. The process may
    /// have read its clock before they arrived.
    pub stopped_at: Option<Now>,
    pub old_clock: Option<Now>,
    pub is_full: bool,
    pub is_slow: bool,
    pub drift_ppm: i64,
    pub unix_offset_ms: i64,
}

/// The part of a host that survives processes.
pub struct HostDisk {
    pub peer: PeerId,
    pub found: FoundMemory,
    pub store: Box<dyn Store>,
}

pub struct SimProcess {
    pub replica: Replica,
    pub quiet: QuietTicks,
    pub applied: SnapshotFacts,
    pub flushed: u64,
    /// The entries and reads in progress: to be written, applied, and read, in order.
    pub writes: VecDeque<Persist>,
    pub is_writing: bool,
    pub applying: VecDeque<Vec<Committed>>,
    pub is_applying: bool,
    pub reading: Vec<Permit>,
    /// The times of requests for permits, and how current the data is.
    pub asked: BTreeMap<RequestId, Duration>,
    pub fresh: Freshness,
    /// The effects that it proposed as leader, with the answers to give once they are applied, and
    /// the proposals that it is about to make.
    pub pending: Pending<i64>,
    pub answers: BTreeMap<RequestId, Answer>,
    pub evaluated: VecDeque<NewProposal>,
}

impl SimHost {
    pub fn new(drift_ppm: i64, unix_offset_ms: i64) -> Self {
        Self {
            life: 0,
            boot: 1,
            process: None,
            disk: None,
            is_paused: false,
            backlog: Vec::new(),
            stopped_at: None,
            old_clock: None,
            is_full: false,
            is_slow: false,
            drift_ppm,
            unix_offset_ms,
        }
    }
}

impl World {
    /// Creates machines, the first of which found the group.
    pub fn build(&mut self, replicas: usize, spares: usize) {
        for _ in 0..replicas + spares {
            let drift_ppm = self.between(0, 20_000) as i64 - 10_000;
            let hour_ms = 3_600_000;
            let offset = [0, 0, hour_ms, -hour_ms][self.rng.below(4) as usize];
            self.hosts.push(SimHost::new(drift_ppm, offset));
        }
        self.wanted = (0..replicas).collect();
        let voters: Vec<_> = (1..=replicas as u64).map(PeerId).collect();
        for (at, peer) in voters.iter().enumerate() {
            let start = Start::founder(GROUP, *peer, &voters, 0);
            self.place(at, &start);
        }
    }

    /// Places a new peer on a host.
    fn place(&mut self, at: usize, start: &Start) {
        let found = FoundMemory {
            durability: self.durability,
            boot_then: self.hosts[at].boot,
            boot_now: self.hosts[at].boot,
            stopped_clean: false,
            log_is_whole: true,
        };
        self.peers.insert(start.me, at);
        let mut store: Box<dyn Store> = match self.stores {
            Stores::Model => Box::new(ModelStore::new(start)),
            Stores::Real(kind) => {
                let seed = self.rng.next_u64();
                Box::new(RealStore::new(start, self.durability, seed, kind))
            }
        };
        store.set_full(self.hosts[at].is_full);
        self.hosts[at].disk = Some(HostDisk {
            peer: start.me,
            found,
            store,
        });
        self.start(at);
    }

    /// Starts the host as an empty peer with the number that the coordinator gave.
    pub fn join(&mut self, at: usize) {
        self.count("joined");
        let peer = PeerId(self.peers.keys().last().map_or(1, |peer| peer.0 + 1));
        self.end(at);
        let start = Start::joiner(GROUP, peer, 0);
        self.place(at, &start);
    }

    pub fn life(&self, at: usize) -> Life {
        let life = self.hosts[at].life;
        Life { host: at, life }
    }

    pub fn process(&mut self, by: Life) -> Option<&mut SimProcess> {
        let host = &mut self.hosts[by.host];
        host.process.as_mut().filter(|_| host.life == by.life)
    }

    pub fn peer_of(&self, at: usize) -> Option<PeerId> {
        self.hosts[at].disk.as_ref().map(|disk| disk.peer)
    }

    /// Returns the store of a process, if it still runs.
    pub fn store(&mut self, by: Life) -> Option<&mut (dyn Store + 'static)> {
        let host = &mut self.hosts[by.host];
        let runs = host.process.is_some() && host.life == by.life;
        let disk = host.disk.as_mut().filter(|_| runs);
        disk.map(|disk| &mut *disk.store)
    }

    /// Starts a host's process, if it has a replica and none runs.
    pub fn start(&mut self, at: usize) {
        let seed = self.rng.next_u64();
        let now = self.clock(at);
        let host = &mut self.hosts[at];
        let Some(disk) = host.disk.as_mut().filter(|_| host.process.is_none()) else {
            return;
        };
        disk.found.boot_now = host.boot;
        let found = match disk.store.open(&disk.found, seed) {
            Ok(found) => found,
            Err(trouble) => return self.not_started(at, trouble),
        };
        if check_memory(&found).is_err() {
            host.disk = None;
            self.count("forgot");
            return self.join(at);
        }
        disk.found.boot_then = host.boot;
        (disk.found.stopped_clean, disk.found.log_is_whole) = (false, true);
        let start = match disk.store.start(GROUP, disk.peer, seed) {
            Ok(start) => start,
            Err(trouble) => return self.not_started(at, trouble),
        };
        let replica = match Replica::new(now, &start) {
            Ok(replica) => replica,
            Err(error) => return self.fail(format!("host {at} does not start: {error}")),
        };
        host.life += 1;
        host.process = Some(SimProcess {
            replica,
            quiet: QuietTicks::default(),
            flushed: start.applied.place.index,
            applied: start.applied,
            writes: VecDeque::new(),
            is_writing: false,
            applying: VecDeque::new(),
            is_applying: false,
            reading: Vec::new(),
            asked: BTreeMap::new(),
            fresh: Freshness::default(),
            pending: Pending::default(),
            answers: BTreeMap::new(),
            evaluated: VecDeque::new(),
        });
        let life = self.life(at);
        self.check_state(life);
        self.tick(life);
        self.sync_now_and_then(life);
    }

    fn not_started(&mut self, at: usize, trouble: Trouble) {
        match trouble {
            Trouble::Broken(problem) => self.fail(format!("host {at} does not start: {problem}")),
            Trouble::NoRoom => {
                self.end(at);
                self.after(100 * MS, move |world| world.start(at));
            }
        }
    }

    /// Handles a process that cannot continue: it died in the middle of an operation, or should not
    /// have failed.
    pub fn trouble(&mut self, life: Life, trouble: Trouble) {
        let at = life.host;
        let is_dead = self.store(life).is_some_and(|store| store.is_dead());
        if !is_dead {
            return self.fail(format!("host {at} cannot continue: {trouble:?}"));
        }
        self.count("deaths");
        // The simulated disk decides at random what an interrupted sync made durable.
        match self.durability {
            Durability::Sync => self.lose_power(at),
            Durability::Os | Durability::EveryMs(_) => self.end(at),
        }
        let pause = self.between(MS, 500 * MS);
        self.after(pause, move |world| world.start(at));
    }

    fn tick(&mut self, life: Life) {
        let tick = TICK.as_micros() as u64;
        let late = self.between(0, 5 * MS);
        self.after(tick + late, move |world| {
            world.on_host(life, move |world| {
                let process = world.process(life);
                if process.is_some_and(|process| process.quiet.tick()) {
                    world.notify(life, Event::Tick);
                }
                world.tick(life);
            });
        });
    }

    /// With `Nms`, syncs the log each N ms; otherwise the system writes it at some time.
    fn sync_now_and_then(&mut self, life: Life) {
        let pause = match self.durability {
            Durability::EveryMs(ms) => ms * MS,
            _ => self.between(500 * MS, 5000 * MS),
        };
        self.after(pause, move |world| {
            if world.sync(life) {
                world.sync_now_and_then(life);
            }
        });
    }

    /// Syncs the log; returns whether the process still runs.
    pub fn sync(&mut self, life: Life) -> bool {
        let synced = self.store(life).map(|store| store.sync());
        match synced {
            Some(Err(trouble)) => {
                self.trouble(life, trouble);
                false
            }
            synced => synced.is_some(),
        }
    }

    /// Ends the process (kill -9): what it wrote remains.
    pub fn end(&mut self, at: usize) {
        let host = &mut self.hosts[at];
        host.life += 1;
        host.process = None;
        host.is_paused = false;
        host.backlog.clear();
        if let Some(disk) = &mut host.disk {
            disk.store.end();
        }
        self.disconnect(at);
    }

    /// Cuts the machine's power: what it synced remains, and some of the rest.
    pub fn lose_power(&mut self, at: usize) {
        self.end(at);
        let draw = self.rng.next_u64();
        self.hosts[at].boot += 1;
        if let Some(disk) = &mut self.hosts[at].disk {
            disk.store.lose_power(draw);
        }
    }

    /// Stops the process cleanly, and restarts the machine.
    pub fn reboot_clean(&mut self, at: usize) {
        let disk = self.hosts[at].disk.as_mut();
        let is_clean = disk.is_none_or(|disk| disk.store.stop_clean());
        self.end(at);
        if !is_clean {
            return;
        }
        self.hosts[at].boot += 1;
        if let Some(disk) = &mut self.hosts[at].disk {
            disk.found.stopped_clean = true;
        }
    }

    pub fn set_full(&mut self, at: usize, is_full: bool) {
        self.hosts[at].is_full = is_full;
        if let Some(disk) = &mut self.hosts[at].disk {
            disk.store.set_full(is_full);
        }
    }

    pub fn pause(&mut self, at: usize) {
        let now = self.clock(at);
        let host = &mut self.hosts[at];
        if host.process.is_some() && !host.is_paused {
            (host.is_paused, host.stopped_at) = (true, Some(now));
        }
    }

    pub fn resume(&mut self, at: usize) {
        let has_old_clock = self.chance(500);
        let host = &mut self.hosts[at];
        host.is_paused = false;
        host.old_clock = host.stopped_at.take().filter(|_| has_old_clock);
        for job in std::mem::take(&mut host.backlog) {
            job(self);
        }
        self.hosts[at].old_clock = None;
    }

    /// Runs a job in a process, once it is not paused.
    pub fn on_host(&mut self, life: Life, job: impl FnOnce(&mut World) + 'static) {
        if self.process(life).is_none() {
            return;
        }
        match self.hosts[life.host].is_paused {
            true => self.hosts[life.host].backlog.push(Box::new(move |world| {
                world.on_host(life, job);
            })),
            false => job(self),
        }
    }

    pub fn notify(&mut self, life: Life, event: Event) {
        let old = self.hosts[life.host].old_clock;
        let old = old.filter(|_| matches!(event, Event::Read { .. }));
        let now = old.unwrap_or_else(|| self.clock(life.host));
        if let Event::Read { request } = event {
            self.asked_permit(life, request, now.monotonic);
        }
        let Some(process) = self.process(life) else {
            return;
        };
        process.replica.pass_ticks(process.quiet.take_passed());
        let actions = process.replica.handle(now, event);
        let quiet_ticks = process.replica.quiet_ticks();
        process.quiet.set_may_pass(quiet_ticks);
        let place = (process.replica.term(), process.applied.place.index);
        let bytes = [life.host as u64, actions.len() as u64, place.0, place.1];
        let bytes: Vec<u8> = bytes.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.mix(&bytes);
        self.check_leaders(life);
        self.carry_out(life, actions);
    }
}
