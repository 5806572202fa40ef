//! Logs changes of the cluster, as this node learns of them.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::time::Duration;

use forebay_engine::TableName;
use forebay_replica::GroupId;
use tracing::{info, warn};

use super::Shell;
use crate::cluster_events::{ClusterEvent, events_between};
use crate::ids::{NodeId, NodeName};
use crate::model::{Head, Model};
use crate::node::Node;

/// The last logged state.
#[derive(Debug, Default)]
pub struct LoggedState {
    coordinator: Option<(NodeName, u64)>,
    known: Option<(u64, Model)>,
    leaders: BTreeMap<GroupId, NodeId>,
    /// The number of partitions of each table that changed their leader since the last line.
    new_leaders: BTreeMap<TableName, usize>,
    /// Since when the catalog does not answer.
    away_since: Option<Duration>,
}

impl Shell {
    /// Logs the coordinator if its node, or the process on it, has changed.
    pub(super) fn log_coordinator(&self, node: &Node) {
        let Some(lease) = node.lease().holder() else {
            return;
        };
        let now = (lease.holder.clone(), lease.incarnation);
        let mut logged = self.logged.lock();
        if logged.coordinator.as_ref() != Some(&now) {
            let before = logged
                .coordinator
                .as_ref()
                .map(|(name, _)| name.to_string());
            info!(node = %now.0, before, "node is the coordinator");
            logged.coordinator = Some(now);
        }
    }

    /// Logs the changes of a new revision of the catalog.
    pub(super) fn log_changes(
        &self,
        head: &Head,
        model: &Model,
        leaders: &BTreeMap<GroupId, NodeId>,
    ) {
        let mut logged = self.logged.lock();
        logged.note_leaders(model, leaders);
        match &logged.known {
            Some((revision, _)) if *revision >= head.revision => return,
            Some((_, known)) => {
                let events = events_between(known, model);
                events.iter().for_each(|event| log(head.revision, event));
            }
            None => {
                let (nodes, tables) = (model.all_nodes().count(), model.all_tables().count());
                info!(
                    revision = head.revision,
                    nodes, tables, "the cluster is known"
                );
            }
        }
        logged.known = Some((head.revision, model.clone()));
    }

    /// Logs the leaders that changed since the last call: one line per table.
    pub(super) fn log_leaders(&self) {
        let new_leaders = std::mem::take(&mut self.logged.lock().new_leaders);
        for (table, partitions) in new_leaders {
            info!(%table, partitions, "partitions have other leaders");
        }
    }

    /// Records whether the catalog answers, and logs changes of that.
    pub(super) fn log_catalog(&self, problem: Option<&dyn Display>) {
        let now = self.now().monotonic;
        let mut logged = self.logged.lock();
        match (problem, logged.away_since) {
            (Some(error), None) => {
                logged.away_since = Some(now);
                warn!(%error, "the catalog does not answer; the node serves on");
            }
            (None, Some(since)) => {
                logged.away_since = None;
                let away_ms = now.saturating_sub(since).as_millis() as u64;
                info!(away_ms, "the catalog answers again");
            }
            _ => {}
        }
    }
}

impl LoggedState {
    fn note_leaders(&mut self, model: &Model, leaders: &BTreeMap<GroupId, NodeId>) {
        if self.leaders == *leaders {
            return;
        }
        let before = std::mem::replace(&mut self.leaders, leaders.clone());
        for (table, group) in model.all_groups() {
            let was = before.get(&group.group);
            if was.is_some() && was != leaders.get(&group.group) {
                *self.new_leaders.entry(table.clone()).or_default() += 1;
            }
        }
    }
}

fn log(revision: u64, event: &ClusterEvent) {
    let node = event.node.as_ref().map(ToString::to_string);
    let table = event.table.as_ref().map(TableName::as_str);
    let request = event.request.as_ref().map(ToString::to_string);
    let ClusterEvent {
        what,
        from,
        to,
        reason,
        ..
    } = event;
    match event.is_wrong {
        true => warn!(revision, node, table, from, to, request, reason, "{what}"),
        false => info!(revision, node, table, from, to, request, reason, "{what}"),
    }
}
