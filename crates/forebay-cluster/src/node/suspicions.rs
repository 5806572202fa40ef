//! The nodes that a node avoids.
//!
//! These are the nodes that the coordinator reports as silent, and those that this node itself
//! found silent.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::ids::NodeId;
use crate::time::{Now, Timing};

/// The suspected nodes, as one node sees them.
#[derive(Debug, Default)]
pub struct Suspicions {
    reported: BTreeSet<NodeId>,
    own: BTreeMap<NodeId, Duration>,
    /// The coordinator that was silent, until a coordinator answers.
    lost_coordinator: Option<NodeId>,
}

/// Whether the routes to nodes have to change.
pub type RoutingChanged = bool;

impl Suspicions {
    pub fn all(&self) -> BTreeSet<NodeId> {
        self.reported
            .iter()
            .chain(self.own.keys())
            .copied()
            .collect()
    }

    /// Returns the nodes that the coordinator reports.
    pub fn reported(&self) -> &BTreeSet<NodeId> {
        &self.reported
    }

    /// Records the silent nodes from a coordinator's answer. The previous coordinator stays
    /// suspected for a while, because the new one has to detect that itself. If the coordinator is
    /// the same, it was only silent for a moment.
    pub fn notify(
        &mut self,
        reported: BTreeSet<NodeId>,
        coordinator: Option<NodeId>,
    ) -> RoutingChanged {
        let lost = self.lost_coordinator.take();
        let is_back = lost.filter(|lost| Some(*lost) == coordinator);
        let trusts = is_back.is_some_and(|back| self.own.remove(&back).is_some());
        let is_news = self.reported != reported;
        self.reported = reported;
        is_news || trusts
    }

    pub fn suspect(&mut self, now: Now, node: NodeId) -> RoutingChanged {
        self.own.insert(node, now.monotonic).is_none()
    }

    /// Suspects a coordinator until a coordinator answers.
    pub fn suspect_coordinator(&mut self, now: Now, node: NodeId) -> RoutingChanged {
        self.lost_coordinator = Some(node);
        self.suspect(now, node)
    }

    pub fn trust(&mut self, node: NodeId) -> RoutingChanged {
        self.lost_coordinator.take_if(|lost| *lost == node);
        self.own.remove(&node).is_some()
    }

    /// Ends suspicions of this node that are old: the nodes may have come back.
    pub fn forgive(&mut self, now: Now, timing: Timing) -> RoutingChanged {
        if let Some(lost) = self.lost_coordinator {
            self.own.insert(lost, now.monotonic);
        }
        let before = self.own.len();
        self.own
            .retain(|_, since| now.since(*since) < timing.suspicion());
        self.own.len() != before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Now {
        Now {
            monotonic: Duration::from_secs(seconds),
            unix_ms: 0,
        }
    }

    const LOST: NodeId = NodeId(1);
    const NEXT: NodeId = NodeId(2);

    #[test]
    fn a_nodes_own_suspicion_expires() {
        let mut suspicions = Suspicions::default();
        assert!(suspicions.suspect(at(0), LOST));
        assert!(!suspicions.suspect(at(1), LOST));
        assert!(!suspicions.forgive(at(5), Timing::default()));
        assert!(suspicions.forgive(at(6), Timing::default()));
        assert!(suspicions.all().is_empty());
    }

    #[test]
    fn a_lost_coordinator_stays_suspected_until_the_next_one_reports_it() {
        let mut suspicions = Suspicions::default();
        suspicions.suspect_coordinator(at(0), LOST);
        assert!(
            !suspicions.forgive(at(12), Timing::default()),
            "there is no coordinator yet"
        );
        assert!(!suspicions.notify(BTreeSet::new(), Some(NEXT)));
        assert!(!suspicions.forgive(at(16), Timing::default()));
        assert_eq!(suspicions.all(), [LOST].into());
        assert!(suspicions.notify([LOST].into(), Some(NEXT)));
        suspicions.forgive(at(30), Timing::default());
        assert_eq!(suspicions.all(), [LOST].into(), "reported");
    }

    #[test]
    fn a_coordinator_that_answers_again_is_trusted() {
        let mut suspicions = Suspicions::default();
        suspicions.suspect_coordinator(at(0), LOST);
        assert!(suspicions.notify(BTreeSet::new(), Some(LOST)));
        assert!(suspicions.all().is_empty());
        suspicions.suspect_coordinator(at(1), LOST);
        assert!(suspicions.trust(LOST));
        assert!(!suspicions.forgive(at(2), Timing::default()));
    }
}
