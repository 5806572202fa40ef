//! The time that machines are given, and the times that the protocols wait.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A moment: by the clock that never goes back, and by the one that people read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    pub monotonic: Duration,
    pub unix_ms: u64,
}

/// How long the protocols of a cluster wait. Operators choose the node timeout; every other time is
/// a fixed ratio of it, so that the times always fit together.
///
/// The catalog holds it, and nodes use what the head that they know says. For a moment after a
/// change two nodes may use different values. That is safe: a node that acts too early loses the
/// conditional write that follows, or only asks once more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Timing {
    node_timeout_ms: u64,
}

/// Why a node timeout is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a node timeout is between {} ms and {} min", Timing::SHORTEST.as_millis(), Timing::LONGEST.as_secs() / 60)]
pub struct TimingError;

impl Timing {
    /// See [`Self::heartbeat`].
    const LONGEST_POLLED_MS: u64 = 20_000;
    pub const SHORTEST: Duration = Duration::from_millis(200);
    pub const LONGEST: Duration = Duration::from_secs(600);

    pub fn new(node_timeout: Duration) -> Result<Self, TimingError> {
        match (Self::SHORTEST..=Self::LONGEST).contains(&node_timeout) {
            true => Ok(Self {
                node_timeout_ms: node_timeout.as_millis() as u64,
            }),
            false => Err(TimingError),
        }
    }

    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// A node that sent no heartbeat for so long is down.
    pub const fn node_timeout(self) -> Duration {
        Duration::from_millis(self.node_timeout_ms)
    }

    /// Between two heartbeats of a node without news: a tenth, and 2 s at most. This and all times
    /// after which a node only looks or asks again are as of a node timeout of 20 s at most.
    pub const fn heartbeat(self) -> Duration {
        self.polled(100)
    }

    /// A heartbeat without an answer for so long is lost: three tenths.
    pub const fn heartbeat_lost(self) -> Duration {
        self.polled(300)
    }

    /// How much longer than the node timeout a commit waits for a node that is down: once more.
    pub const fn left_out_after(self) -> Duration {
        self.per_mille(1000)
    }

    /// A coordinator that did not renew its lease for so long has lost it: the node timeout.
    pub const fn coordinator_lease(self) -> Duration {
        self.per_mille(1000)
    }

    /// Between two renewals of the coordinator's lease: a half.
    pub const fn lease_renewal(self) -> Duration {
        self.per_mille(500)
    }

    /// Between two looks of a node that wants the lease: a quarter.
    pub const fn lease_look(self) -> Duration {
        self.polled(250)
    }

    /// After a commit every participant has to serve the new versions within this time: the node
    /// timeout.
    pub const fn confirm(self) -> Duration {
        self.per_mille(1000)
    }

    /// Between two reads of the head by a node that the coordinator answers: the node timeout.
    pub const fn head_look(self) -> Duration {
        self.polled(1000)
    }

    /// The same for a node that no coordinator answers: a fifth.
    pub const fn head_look_alone(self) -> Duration {
        self.polled(200)
    }

    /// Between two tries after a failure of the catalog or of this node: a tenth.
    pub const fn retry(self) -> Duration {
        self.polled(100)
    }

    /// For how long a node passes over one that did not answer it: a half.
    pub const fn suspicion(self) -> Duration {
        self.polled(500)
    }

    /// A coordinator that hears fewer than half of the nodes for so long lets others take the
    /// lease: a fifth.
    pub const fn receives_few(self) -> Duration {
        self.per_mille(200)
    }

    /// Between two tries of a node to be let in: a half.
    pub const fn join_retry(self) -> Duration {
        self.polled(500)
    }

    /// A node that hears of no catalog serves what it served before, after so long: three times.
    pub const fn remember_after(self) -> Duration {
        self.per_mille(3000)
    }

    /// For how long a load waits for replicas beyond a majority, without progress: three times.
    pub const fn load_grace(self) -> Duration {
        self.per_mille(3000)
    }

