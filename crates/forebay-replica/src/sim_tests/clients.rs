//! Clients that write and read, with the answers that they received.

use std::collections::BTreeMap;

use super::linear::Call;
use super::model::{Answer, EXPIRING, Op};
use super::world::{Life, MS, SECOND, World};
use crate::events::{Event, Refusal};
use crate::ids::RequestId;

#[derive(Debug, Clone)]
struct ClientCall {
    key: u8,
    op: Op,
    begin: u64,
    end: Option<(u64, Answer)>,
    /// Whether the outcome is known: the call was answered, or it did not happen.
    is_over: bool,
    did_not_happen: bool,
    /// The process that it was sent to last.
    at: Option<Life>,
    tries: u64,
}

/// The number of clients, and their requests.
#[derive(Debug, Clone, Copy)]
pub struct Habits {
    pub clients: u64,
    pub keys: u64,
    /// The longest pause between an answer and the next call.
    pub most_pause: u64,
    /// How long a client waits for its answer.
    pub patience: u64,
    /// How many of a thousand reads and writes go to the presumed leader. The others go to any
    /// host, so that a stale leader is asked, too.
    pub reads_to_leader: u64,
    pub writes_to_leader: u64,
    /// Whether they only set and get.
    pub are_plain: bool,
    /// Whether some additions do not ask for the sum.
    pub add_blindly: bool,
}

impl Default for Habits {
    fn default() -> Self {
        Self {
            clients: 4,
            keys: 6,
            most_pause: 300 * MS,
            patience: 4 * SECOND,
            reads_to_leader: 400,
            writes_to_leader: 850,
            are_plain: false,
            add_blindly: false,
        }
    }
}

#[derive(Debug, Default)]
pub struct Clients {
    pub habits: Habits,
    asked: BTreeMap<RequestId, ClientCall>,
    next: i64,
    /// The host that answered last, as far as clients know.
    pub leader: usize,
}

impl Clients {
    pub fn key_of(&self, request: RequestId) -> Option<u8> {
        self.asked.get(&request).map(|asked| asked.key)
    }

    pub fn histories(&self) -> BTreeMap<u8, Vec<Call>> {
        let mut histories: BTreeMap<u8, Vec<Call>> = BTreeMap::new();
        for asked in self.asked.values() {
            let reads_nothing = asked.op == Op::Get && asked.end.is_none();
            if asked.key < EXPIRING && !asked.did_not_happen && !reads_nothing {
                let ClientCall { op, begin, end, .. } = *asked;
                let history = histories.entry(asked.key).or_default();
                history.push(Call { op, begin, end });
            }
        }
        histories
    }
}

impl World {
    pub fn start_clients(&mut self, seconds: u64) {
        let end = self.now + seconds * SECOND;
        for _ in 0..self.clients.habits.clients {
            self.next_call(end);
        }
    }

    fn next_call(&mut self, end: u64) {
        let pause = self.between(MS, self.clients.habits.most_pause);
        self.after(pause, move |world| {
            if world.now < end {
                let (key, op) = world.draw_call();
                let request = world.ask(key, op);
                world.wait_for(request, end);
            }
        });
    }

    /// Waits for an answer: the same client asks again when it has one, or has waited too long.
    fn wait_for(&mut self, request: RequestId, end: u64) {
        self.after(20 * MS, move |world| {
            let (is_over, begin) = {
                let asked = &world.clients.asked[&request];
                (asked.is_over, asked.begin)
            };
            if is_over {
                world.next_call(end);
            } else if world.now > begin + world.clients.habits.patience {
                let hosts = world.hosts.len() as u64;
                world.clients.leader = world.rng.below(hosts) as usize;
                world.next_call(end);
            } else {
                world.wait_for(request, end);
            }
        });
    }

    fn draw_call(&mut self) -> (u8, Op) {
        self.clients.next += 1;
        let value = self.clients.next;
        let habits = self.clients.habits;
        let key = self.rng.below(habits.keys) as u8;
        if habits.are_plain {
            let op = if self.chance(500) {
                Op::Get
            } else {
                Op::Set(value)
            };
            return (key, op);
        }
        if self.chance(150) {
            let op = match self.chance(500) {
                true => Op::SetFor(value, self.between(50, 2000)),
                false => Op::SetIfAbsent(value),
            };
            return (EXPIRING + key % 2, op);
        }
        let op = match self.rng.below(20) {
            0..7 => Op::Get,
            7..10 => Op::Set(value),
            10 => Op::Delete,
            11..16 if habits.add_blindly && self.chance(600) => Op::Increase(1000),
            11..16 => Op::Add(1000),
            16..18 => Op::SetIfAbsent(value),
            _ => {
                let life = self.life(self.clients.leader);
                let seen = self.store(life).map(|store| store.get(key));
                let seen = seen.and_then(Result::ok).flatten();
                Op::CompareAndSet(seen.unwrap_or(0), value)
            }
        };
        (key, op)
    }

