//! What a node has told its coordinator last.

use std::collections::BTreeMap;

use crate::message::Readiness;
use crate::model::RolloutId;

/// What of a heartbeat makes another one worth sending before the answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Said {
    pub revision: u64,
    pub serves: u64,
    pub holds: u64,
    pub leaving: bool,
    pub rollouts: BTreeMap<RolloutId, Readiness>,
}

/// Whether a heartbeat is worth sending before the answer to the last one.
pub fn is_news(before: &Said, now: &Said) -> bool {
    let steady = |said: &Said| {
        let rollouts = said.rollouts.iter();
        let rollouts: Vec<_> = rollouts
            .filter(|(_, readiness)| !matches!(readiness, Readiness::Bringing { .. }))
            .map(|(id, readiness)| (*id, readiness.clone()))
            .collect();
        (said.revision, said.serves, said.leaving, rollouts)
    };
    steady(before) != steady(now) || before.holds < now.holds
}
