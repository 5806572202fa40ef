//! What a node has told its coordinator last, and what is worth telling.

use std::collections::BTreeMap;

use forebay_engine::TableName;

use super::events::Serve;
use crate::message::Readiness;
use crate::model::{Model, Phase, RolloutId};

/// What of a heartbeat makes another one worth sending before the answer.
#[derive(Debug, Clone, PartialEq)]
pub struct ReportedState {
    pub revision: u64,
    pub serves: u64,
    pub holds: u64,
    pub leaving: bool,
    pub rollouts: BTreeMap<RolloutId, Readiness>,
    pub moving: Option<Readiness>,
}

/// Whether a heartbeat is worth sending before the answer to the last one.
pub fn is_news(before: &ReportedState, now: &ReportedState) -> bool {
    let steady = |said: &ReportedState| {
        let rollouts = said.rollouts.iter();
        let rollouts: Vec<_> = rollouts
            .filter(|(_, readiness)| !matches!(readiness, Readiness::Fetching { .. }))
            .map(|(id, readiness)| (*id, readiness.clone()))
            .collect();
        let is_failed = matches!(said.moving, Some(Readiness::Failed { .. }));
        (
            said.revision,
            said.serves,
            said.leaving,
            rollouts,
            is_failed,
        )
    };
    steady(before) != steady(now) || before.holds < now.holds
}

/// Whether something does not serve here that a rollout waits for.
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