    pub fn ask(&mut self, key: u8, op: Op) -> RequestId {
        let request = RequestId(self.clients.asked.len() as u64 + 1);
        let asked = ClientCall {
            key,
            op,
            begin: self.now,
            end: None,
            is_over: false,
            did_not_happen: false,
            at: None,
            tries: 0,
        };
        self.clients.asked.insert(request, asked);
        self.count("calls");
        self.try_call(request);
        request
    }

    fn try_call(&mut self, request: RequestId) {
        let (others, leader) = (self.hosts.len() as u64, self.clients.leader);
        let is_read = self
            .clients
            .asked
            .get(&request)
            .is_some_and(|it| it.op == Op::Get);
        let habits = self.clients.habits;
        let knows = match is_read {
            true => habits.reads_to_leader,
            false => habits.writes_to_leader,
        };
        let at = match self.chance(knows) {
            true => leader,
            false => self.rng.below(others) as usize,
        };
        let life = self.life(at);
        let Some(asked) = self.clients.asked.get_mut(&request) else {
            return;
        };
        asked.tries += 1;
        asked.at = Some(life);
        if self.hosts[at].process.is_none() {
            return self.not_happened(request, None);
        }
        let (key, op) = (asked.key, asked.op);
        let delay = self.between(50, 500);
        self.after(delay, move |world| {
            world.on_host(life, move |world| match op {
                Op::Get => world.notify(life, Event::Read { request }),
                _ => world.propose(life, request, (key, op)),
            });
        });
    }

    /// Handles a refusal: nothing was logged. The client tries another host, or gives up.
    fn not_happened(&mut self, request: RequestId, leader: Option<usize>) {
        let hosts = self.hosts.len() as u64;
        self.clients.leader = leader.unwrap_or(self.rng.below(hosts) as usize);
        let (now, patience) = (self.now, self.clients.habits.patience);
        let Some(asked) = self.clients.asked.get_mut(&request) else {
            return;
        };
        if asked.tries > 20 || now > asked.begin + patience {
            (asked.is_over, asked.did_not_happen) = (true, true);
            return self.count("refused");
        }
        asked.at = None;
        let pause = self.between(10 * MS, 200 * MS);
        self.after(pause, move |world| world.try_call(request));
    }

    /// Returns the call of an answer, unless it is from a process that was not asked last, or after
    /// the end.
    fn received(&mut self, life: Life, request: RequestId) -> Option<&mut ClientCall> {
        let asked = self.clients.asked.get_mut(&request)?;
        let is_awaited = !asked.is_over && asked.at == Some(life);
        Some(asked).filter(|_| is_awaited)
    }

    pub fn answered(&mut self, life: Life, request: RequestId, answer: Answer) {
        let now = self.now;
        let Some(asked) = self.received(life, request) else {
            return;
        };
        (asked.end, asked.is_over) = (Some((now, answer)), true);
        let is_write = asked.op != Op::Get;
        self.clients.leader = if is_write {
            life.host
        } else {
            self.clients.leader
        };
        self.count(if is_write { "writes" } else { "reads" });
    }

    pub fn refused(&mut self, life: Life, request: RequestId, why: Refusal) {
        let Some(asked) = self.received(life, request) else {
            return;
        };
        match why {
            // A read changes nothing: ask again.
            Refusal::Uncertain if asked.op != Op::Get => {
                asked.is_over = true;
                self.count("uncertain");
            }
            Refusal::Uncertain | Refusal::NoReplicas | Refusal::Outdated => {
                self.not_happened(request, None)
            }
            Refusal::NotLeader(leader) => {
                let leader = leader.and_then(|peer| self.peers.get(&peer).copied());
                self.not_happened(request, leader);
            }
        }
    }

    /// Ends the calls to a process that ends: they may have happened.
    pub fn disconnect(&mut self, at: usize) {
        let mut reads = Vec::new();
        for (request, asked) in &mut self.clients.asked {
            let was_there = asked.at.is_some_and(|life| life.host == at);
            if was_there && !asked.is_over {
                match asked.op {
                    Op::Get => reads.push(*request),
                    _ => asked.is_over = true,
                }
            }
        }
        for request in reads {
            self.not_happened(request, None);
        }
    }

    pub fn is_answered(&self, request: RequestId) -> bool {
        self.clients
            .asked
            .get(&request)
            .is_some_and(|asked| asked.end.is_some())
    }

    /// Reads all keys once all faults are over. A client that has given up asks again: it may only
    /// have asked hosts without a replica.
    pub fn read_at_the_end(&mut self) {
        for key in 0..self.clients.habits.keys {
            let end = self.now + 8 * SECOND;
            loop {
                let request = self.ask(key as u8, Op::Get);
                let left = end.saturating_sub(self.now);
                self.run_until(left, |world| world.is_over(request));
                if self.is_answered(request) {
                    break;
                }
                if self.now >= end || self.violation.is_some() {
                    let asked = self.clients.asked.get(&request);
                    let (asked, unsettled) = (format!("{asked:?}"), self.unsettled());
                    self.fail(format!(
                        "key {key} is not read without faults: {asked}, {unsettled:?}"
                    ));
                    break;
                }
            }
        }
    }

    fn is_over(&self, request: RequestId) -> bool {
        let asked = self.clients.asked.get(&request);
        asked.is_none_or(|asked| asked.is_over)
    }
}
