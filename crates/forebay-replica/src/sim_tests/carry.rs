//! Carries out what replicas want: writes, sends, applies, reads, brings copies.

use std::collections::BTreeMap;

use super::disk::Written;
use super::world::{Life, MS, SECOND, World};
use crate::entry::Content;
use crate::events::{Action, Committed, Event, Permit};
use crate::frame::{PeerMessage, decode, encode};
use crate::ids::{PeerId, Place};
use crate::memory::Durability;

impl World {
    pub fn carry_out(&mut self, life: Life, actions: Vec<Action>) {
        let mut messages: BTreeMap<usize, Vec<PeerMessage>> = BTreeMap::new();
        for action in actions {
            let Some(process) = self.process(life) else {
                return;
            };
            match action {
                Action::Persist(persist) => {
                    process.writes.push_back(persist);
                    self.write(life);
                }
                Action::Send(message) => {
                    if let Some(to) = self.peers.get(&message.to()) {
                        messages.entry(*to).or_default().push(message);
                    }
                }
                Action::Apply(entries) => {
                    process.applying.push_back(entries);
                    self.apply(life);
                }
                Action::Read(permit) => {
                    process.reading.push(permit);
                    self.read_all(life);
                }
                Action::Refuse { request, why } => self.refused(life, request, why),
                Action::FetchSnapshot { from, at_least } => self.fetch(life, from, at_least),
                Action::DropSnapshot => process.staged = None,
            }
        }
        for (to, messages) in messages {
            self.send(life.host, to, &messages);
        }
    }

    /// One frame for all messages to a host.
    fn send(&mut self, from: usize, to: usize, messages: &[PeerMessage]) {
        let frame = encode(messages);
        self.mix(&frame);
        let doubles = self.net.doubles;
        for _ in 0..1 + u64::from(self.chance(doubles)) {
            let frame = frame.clone();
            let Some(delay) = self.transit(from, to) else {
                continue;
            };
            self.after(delay, move |world| {
                let life = world.life(to);
                world.on_host(life, move |world| {
                    for message in decode(frame).expect("a frame is read as it was written") {
                        world.tell(life, Event::Message(message));
                    }
                });
            });
        }
    }

    /// Writes what is to be written next.
    fn write(&mut self, life: Life) {
        let delay = self.between(20, 300);
        let is_full = self.hosts[life.host].is_full;
        let Some(process) = self.process(life) else {
            return;
        };
        if process.is_writing || process.writes.is_empty() {
            return;
        }
        process.is_writing = true;
        let delay = if is_full { 50 * MS } else { delay };
        self.after(delay, move |world| {
            world.on_host(life, move |world| world.written(life))
        });
    }

    fn written(&mut self, life: Life) {
        let is_full = self.hosts[life.host].is_full;
        let Some(process) = self.process(life) else {
            return;
        };
        process.is_writing = false;
        if is_full {
            return self.write(life);
        }
        let Some(persist) = process.writes.pop_front() else {
            return;
        };
        let mut state = None;
        if let Some(facts) = &persist.snapshot {
            state = process.staged.take();
            process.state = state.clone().expect("a copy is put in place that came");
            (process.applied, process.flushed) = (facts.clone(), facts.place.index);
        }
        let (number, is_awaited) = (persist.number, persist.is_awaited);
        let installs = state.is_some();
        let disk = self.hosts[life.host]
            .disk
            .as_mut()
            .expect("it runs from there");
        disk.write(Written::Log(persist, state));
        if installs {
            self.count("copies");
            self.check_state(life);
        }
        if is_awaited {
            self.acknowledge(life, number);
        }
        self.write(life);
        self.read_all(life);
    }

    fn acknowledge(&mut self, life: Life, number: u64) {
        if self.durability != Durability::Sync {
            return self.tell(life, Event::Persisted { number });
        }
        let is_slow = self.hosts[life.host].is_slow;
        let most = if is_slow { 1500 * MS } else { 4 * MS };
        let delay = self.between(200, most);
        self.after(delay, move |world| {
            world.on_host(life, move |world| {
                if let Some(disk) = &mut world.hosts[life.host].disk {
                    disk.sync();
                }
                world.tell(life, Event::Persisted { number });
            });
        });
    }

    fn apply(&mut self, life: Life) {
        let delay = self.between(10, 500);
        let Some(process) = self.process(life) else {
            return;
        };
        if !process.is_applying && !process.applying.is_empty() {
            process.is_applying = true;
            self.after(delay, move |world| {
                world.on_host(life, move |world| world.applied(life))
            });
        }
    }

