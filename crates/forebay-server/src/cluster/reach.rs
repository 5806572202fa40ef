//! Tracks which nodes this one reaches.
//!
//! While a command finds no leader, this node probes all others. If no majority answers, clients
//! are redirected to other nodes at once.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use forebay_cluster::HostPort;
use parking_lot::Mutex;

/// The time that nodes have to answer a probe.
const ANSWERS_WITHIN: Duration = Duration::from_secs(1);
const ASKS_EACH: Duration = Duration::from_millis(300);
/// How long a node counts as silent after it failed to answer a command, unless it gives a sign.
const SILENT_FOR: Duration = Duration::from_secs(5);
/// After this long without a lookup, the probes start from scratch.
const LOOKS_WITHIN: Duration = Duration::from_secs(2);

/// If a lack of a majority was found within this time, it is assumed again until some node answers.
const LACKED_FOR: Duration = Duration::from_secs(30);

/// Sends a probe to a node without waiting for the answer. Any answer is a sign of life; the
/// connection records it in [`Reach::of`].
pub trait ReachProbe: Debug + Send + Sync {
    fn ask(&self, peer: &HostPort);
}

/// The reachability of nodes. The default probes no node and never reports a lack of a majority.
#[derive(Debug, Default)]
pub struct Reach {
    requester: Option<Box<dyn ReachProbe>>,
    answered: Arc<AnswerTimes>,
    looks: Mutex<Option<ProbePeriod>>,
    /// When the lack of a majority was last found.
    lacked_at: Mutex<Option<Duration>>,
}

/// The answer times of nodes.
#[derive(Debug, Default)]
pub struct AnswerTimes(Mutex<BTreeMap<HostPort, Arc<AnswerTime>>>);

/// When a node last answered, and when it last failed to, on the monotonic clock; 0: never.
#[derive(Debug, Default)]
pub struct AnswerTime {
    answered_ms: AtomicU64,
    silent_ms: AtomicU64,
}

/// A period of repeated lookups.
#[derive(Debug)]
struct ProbePeriod {
    since: Duration,
    last: Duration,
    asked: Option<Duration>,
}

impl AnswerTime {
    pub fn note(&self, now: Duration) {
        put(&self.answered_ms, now);
    }

    pub fn note_silence(&self, now: Duration) {
        put(&self.silent_ms, now);
    }

    fn get(&self) -> Option<Duration> {
        time(&self.answered_ms)
    }

    /// Returns whether the node failed to answer a command a moment ago and has given no sign
    /// since.
    fn is_silent(&self, now: Duration) -> bool {
        let since = time(&self.silent_ms);
        since > self.get() && since.is_some_and(|at| now.saturating_sub(at) < SILENT_FOR)
    }
}

fn put(to: &AtomicU64, now: Duration) {
    let now_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
    to.fetch_max(now_ms, Ordering::Relaxed);
}

fn time(of: &AtomicU64) -> Option<Duration> {
    match of.load(Ordering::Relaxed) {
        0 => None,
        ms => Some(Duration::from_millis(ms)),
    }
}

impl AnswerTimes {
    pub fn of(&self, peer: &HostPort) -> Arc<AnswerTime> {
        let mut times = self.0.lock();
        if let Some(time) = times.get(peer) {
            return Arc::clone(time);
        }
        Arc::clone(times.entry(peer.clone()).or_default())
    }
}

impl Reach {
    pub fn new(requester: Box<dyn ReachProbe>, answered: Arc<AnswerTimes>) -> Self {
        Self {
            requester: Some(requester),
            answered,
            looks: Mutex::default(),
            lacked_at: Mutex::default(),
        }
    }

    pub fn answered(&self) -> &Arc<AnswerTimes> {
        &self.answered
    }

    /// Returns whether this node and the others that answer are no majority. The call probes the
    /// others: a result is possible one second after the first call.
    pub fn lacks_majority(&self, now: Duration, others: &[&HostPort]) -> bool {
        self.look(now, others, true)
    }

    /// Returns the result of [`Self::lacks_majority`] if lookups are in progress, else `false`.
    pub fn is_known_to_lack_majority(&self, now: Duration, others: &[&HostPort]) -> bool {
        self.look(now, others, false)
    }

    /// Returns whether a node has answered within the last second. All are probed while lookups are
    /// in progress.
    pub fn reaches(&self, now: Duration, peer: &HostPort) -> bool {
        self.answered.of(peer).get() >= Some(now.saturating_sub(ANSWERS_WITHIN))
    }

    /// Returns whether a node failed to answer a command recently and has given no sign since.
    pub fn is_silent(&self, now: Duration, peer: &HostPort) -> bool {
        self.answered.of(peer).is_silent(now)
    }

