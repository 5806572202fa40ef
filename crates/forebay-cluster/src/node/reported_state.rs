//! Decides whether a heartbeat is worth sending, from the last one.

use std::collections::BTreeMap;

use forebay_engine::TableName;

use super::events::Serve;
use crate::message::Readiness;
use crate::model::{Model, Phase, RolloutId};

/// The parts of a heartbeat whose change makes another one worth sending before the answer.
#[derive(Debug, Clone, PartialEq)]
pub struct ReportedState {
    pub revision: u64,
    pub serves: u64,
    pub holds: u64,
    pub leaving: bool,
    pub rollouts: BTreeMap<RolloutId, Readiness>,
    pub moving: Option<Readiness>,
}

/// Returns whether a heartbeat is worth sending before the answer to the last one.
pub fn is_news(before: &ReportedState, now: &ReportedState) -> bool {
    let steady = |reported_state: &ReportedState| {
        let rollouts = reported_state.rollouts.iter();
        let rollouts: Vec<_> = rollouts
            .filter(|(_, readiness)| !matches!(readiness, Readiness::Fetching { .. }))
            .map(|(id, readiness)| (*id, readiness.clone()))
            .collect();
        let is_failed = matches!(reported_state.moving, Some(Readiness::Failed { .. }));
        (
            reported_state.revision,
            reported_state.serves,
            reported_state.leaving,
            rollouts,
            is_failed,
        )
    };
    steady(before) != steady(now) || before.holds < now.holds
}

/// Returns whether a version for which a rollout waits does not serve yet.
pub fn lacks(model: &Model, active: &BTreeMap<TableName, Serve>) -> bool {
    let rollouts = model.work.under_way();
    let mut tables = rollouts
        .filter(|rollout| matches!(rollout.phase, Phase::Committed | Phase::Reverting))
        .flat_map(|rollout| rollout.tables.keys());
    tables.any(|table| {
        let serving = model.table(table).and_then(|entry| entry.serving);
        serving != active.get(table).map(|serve| serve.version)
    })
}