    /// For how long nodes still answer for what they hold no longer, once all know that: a half.
    pub const fn on_its_way(self) -> Duration {
        self.per_mille(500)
    }

    /// How long the end of a plan waits for nodes to give up what they hold no longer: six times.
    pub const fn released(self) -> Duration {
        self.per_mille(6000)
    }

    /// A plan that waits for a node that is down for so long is stopped: twelve times.
    pub const fn plan_gives_up(self) -> Duration {
        self.per_mille(12_000)
    }

    /// How long a node asks another one for a file that is not there yet, before it reads the
    /// store: a half.
    pub const fn file_patience(self) -> Duration {
        self.per_mille(500)
    }

    /// Between two ticks of a node's machine: a twentieth of a heartbeat, between 20 and 50 ms.
    pub fn tick(self) -> Duration {
        self.per_mille(5)
            .clamp(Duration::from_millis(20), Duration::from_millis(50))
    }

    /// Of times after which a node only looks or asks again: as of [`Self::LONGEST_POLLED_MS`] at
    /// most, so that nodes soon hear of a node timeout that was shortened.
    const fn polled(self, share: u64) -> Duration {
        let is_longer = self.node_timeout_ms > Self::LONGEST_POLLED_MS;
        let node_timeout_ms = if is_longer {
            Self::LONGEST_POLLED_MS
        } else {
            self.node_timeout_ms
        };
        Duration::from_micros(node_timeout_ms * share)
    }

    const fn per_mille(self, share: u64) -> Duration {
        Duration::from_micros(self.node_timeout_ms * share)
    }
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            node_timeout_ms: 10_000,
        }
    }
}

impl fmt::Display for Timing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.node_timeout_ms % 1000 {
            0 => write!(f, "{}s", self.node_timeout_ms / 1000),
            _ => write!(f, "{}ms", self.node_timeout_ms),
        }
    }
}

/// How long an operator may have something waited for: the pause of a node, the deadline of a
/// rollout.
pub const MOST_WAIT: Duration = Duration::from_secs(30 * 86_400);

impl Now {
    /// How long ago an earlier moment was.
    pub fn since(&self, earlier: Duration) -> Duration {
        self.monotonic.saturating_sub(earlier)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_is_a_ratio_of_the_node_timeout() {
        let (long, short) = (
            Timing::default(),
            Timing::new(Duration::from_secs(1)).unwrap(),
        );
        assert_eq!(long.node_timeout(), Duration::from_secs(10));
        for time in [
            Timing::heartbeat,
            Timing::heartbeat_lost,
            Timing::lease_renewal,
            Timing::confirm,
            Timing::load_grace,
        ] {
            assert_eq!(time(long), 10 * time(short));
        }
        assert_eq!(long.tick(), Duration::from_millis(50));
        assert_eq!(short.tick(), Duration::from_millis(20));
    }

    #[test]
    fn nodes_look_and_ask_often_whatever_the_node_timeout() {
        let (longest, limit) = (Timing::LONGEST, Duration::from_secs(20));
        let (longest, limit) = (Timing::new(longest).unwrap(), Timing::new(limit).unwrap());
        assert_eq!(longest.heartbeat(), Duration::from_secs(2));
        for time in [Timing::heartbeat_lost, Timing::lease_look, Timing::retry] {
            assert_eq!(time(longest), time(limit));
        }
        assert_eq!(longest.coordinator_lease(), Timing::LONGEST);
    }

    #[test]
    fn times_that_no_cluster_works_with_are_refused() {
        for refused in [
            Duration::ZERO,
            Duration::from_millis(199),
            Duration::from_secs(601),
        ] {
            assert_eq!(Timing::new(refused), Err(TimingError));
        }
        let words = TimingError.to_string();
        assert_eq!(words, "a node timeout is between 200 ms and 10 min");
        assert_eq!(Timing::default().to_string(), "10s");
        let odd = Timing::new(Duration::from_millis(1500)).unwrap();
        assert_eq!(odd.to_string(), "1500ms");
    }
}
