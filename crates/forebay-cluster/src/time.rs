//! Moments in time, and the times that the protocols of a cluster wait.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A moment, by the monotonic clock and by the wall clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    pub monotonic: Duration,
    pub unix_ms: u64,
}

/// The waiting times of a cluster's protocols. Operators choose the node timeout; every other time
/// is a fixed ratio of it, so that the times always fit together.
///
/// The catalog stores it, and nodes use the value in the head that they know. For a moment after a
/// change two nodes may use different values. That is safe: a node that acts too early loses the
/// conditional write that follows, or only asks once more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Timing {
    node_timeout_ms: u64,
}

/// An error for a node timeout outside of the allowed range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a node timeout is between {} ms and {} min", Timing::SHORTEST.as_millis(), Timing::LONGEST.as_secs() / 60)]
pub struct TimingError;

impl Timing {
    /// The node timeout, in milliseconds, beyond which polling times no longer grow: see
    /// [`Self::heartbeat`].
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

    /// Returns the time without a heartbeat after which a node is down.
    pub const fn node_timeout(self) -> Duration {
        Duration::from_millis(self.node_timeout_ms)
    }

    /// Returns the time between two heartbeats of a node without news: a tenth, at most 2 s. All
    /// polling times grow with the node timeout only up to 20 s.
    pub const fn heartbeat(self) -> Duration {
        self.polled(100)
    }

    /// Returns the time without an answer after which a heartbeat is lost: three tenths.
    pub const fn heartbeat_lost(self) -> Duration {
        self.polled(300)
    }

    /// Returns how much longer than the node timeout a commit waits for a node that is down: one
    /// more node timeout.
    pub const fn left_out_after(self) -> Duration {
        self.per_mille(1000)
    }

    /// Returns the time after which a coordinator that did not renew its lease has lost it: the
    /// node timeout.
    pub const fn coordinator_lease(self) -> Duration {
        self.per_mille(1000)
    }

    /// Returns the time between two renewals of the coordinator lease: a half.
    pub const fn lease_renewal(self) -> Duration {
        self.per_mille(500)
    }

    /// Returns the time between two reads of the lease by a node that wants it: a quarter.
    pub const fn lease_look(self) -> Duration {
        self.polled(250)
    }

    /// Returns the time after a commit within which every participant has to serve the new
    /// versions: the node timeout.
    pub const fn confirm(self) -> Duration {
        self.per_mille(1000)
    }

    /// Returns the time between two reads of the head by a node that the coordinator answers: the
    /// node timeout.
    pub const fn head_look(self) -> Duration {
        self.polled(1000)
    }

    /// Returns the time between two reads of the head by a node that no coordinator answers: a
    /// fifth.
    pub const fn head_look_alone(self) -> Duration {
        self.polled(200)
    }

    /// Returns the time between two tries after a failure of the catalog or of this node: a tenth.
    pub const fn retry(self) -> Duration {
        self.polled(100)
    }

    /// Returns how long a node avoids another node that did not answer it: a half.
    pub const fn suspicion(self) -> Duration {
        self.polled(500)
    }

    /// Returns the time after which a coordinator that hears from fewer than half of the nodes lets
    /// others take the lease: a fifth.
    pub const fn receives_few(self) -> Duration {
        self.per_mille(200)
    }

    /// Returns the time between two requests of a node to be admitted: a half.
    pub const fn join_retry(self) -> Duration {
        self.polled(500)
    }

    /// Returns the time without any catalog after which a node serves what it served before: three
    /// times.
    pub const fn remember_after(self) -> Duration {
        self.per_mille(3000)
    }

    /// Returns how long a load without progress waits for replicas beyond a majority: three times.
    pub const fn load_grace(self) -> Duration {
        self.per_mille(3000)
    }

    /// Returns how long nodes keep answering for data that they no longer have to hold, once all
    /// nodes know that: a half.
    pub const fn on_its_way(self) -> Duration {
        self.per_mille(500)
    }

    /// Returns how long the end of a plan waits for nodes to remove data that they no longer have
    /// to hold: six times.
    pub const fn released(self) -> Duration {
        self.per_mille(6000)
    }

    /// Returns how long a plan waits for a node that is down before the plan is stopped: twelve
    /// times.
    pub const fn plan_gives_up(self) -> Duration {
        self.per_mille(12_000)
    }

    /// Returns how long a node asks another node for a file that the other does not have yet,
    /// before it reads the store: a half.
    pub const fn file_patience(self) -> Duration {
        self.per_mille(500)
    }

    /// Returns the time between two ticks of a node's state machine: a twentieth of a heartbeat,
    /// between 20 and 50 ms.
    pub fn tick(self) -> Duration {
        self.per_mille(5)
            .clamp(Duration::from_millis(20), Duration::from_millis(50))
    }

    /// Returns a polling time. It grows with the node timeout only up to
    /// [`Self::LONGEST_POLLED_MS`], so that nodes soon learn of a shorter node timeout.
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

/// The longest time for which an operator can make the cluster wait: for the pause of a node or the
/// deadline of a rollout.
pub const MOST_WAIT: Duration = Duration::from_secs(30 * 86_400);

impl Now {
    /// Returns the time since an earlier moment.
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
    fn polling_intervals_are_bounded_for_any_node_timeout() {
        let (longest, limit) = (Timing::LONGEST, Duration::from_secs(20));
        let (longest, limit) = (Timing::new(longest).unwrap(), Timing::new(limit).unwrap());
        assert_eq!(longest.heartbeat(), Duration::from_secs(2));
        for time in [Timing::heartbeat_lost, Timing::lease_look, Timing::retry] {
            assert_eq!(time(longest), time(limit));
        }
        assert_eq!(longest.coordinator_lease(), Timing::LONGEST);
    }

    #[test]
    fn unusable_node_timeouts_are_refused() {
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