    fn look(&self, now: Duration, others: &[&HostPort], may_begin: bool) -> bool {
        let Some(requester) = &self.requester else {
            return false;
        };
        let mut looks = self.looks.lock();
        let is_over = |looks: &ProbePeriod| now.saturating_sub(looks.last) >= LOOKS_WITHIN;
        if looks.as_ref().is_none_or(is_over) {
            *looks = None;
            if !may_begin {
                return false;
            }
        }
        let looks = looks.get_or_insert(ProbePeriod {
            since: now,
            last: now,
            asked: None,
        });
        looks.last = now;
        if (looks.asked).is_none_or(|asked| now.saturating_sub(asked) >= ASKS_EACH) {
            looks.asked = Some(now);
            others.iter().for_each(|peer| requester.ask(peer));
        }
        let reached = 1 + others.iter().filter(|peer| self.reaches(now, peer)).count();
        let lacks = 2 * reached <= others.len() + 1;
        let mut lacked_at = self.lacked_at.lock();
        if now.saturating_sub(looks.since) < ANSWERS_WITHIN {
            // An earlier finding is assumed again, unless some node answers.
            let lacked = lacked_at.is_some_and(|at| now.saturating_sub(at) < LACKED_FOR);
            return lacks && lacked;
        }
        *lacked_at = lacks.then_some(now);
        lacks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default, Clone)]
    struct Probe(Arc<Mutex<Vec<HostPort>>>);

    impl ReachProbe for Probe {
        fn ask(&self, peer: &HostPort) {
            self.0.lock().push(peer.clone());
        }
    }

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn others(count: u16) -> Vec<HostPort> {
        (1..=count).map(|port| HostPort::new("n", port)).collect()
    }

    fn reach() -> (Reach, Probe) {
        let asked = Probe::default();
        (Reach::new(Box::new(asked.clone()), Arc::default()), asked)
    }

    /// Returns whether a majority is lacking one second after the first lookup, with this many of
    /// the others answering.
    fn lacks(answering: usize, of: u16) -> bool {
        let (reach, _) = reach();
        let all = others(of);
        let all: Vec<&HostPort> = all.iter().collect();
        let looks = (5000..=6000).step_by(20);
        let seen: Vec<bool> = looks
            .map(|at| {
                for peer in &all[..answering] {
                    reach.answered().of(peer).note(ms(at));
                }
                reach.lacks_majority(ms(at), &all)
            })
            .collect();
        assert!(!seen[..seen.len() - 1].contains(&true), "too early");
        seen[seen.len() - 1]
    }

    #[test]
    fn half_of_the_nodes_or_fewer_are_no_majority() {
        assert!(lacks(0, 4) && lacks(1, 4) && !lacks(2, 4));
        assert!(lacks(0, 2) && !lacks(1, 2));
        assert!(lacks(0, 1) && !lacks(1, 1), "one of two is half");
        assert!(lacks(1, 3) && !lacks(2, 3));
        assert!(!lacks(0, 0), "alone");
    }

    #[test]
    fn a_node_that_did_not_answer_counts_as_unreachable_until_it_responds() {
        let (reach, _) = reach();
        let all = others(2);
        let all: Vec<&HostPort> = all.iter().collect();
        let silent = |at| reach.is_silent(ms(at), all[0]);
        reach.answered().of(all[0]).note(ms(1000));
        assert!(!silent(2000));
        reach.answered().of(all[0]).note_silence(ms(6000));
        assert!(silent(6001) && silent(10_999));
        assert!(!silent(11_000), "the node is tried again");
        reach.answered().of(all[0]).note_silence(ms(16_000));
        reach.answered().of(all[0]).note(ms(16_100));
        assert!(!silent(16_100));
    }

    #[test]
    fn nodes_are_asked_during_lookups_until_they_answer() {
        let (reach, asked) = reach();
        let all = others(2);
        let all: Vec<&HostPort> = all.iter().collect();
        assert!(!reach.is_known_to_lack_majority(ms(5000), &all));
        assert!(asked.0.lock().is_empty(), "no lookup has happened");
        for at in (5000..=6000).step_by(100) {
            reach.lacks_majority(ms(at), &all);
        }
        assert_eq!(asked.0.lock().len(), 8, "at 0, 300, 600 and 900 ms");
        assert!(reach.is_known_to_lack_majority(ms(6000), &all));
        reach.answered().of(all[1]).note(ms(6100));
        assert!(!reach.is_known_to_lack_majority(ms(6100), &all));
        assert!(reach.is_known_to_lack_majority(ms(7200), &all));
        // No lookup for a while: it starts from scratch, with the earlier finding.
        assert!(!reach.is_known_to_lack_majority(ms(9200), &all));
        assert!(reach.lacks_majority(ms(9300), &all));
        reach.answered().of(all[1]).note(ms(9310));
        assert!(!reach.lacks_majority(ms(9320), &all), "the node answers");
        assert!(
            !reach.lacks_majority(ms(50_000), &all),
            "the finding is old"
        );
        assert!(!Reach::default().lacks_majority(ms(9300), &all));
    }
}
