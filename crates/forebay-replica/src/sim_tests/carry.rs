//! Carries out the actions of replicas: writes, sends, applies, reads, and fetches copies.

use std::collections::BTreeMap;

use super::store::{StateCopy, Trouble, WriteProgress};
use super::world::{Life, MS, SECOND, World};
use crate::entry::Content;
use crate::events::{Action, Committed, Event, Permit, Persist};
use crate::frame::{PeerMessage, decode, encode};
use crate::ids::{PeerId, Place};
use crate::memory::Durability;
use crate::tail::SnapshotFacts;

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
                Action::FetchEntries {
                    from,
                    to,
                    most_bytes,
                } => self.fetch_entries(life, (from, to), most_bytes),
                Action::FetchSnapshot { from, at_least } => self.fetch(life, from, at_least),
                Action::Leave => {
                    let at = life.host;
                    self.fail(format!("host {at} lacks entries that it acknowledged"));
                }
                Action::DropSnapshot => {
                    if let Some(store) = self.store(life) {
                        store.drop_copy();
                    }
                }
            }
        }
        for (to, messages) in messages {
            self.send(life.host, to, &messages);
        }
    }

    /// Sends one frame for all messages to a host.
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
                        world.notify(life, Event::Message(message));
                    }
                });
            });
        }
    }

    /// Makes the next write.
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
        let Some(process) = self.process(life) else {
            return;
        };
        process.is_writing = false;
        let Some(persist) = process.writes.pop_front() else {
            return;
        };
        let written = self.store(life).map(|store| store.write(&persist));
        let installs = match written {
            Some(Ok(WriteProgress::All { installs })) => installs,
            Some(Ok(WriteProgress::CopyOnly)) => {
                self.installed(life, &persist);
                return self.write_again(life, persist);
            }
            Some(Err(Trouble::NoRoom)) => {
                if let Some(process) = self.process(life) {
                    process.writes.push_front(persist);
                }
                return self.write(life);
            }
            Some(Err(trouble)) => return self.trouble(life, trouble),
            None => return,
        };
        if installs {
            self.installed(life, &persist);
        }
        if persist.is_awaited {
            self.acknowledge(life, persist.number);
        }
        self.write(life);
        self.read_all(life);
    }

    /// Handles an installed copy.
    fn installed(&mut self, life: Life, persist: &Persist) {
        if let (Some(process), Some(facts)) = (self.process(life), &persist.snapshot) {
            (process.applied, process.flushed) = (facts.clone(), facts.place.index);
        }
        self.count("copies");
        self.check_state(life);
    }

    /// Makes the rest of a write, after a while in which the process may end.
    fn write_again(&mut self, life: Life, persist: Persist) {
        let delay = self.between(0, 200 * MS);
        if let Some(process) = self.process(life) {
            process.writes.push_front(persist);
            process.is_writing = true;
            self.after(delay, move |world| {
                world.on_host(life, move |world| world.written(life));
            });
        }
        self.read_all(life);
    }

    fn acknowledge(&mut self, life: Life, number: u64) {
        if self.durability != Durability::Sync {
            return self.notify(life, Event::Persisted { number });
        }
        let is_slow = self.hosts[life.host].is_slow;
        let most = if is_slow { 1500 * MS } else { 4 * MS };
        let delay = self.between(200, most);
        self.after(delay, move |world| {
            world.on_host(life, move |world| {
                if world.sync(life) {
                    world.notify(life, Event::Persisted { number });
                }
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
        self.notify(life, Event::Applied { index });
        self.flush(life);
        self.apply(life);
        self.read_all(life);
    }

    fn apply_one(&mut self, life: Life, committed: &Committed) {
        let Some(process) = self.process(life) else {
            return;
        };
        // A copy may have been installed meanwhile.
        if committed.entry.place.index <= process.applied.place.index {
            return;
        }
        let applied = self.store(life).map(|store| store.apply(committed));
        let answers = match applied {
            Some(Ok(answers)) => answers,
            Some(Err(trouble)) => return self.trouble(life, trouble),
            None => return,
        };
        let Some(process) = self.process(life) else {
            return;
        };
        let before = std::mem::replace(&mut process.applied, committed.facts.clone());
        self.check_applied(life, &before, committed);
        let Content::Batch { proposals, .. } = &committed.entry.content else {
            return;
        };
        if committed.is_awaited && !proposals.is_empty() {
            self.acknowledged(committed.entry.place.index);
        }
        for (proposal, answer) in proposals.iter().rev().zip(answers.into_iter().rev()).rev() {
            if committed.is_awaited {
                let answer = self.answer_of(life, proposal.request, answer);
                self.answered(life, proposal.request, answer);
            }
        }
    }

    /// Reads entries from the log's files, after a while in which they may disappear. Sometimes
    /// they cannot be read.
    fn fetch_entries(&mut self, life: Life, range: (u64, u64), most_bytes: u64) {
        let is_slow = self.chance(100);
        let most = if is_slow { 2 * SECOND } else { 2 * MS };
        let (delay, fails) = (self.between(50, most), self.chance(20));
        self.after(delay, move |world| {
            world.on_host(life, move |world| {
                world.entries_fetched(life, range, most_bytes, fails);
            });
        });
    }

    fn entries_fetched(&mut self, life: Life, range: (u64, u64), most_bytes: u64, fails: bool) {
        let found = match self
            .store(life)
            .map(|store| store.entries(range, most_bytes))
        {
            Some(Ok(found)) => found.filter(|_| !fails),
            Some(Err(trouble)) => return self.trouble(life, trouble),
            None => return,
        };
        let event = match found {
            Some(entries) => {
                self.count("parts of the tail");
                Event::EntriesCame(entries)
            }
            None => {
                self.count("parts that are gone");
                Event::EntriesGone { through: range.0 }
            }
        };
        self.notify(life, event);
    }

    /// Writes runs now and then. The log before them may be removed, except for a part for peers,
    /// less of which is in memory.
    fn flush(&mut self, life: Life) {
        let (every, kept) = (self.between(20, 80), self.between(0, 40));
        let in_files = self.between(0, 200);
        let Some(process) = self.process(life) else {
            return;
        };
        let (applied, flushed) = (process.applied.clone(), process.flushed);
        let Some(store) = self.store(life) else {
            return;
        };
        let index = applied.place.index;
        let through = index.saturating_sub(kept);
        let is_due = index >= flushed + every;
        let done = match is_due {
            true => store.flush(&applied, through.saturating_sub(in_files)),
            false => store.work(),
        };
        match done {
            Ok(()) if is_due => {
                if let Some(process) = self.process(life) {
                    process.flushed = index;
                }
                self.notify(life, Event::Trim { through });
            }
            Ok(()) | Err(Trouble::NoRoom) => {}
            Err(trouble) => self.trouble(life, trouble),
        }
    }

    /// Makes the reads that are permitted already. The answer is given a while later, if it still
    /// may.
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
            self.given_permit(life, &permit);
            let Some(key) = self.clients.key_of(permit.request) else {
                continue;
            };
            let value = match self.store(life).map(|store| store.get(key)) {
                Some(Ok(value)) => value,
                Some(Err(trouble)) => return self.trouble(life, trouble),
                None => return,
            };
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
                self.notify(life, Event::Read { request });
            }
        }
    }

    /// Fetches a copy of the peer's state, after a while.
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
        let copy = source.and_then(|at| self.copy_at(at));
        let copy = copy.filter(|(facts, _)| facts.place.index >= at_least.index);
        let delay = self.between(MS, SECOND / 10);
        self.after(delay, move |world| {
            world.on_host(life, move |world| world.copy_arrived(life, copy));
        });
    }

    fn copy_at(&mut self, at: usize) -> Option<(SnapshotFacts, StateCopy)> {
        let applied = self.hosts[at].process.as_ref()?.applied.clone();
        let life = self.life(at);
        match self.store(life)?.copy(&applied) {
            Ok(copy) => Some(copy),
            Err(Trouble::NoRoom) => None,
            Err(trouble) => {
                self.trouble(life, trouble);
                None
            }
        }
    }

    fn copy_arrived(&mut self, life: Life, copy: Option<(SnapshotFacts, StateCopy)>) {
        let copied = match (copy, self.store(life)) {
            (Some((facts, copy)), Some(store)) => store.fetch_copy(copy).map(|()| facts),
            _ => Err(Trouble::NoRoom),
        };
        match copied {
            Ok(facts) => self.notify(life, Event::SnapshotCame(facts)),
            Err(Trouble::NoRoom) => self.notify(life, Event::SnapshotFailed),
            Err(trouble) => self.trouble(life, trouble),
        }
    }
}

/// Returns the host of a peer, if it still exists.
fn world_peer(world: &World, peer: PeerId) -> Option<usize> {
    let at = *world.peers.get(&peer)?;
    let is_there = world.peer_of(at) == Some(peer);
    Some(at).filter(|_| is_there)
}