    fn applied(&mut self, life: Life) {
        let Some(process) = self.process(life) else {
            return;
        };
        process.is_applying = false;
        let Some(entries) = process.applying.pop_front() else {
            return;
        };
        let index = entries.last().map_or(0, |entry| entry.entry.place.index);
        for committed in &entries {
            self.apply_one(life, committed);
        }
        self.tell(life, Event::Applied { index });
        self.flush(life);
        self.apply(life);
        self.read_all(life);
    }

    fn apply_one(&mut self, life: Life, committed: &Committed) {
        let Some(process) = self.process(life) else {
            return;
        };
        // A copy may have been put in place meanwhile.
        if committed.entry.place.index <= process.applied.place.index {
            return;
        }
        let mut answers = Vec::new();
        if let Content::Batch {
            stamp_ms,
            proposals,
        } = &committed.entry.content
        {
            for proposal in proposals {
                let answer = process.state.apply(&proposal.operations, *stamp_ms);
                answers.push((proposal.request, answer));
            }
        }
        let before = std::mem::replace(&mut process.applied, committed.facts.clone());
        self.check_applied(life, &before, committed);
        for (request, answer) in answers {
            if committed.is_awaited {
                self.answered(life, request, answer);
            }
        }
    }

    /// Runs are written now and then; the log before them may go, but for a part for peers.
    fn flush(&mut self, life: Life) {
        let (every, kept) = (self.between(20, 80), self.between(0, 40));
        let is_full = self.hosts[life.host].is_full;
        let Some(process) = self.process(life) else {
            return;
        };
        let index = process.applied.place.index;
        if is_full || index < process.flushed + every {
            return;
        }
        process.flushed = index;
        let through = index.saturating_sub(kept);
        let written = Written::Runs(process.applied.clone(), process.state.clone(), through);
        if let Some(disk) = &mut self.hosts[life.host].disk {
            disk.write(written);
        }
        self.tell(life, Event::Trim { through });
    }

    /// Reads what may be read already. The answer is given a while later, if it still may.
    fn read_all(&mut self, life: Life) {
        let Some(process) = self.process(life) else {
            return;
        };
        let applied = process.applied.place.index;
        let all = std::mem::take(&mut process.reading);
        let (ready, early) = all.into_iter().partition(|permit| permit.index <= applied);
        process.reading = early;
        let ready: Vec<Permit> = ready;
        for permit in ready {
            let Some(key) = self.clients.key_of(permit.request) else {
                continue;
            };
            let value = self
                .process(life)
                .and_then(|process| process.state.get(key));
            let is_slow = self.chance(20);
            let delay = if is_slow {
                self.between(0, 1500 * MS)
            } else {
                self.between(5, 500)
            };
            self.after(delay, move |world| {
                world.on_host(life, move |world| world.give_read(life, &permit, value));
            });
        }
    }

    fn give_read(&mut self, life: Life, permit: &Permit, value: Option<i64>) {
        let now = self.clock(life.host);
        let Some(process) = self.process(life) else {
            return;
        };
        let request = permit.request;
        match process.replica.permits(now, permit) {
            true => self.answered(life, request, super::model::Answer::Value(value)),
            false => {
                self.count("reads again");
                self.tell(life, Event::Read { request });
            }
        }
    }

    /// A copy of the peer's state, after a while.
    fn fetch(&mut self, life: Life, from: PeerId, at_least: Place) {
        self.count("fetches");
        let delay = self.between(10 * MS, 400 * MS);
        self.after(delay, move |world| world.fetched(life, from, at_least));
    }

    fn fetched(&mut self, life: Life, from: PeerId, at_least: Place) {
        let source = world_peer(self, from).filter(|at| {
            let lost = self.net.cuts.contains(&(*at, life.host));
            !lost && !self.hosts[*at].is_paused
        });
        let process = source.and_then(|at| self.hosts[at].process.as_ref());
        let copy = process.map(|process| (process.applied.clone(), process.state.clone()));
        let copy = copy.filter(|(facts, _)| facts.place.index >= at_least.index);
        let delay = self.between(MS, SECOND / 10);
        self.after(delay, move |world| {
            world.on_host(life, move |world| {
                let event = match copy {
                    Some((facts, state)) => {
                        if let Some(process) = world.process(life) {
                            process.staged = Some(state);
                        }
                        Event::SnapshotCame(facts)
                    }
                    None => Event::SnapshotFailed,
                };
                world.tell(life, event);
            });
        });
    }
}

/// Where a peer lies, if it still does.
fn world_peer(world: &World, peer: PeerId) -> Option<usize> {
    let at = *world.peers.get(&peer)?;
    let is_there = world.peer_of(at) == Some(peer);
    Some(at).filter(|_| is_there)
}
