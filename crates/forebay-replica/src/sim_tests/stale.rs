//! Stale reads at any host, and a check of their age.

use std::time::Duration;

use super::world::{Life, MS, SECOND, World};
use crate::events::{Event, Permit};
use crate::ids::RequestId;

/// The bound: data is older by less than this.
pub const BOUND: Duration = Duration::from_secs(2);
/// The first request number for read permits; those of clients stay below.
const FIRST_REQUEST: u64 = 1 << 40;

/// A defect in how the bound is enforced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StaleBug {
    /// The bound counts from the arrival of the answer.
    CountsFromAnswer,
    /// The bound is checked before the read, and not after it.
    LooksOnce,
}

/// The greatest acknowledged entry at each time.
#[derive(Debug, Default)]
struct AcknowledgedEntries(Vec<(u64, u64)>);

impl AcknowledgedEntries {
    fn push(&mut self, now: u64, index: u64) {
        let before = self.0.last().map_or(0, |(_, index)| *index);
        self.0.push((now, index.max(before)));
    }

    /// Returns the greatest entry acknowledged by then.
    fn at(&self, then: u64) -> u64 {
        let count = self.0.partition_point(|(at, _)| *at <= then);
        count.checked_sub(1).map_or(0, |last| self.0[last].1)
    }
}

#[derive(Debug, Default)]
pub struct StaleReads {
    pub bug: Option<StaleBug>,
    acknowledged: AcknowledgedEntries,
    requests: u64,
}

impl World {
    /// Reads now and then, until that time.
    pub fn read_stale(&mut self, end: u64) {
        let pause = self.between(MS, 100 * MS);
        self.after(pause, move |world| {
            if world.now >= end {
                return;
            }
            let hosts = world.hosts.len() as u64;
            let at = world.rng.below(hosts) as usize;
            let life = world.life(at);
            let delay = world.between(50, 500);
            world.after(delay, move |world| {
                world.on_host(life, move |world| world.begin_stale(life));
            });
            world.read_stale(end);
        });
    }

    /// Reads without a request if the data is within the bound. Makes a request if it is not, or
    /// soon will not be.
    fn begin_stale(&mut self, life: Life) {
        let old = self.hosts[life.host].old_clock;
        let now = old.unwrap_or_else(|| self.clock(life.host)).monotonic;
        let Some(process) = self.process(life) else {
            return;
        };
        let (fresh, index) = (process.fresh, process.applied.place.index);
        if let Some(until) = fresh.until(BOUND).filter(|until| now < *until) {
            let is_slow = self.chance(50);
            let most = if is_slow { 1500 * MS } else { 500 };
            let delay = self.between(5, most);
            self.after(delay, move |world| {
                world.on_host(life, move |world| world.end_stale(life, index, until));
            });
        }
        if fresh.ages(now, BOUND) {
            self.stale.requests += 1;
            let request = RequestId(FIRST_REQUEST + self.stale.requests);
            self.notify(life, Event::Read { request });
        }
    }

    fn end_stale(&mut self, life: Life, index: u64, until: Duration) {
        let looks_once = self.stale.bug == Some(StaleBug::LooksOnce);
        if self.clock(life.host).monotonic >= until && !looks_once {
            return self.count("stale reads again");
        }
        self.count("stale reads");
        let before = self.now.saturating_sub(BOUND.as_micros() as u64);
        let least = self.stale.acknowledged.at(before);
        if index < least {
            let host = life.host;
            self.fail(format!(
                "host {host} answered as of entry {index}; {least} was acknowledged {BOUND:?} before"
            ));
        }
    }

    pub fn acknowledged(&mut self, index: u64) {
        self.stale.acknowledged.push(self.now, index);
    }

    /// Records a process's request for a read permit.
    pub fn asked_permit(&mut self, life: Life, request: RequestId, now: Duration) {
        if let Some(process) = self.process(life) {
            process.asked.insert(request, now);
        }
    }

    /// Records that everything the permit covers is applied.
    pub fn given_permit(&mut self, life: Life, permit: &Permit) {
        let now = self.clock(life.host).monotonic;
        let from_answer = self.stale.bug == Some(StaleBug::CountsFromAnswer);
        let Some(process) = self.process(life) else {
            return;
        };
        let asked = process.asked.remove(&permit.request);
        if let Some(asked) = asked.filter(|_| permit.is_confirmed()) {
            process.fresh.confirm(if from_answer { now } else { asked });
        }
    }

    pub fn read_stale_for(&mut self, seconds: u64) {
        let end = self.now + seconds * SECOND;
        self.read_stale(end);
    }
}
