//! Invariants that are checked at every event.
//!
//! The checks compare the catalog's history with a single-threaded model, which computes the result
//! of each rollout again. They compare the answers of nodes with that history, and with the reports
//! to operators.

use std::collections::{BTreeMap, BTreeSet};

use forebay_engine::TableName;

use super::engine::expected_proof;
use super::inserts::check_splits;
use super::world::{Life, Moment, SECOND, World};
use crate::ids::{NodeId, NodeName};
use crate::message::{Beat, Readiness};
use crate::model::{
    Head, Model, NodeState, Outcome, Phase, RequestId, Rollout, RolloutId, RolloutRole, TableEntry,
};
use crate::planning::holders;
use crate::request::Request;
use crate::routing::version::ranges_of;

/// The maximum number of heartbeats in one second.
const MOST_BEATS: u64 = 60;

#[derive(Debug, Default)]
pub struct Checks {
    pub violation: Option<String>,
    /// Requests to the catalog and heartbeats, by hosts.
    pub requests: Vec<u64>,
    /// The lives of processes, by their incarnations.
    pub lives: BTreeMap<u64, u64>,
    pub beats: Vec<u64>,
    storms: Vec<(u64, u64)>,
    tables: BTreeMap<TableName, ModelTable>,
    before: BTreeMap<RolloutId, BTreeMap<TableName, ModelTable>>,
    /// The serving versions, and the revision from which each served.
    pub log: BTreeMap<TableName, Vec<(u64, Option<u64>)>>,
    /// Reports to operators: after one, nodes answer from that revision or a newer one, except for
    /// these nodes.
    pub reported: BTreeMap<TableName, Vec<(u64, BTreeSet<NodeId>)>>,
    /// The process that wrote with each term.
    terms: BTreeMap<u64, (Life, u64)>,
    answered: BTreeMap<RequestId, Outcome>,
    begun: BTreeMap<RolloutId, (RequestId, u64)>,
    /// The newest report of each node to each process, and its arrival time.
    last_reports: BTreeMap<(Life, NodeName), NodeReport>,
    decided: BTreeSet<u64>,
    /// Peers that should have resulted from a split by now, and those of them that did not.
    pub split_off: BTreeSet<super::live::ReplicaPlace>,
    pub missed: BTreeSet<super::live::ReplicaPlace>,
    /// The peers of live tables that the catalog has named.
    pub peers: BTreeSet<super::live::ReplicaPlace>,
}

/// A table of the single-threaded model.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct ModelTable {
    serving: Option<u64>,
    history: Vec<u64>,
    bad: Vec<u64>,
}

#[derive(Debug, Clone)]
pub struct NodeReport {
    at: u64,
    by: (u64, u64),
    serves: u64,
    pub holds: u64,
    pub revision: u64,
    rollouts: BTreeMap<RolloutId, Readiness>,
}

impl Checks {
    pub fn add_host(&mut self) {
        self.requests.push(0);
        self.beats.push(0);
        self.storms.push((0, 0));
    }

    pub fn costs(&self) -> (Vec<u64>, Vec<u64>) {
        (self.requests.clone(), self.beats.clone())
    }

    /// REQUIRES: the process has handled the heartbeat. One that waits for a stopped process is not
    /// received yet.
    pub fn beat_arrived(&mut self, now: u64, to: Life, from: u64, beat: &Beat) {
        let report = NodeReport {
            at: now,
            by: (from, beat.seq),
            serves: beat.serves,
            holds: beat.holds,
            revision: beat.revision,
            rollouts: beat.rollouts.clone(),
        };
        let place = (to, beat.who.name.clone());
        let known = self.last_reports.get(&place);
        if known.is_none_or(|known| known.by < report.by) {
            self.last_reports.insert(place, report);
        }
    }
}

impl World {
    pub fn fail(&mut self, text: String) {
        if self.checks.violation.is_none() {
            let at = self.now as f64 / SECOND as f64;
            self.checks.violation = Some(format!("at {at:.3} s: {text}"));
        }
    }

    pub fn check_beat(&mut self, by: Life, beat: &Beat) {
        let second = self.now / SECOND;
        let (at, count) = &mut self.checks.storms[by.host];
        if *at != second {
            (*at, *count) = (second, 0);
        }
        *count += 1;
        let count = *count;
        if count > MOST_BEATS {
            let name = &beat.who.name;
            self.fail(format!("{name} sent {count} heartbeats within a second"));
        }
    }

    /// Checks that heads that nodes know and receive were committed.
    pub fn check_known(&mut self, by: Life, head: &Head) {
        if self.store.committed.get(&head.revision) != Some(&head.stamp) {
            let name = &self.hosts[by.host].name;
            let text = format!(
                "{name} reports revision {}, which is not committed",
                head.revision
            );
            self.fail(text);
        }
    }

    pub fn check_node(&mut self, life: Life) {
        let Some(process) = self.process(life) else {
            return;
        };
        let known = process
            .node
            .follower()
            .known()
            .map(|(head, _)| head.clone());
        let model = process.node.follower().known().map(|(_, model)| model);
        let is_settled = model.is_some() && !process.is_activating;
        let serving = |table| model.and_then(|model| model.table(table)?.serving);
        let mut active = process.active.iter().filter(|_| is_settled);
        if let Some((table, serve)) =
            active.find(|(table, serve)| serving(table) != Some(serve.version))
        {
            let version = serve.version;
            let text = format!(
                "version {version} of {table} is answered, but the node's head names another"
            );
            return self.fail(text);
        }
        if let Some(head) = known
            && process.checked_revision != Some(head.revision)
        {
            process.checked_revision = Some(head.revision);
            self.check_known(life, &head);
        }
    }

    /// Checks a coordinator's decision against the reports that it received.
    pub fn check_decision(&mut self, by: Life, head: &Head) {
        if !self.checks.decided.insert(head.stamp) {
            return;
        }
        let standing = self
            .process(by)
            .and_then(|process| process.node.coordinator()?.standing());
        let Some((base, before)) = standing else {
            return;
        };
        // The decision of a superseded coordinator has no effect.
        let (base, before) = (base.stamp, before.clone());
        if base != self.store.head.stamp {
            return;
        }
        let Some(after) = self.store.model(head).cloned() else {
            return;
        };
        if let Some(problem) = self.check_moving(by, &before, &after) {
            self.fail(problem);
        }
        for (id, rollout) in &after.work.rollouts {
            let was = before.work.rollouts.get(id).map(|rollout| rollout.phase);
            if was == Some(rollout.phase) {
                continue;
            }
            if rollout.phase == Phase::Committed {
                self.at_moment(Moment::Committing);
            }
            let problem = match rollout.phase {
                Phase::Committed => self.check_proved(by, &after, rollout),
                Phase::Confirmed => self.check_serving(by, &after, rollout, rollout.committed),
                Phase::Reverted => self.check_serving(by, &after, rollout, rollout.reverted),
                _ => None,
            };
            if let Some(problem) = problem {
                let text = format!("rollout {id} becomes {:?}, but {problem}", rollout.phase);
                self.fail(text);
            }
        }
    }

    pub fn last_report(&self, by: Life, model: &Model, node: NodeId) -> Option<NodeReport> {
        let name = model.node(node)?.name.clone();
        let host = &self.hosts[by.host];
        if host.name != name {
            return self.checks.last_reports.get(&(by, name)).cloned();
        }
        // A node reports to itself within the machine.
        let received = host
            .process
            .as_ref()?
            .node
            .coordinator()?
            .received()
            .get(&node)?;
        Some(NodeReport {
            at: self.now,
            by: (by.life, 0),
            serves: received.serves,
            holds: received.holds,
            revision: received.revision,
            rollouts: received.rollouts.clone(),
        })
    }

    fn check_proved(&self, by: Life, model: &Model, rollout: &Rollout) -> Option<String> {
        for node in &rollout.participants {
            let report = self.last_report(by, model, *node);
            let readiness = report.and_then(|report| report.rollouts.get(&rollout.id).cloned());
            let Some(Readiness::Ready { proofs }) = readiness else {
                return Some(format!("node {node} reported {readiness:?}"));
            };
            for (table, part) in &rollout.tables {
                let entry = model.table(table)?;
                let ranges = ranges_of(model.layout_of(entry)?, entry, *node);
                let expected = expected_proof(&(table.clone(), part.to), &ranges);
                if proofs.get(table) != Some(&expected) {
                    return Some(format!("node {node} reported a wrong proof of {table}"));
                }
            }
        }
        let begun = self
            .checks
            .begun
            .get(&rollout.id)
            .map_or(self.now, |(_, at)| *at);
        let deadline = rollout.options.deadline_ms * 990;
        for node in &rollout.excluded {
            let silent_since = self
                .last_report(by, model, *node)
                .map_or(0, |report| report.at);
            let is_left = matches!(model.node(*node)?.state, NodeState::Left { .. });
            // The clocks of the node and the coordinator diverge by up to a hundredth.
            let timing = self.timing;
            let waited = timing.node_timeout() + timing.left_out_after();
            let is_silent = self.now - silent_since >= waited.as_micros() as u64 / 100 * 99;
            if !is_left && !is_silent && self.now - begun < deadline {
                let since = (self.now - silent_since) as f64 / SECOND as f64;
                return Some(format!(
                    "node {node} ({:?}) is excluded, but reported {since:.1} s ago",
                    model.node(*node)?.state
                ));
            }
        }
        None
    }

    fn check_serving(
        &self,
        by: Life,
        model: &Model,
        rollout: &Rollout,
        revision: Option<u64>,
    ) -> Option<String> {
        let waited_for = rollout.participants.difference(&rollout.excluded);
        for node in waited_for {
            let report = self.last_report(by, model, *node);
            if report
                .as_ref()
                .is_none_or(|report| Some(report.serves) < revision)
            {
                return Some(format!("node {node} did not report that it serves it"));
            }
            let name = &model.node(*node)?.name;
            let host = self.hosts.iter().find(|host| host.name == *name)?;
            let process = host.process.as_ref();
            let is_same = report.is_some_and(|report| report.by.0 == host.life);
            let Some(process) = process.filter(|_| is_same) else {
                continue;
            };
            for table in rollout.tables.keys() {
                let version = model.table(table).and_then(|entry| entry.serving);
                let active = process.active.get(table).map(|active| active.version);
                let served =
                    version.and_then(|version| process.served.get(&(table.clone(), version)));
                if active != version && served.copied() < revision {
                    return Some(format!(
                        "{name} answers version {active:?} of {table} instead of {version:?}"
                    ));
                }
            }
        }
        None
    }

    /// Checks the head that was just committed.
    pub fn check_commit(&mut self, by: Life, instance: u64, before: &Head) {
        let head = self.store.head.clone();
        self.trace(head.stamp);
        let writer = *self.checks.terms.entry(head.term).or_insert((by, instance));
        if head.revision != before.revision + 1 || head.term < before.term {
            self.fail(format!(
                "revision {} of term {} follows revision {} of term {}",
                head.revision, head.term, before.revision, before.term
            ));
        }
        if writer != (by, instance) {
            self.fail(format!("term {} has two coordinators", head.term));
        }
        let (Some(old), Some(new)) = (
            self.store.model(before).cloned(),
            self.store.model(&head).cloned(),
        ) else {
            return;
        };
        for (id, answer) in &new.work.answers {
            let known = self
                .checks
                .answered
                .insert(id.clone(), answer.outcome.clone());
            if known.is_some_and(|known| known != answer.outcome) {
                self.fail(format!("request {id} was answered twice"));
            }
        }
        for (id, rollout) in &new.work.rollouts {
            let was = old.work.rollouts.get(id).map(|rollout| rollout.phase);
            if was != Some(rollout.phase) {
                self.check_phase_change(was, rollout);
            }
        }
        if let Some(problem) = check_splits(&old, &new) {
            self.fail(problem);
        }
        self.check_drops(&new);
        self.compare(&new, head.revision);
    }

    fn check_phase_change(&mut self, was: Option<Phase>, rollout: &Rollout) {
        self.count(phase_name(rollout.phase));
        super::faults::at_phase(self);
        match rollout.phase {
            Phase::Preparing => self.at_moment(Moment::Preparing),
            Phase::Committed => self.at_moment(Moment::Confirming),
            Phase::Reverting => self.at_moment(Moment::Reverting),
            _ => {}
        }
        let is_legal = matches!(
            (was, rollout.phase),
            (None, Phase::Preparing | Phase::Aborted)
                | (Some(Phase::Preparing), Phase::Committed | Phase::Aborted)
                | (Some(Phase::Committed), Phase::Confirmed | Phase::Reverting)
                | (Some(Phase::Reverting), Phase::Reverted)
        );
        if !is_legal {
            let text = format!(
                "rollout {} went from {was:?} to {:?}",
                rollout.id, rollout.phase
            );
            self.fail(text);
        }
        if was.is_none() {
            let mut begun = self.checks.begun.values();
            if begun.any(|(request, _)| *request == rollout.request) {
                self.fail(format!(
                    "request {} began a second rollout",
                    rollout.request
                ));
            }
            let begun = (rollout.request.clone(), self.now);
            self.checks.begun.insert(rollout.id, begun);
        }
        let mut before = BTreeMap::new();
        for (table, part) in &rollout.tables {
            let known = self.checks.tables.entry(table.clone()).or_default();
            match rollout.phase {
                Phase::Committed => {
                    before.insert(table.clone(), known.clone());
                    known.apply(part.role, part.to, part.keep);
                }
                Phase::Reverting => {
                    let before = self.checks.before.get(&rollout.id);
                    *known = before
                        .and_then(|before| before.get(table))
                        .cloned()
                        .unwrap_or_default();
                }
                _ => {}
            }
        }
        if rollout.phase == Phase::Committed {
            self.checks.before.insert(rollout.id, before);
        }
    }

    /// Checks that each removed table was removed by a request.
    fn check_drops(&mut self, new: &Model) {
        let gone: Vec<TableName> = self.checks.tables.keys().cloned().collect();
        for table in gone.into_iter().filter(|table| new.table(table).is_none()) {
            let served = self
                .checks
                .tables
                .remove(&table)
                .is_some_and(|known| known.serving.is_some());
            let is_asked = self.ops.iter().any(|op| {
                matches!(&op.request, Request::Drop { table: asked } if *asked == table)
                    && new.work.answers.contains_key(&op.id)
            });
            if served && !is_asked {
                self.fail(format!(
                    "table {table} is missing, but no request dropped it"
                ));
            }
        }
    }

    fn compare(&mut self, new: &Model, revision: u64) {
        let mut problem = None;
        for (table, entry) in new.all_tables() {
            let known = self.checks.tables.entry(table.clone()).or_default();
            if *known != ModelTable::of(entry) {
                problem = Some(format!("table {table} is {entry:?} instead of {known:?}"));
            }
            let log = self.checks.log.entry(table.clone()).or_default();
            if log.last().map(|(_, serving)| *serving) != Some(entry.serving)
                || entry
                    .rollout
                    .and_then(|id| new.work.rollouts.get(&id))
                    .is_some_and(|rollout| {
                        rollout.committed == Some(revision) || rollout.reverted == Some(revision)
                    })
            {
                log.push((revision, entry.serving));
            }
        }
        if let Some(problem) = problem {
            self.fail(problem);
        }
    }

    /// Checks the number of catalog requests and heartbeats during an idle time.
    pub fn check_idle(&mut self, before: &(Vec<u64>, Vec<u64>), seconds: u64) {
        for at in 0..self.hosts.len() {
            let requests = self.checks.requests[at] - before.0[at];
            let beats = self.checks.beats[at] - before.1[at];
            let name = self.hosts[at].name.clone();
            let timeout_s = self.timing.node_timeout().as_secs_f64();
            // A last change may be committed meanwhile.
            if requests as f64 > 2.0 * seconds as f64 / timeout_s + 3.0 {
                self.fail(format!(
                    "{name} idle: {requests} requests to the catalog in {seconds} s"
                ));
            }
            if beats as f64 > 13.0 * seconds as f64 / timeout_s {
                self.fail(format!("{name} idle: {beats} heartbeats in {seconds} s"));
            }
        }
    }

    /// Returns the work that is left.
    pub fn unsettled(&self) -> Option<String> {
        if let Some(op) = self.ops.iter().find(|op| op.report.is_none()) {
            return Some(format!("request {} has not ended: {:?}", op.id, op.request));
        }
        let model = self.store.current();
        if let Some(moving) = model.work.moving() {
            return Some(format!("a plan is {:?}: {moving:?}", moving.stage));
        }
        let is_drained = |node: &NodeId| model.work.drained.contains(node);
        if let Some(node) = holders(model).iter().find(|node| is_drained(node)) {
            return Some(format!("node {node} was drained, but is assigned data"));
        }
        if let Some(rollout) = model.work.under_way().next() {
            return Some(format!("rollout {} is {:?}", rollout.id, rollout.phase));
        }
        if let Some(problem) = self.unsettled_live() {
            return Some(problem);
        }
        let processes = self.hosts.iter().filter_map(|host| host.process.as_ref());
        let coordinators = processes
            .filter(|process| process.node.coordinator().is_some())
            .count();
        if coordinators != 1 {
            return Some(format!("there are {coordinators} coordinators"));
        }
        self.hosts.iter().find_map(|host| {
            let name = &host.name;
            let Some(process) = &host.process else {
                return Some(format!("{name} does not run"));
            };
            let entry = model.node_named(name);
            if !entry.is_some_and(|entry| entry.is_up() && entry.incarnation == process.incarnation)
            {
                return Some(format!("{name} is not known to be up"));
            }
            let known = process
                .node
                .follower()
                .known()
                .map(|(head, _)| head.revision);
            if known != Some(self.store.head.revision) {
                let revision = self.store.head.revision;
                return Some(format!(
                    "{name} knows revision {known:?} instead of {revision}"
                ));
            }
            let serving = model
                .all_tables()
                .filter_map(|(table, entry)| Some((table, entry.serving?)));
            let active = process
                .active
                .iter()
                .map(|(table, serve)| (table, serve.version));
            let (serving, active): (Vec<_>, Vec<_>) = (serving.collect(), active.collect());
            let serving: BTreeMap<_, _> = serving.into_iter().collect();
            let active: BTreeMap<_, _> = active.into_iter().collect();
            if serving != active || process.is_cut_off {
                return Some(format!("{name} serves {active:?} instead of {serving:?}"));
            }
            let is_there = |table: &&TableName| serving.contains_key(*table);
            if let Some(table) = host.disk.tables.iter().find(|table| !is_there(table)) {
                return Some(format!("{name} has files of {table}, which was dropped"));
            }
            let id = entry.map(|entry| entry.id)?;
            process.active.iter().find_map(|(table, serve)| {
                let entry = model.table(table)?;
                let held = ranges_of(model.layout_of(entry)?, entry, id);
                let open = process.open.get(&(table.clone(), serve.version));
                (open != Some(&held))
                    .then(|| format!("{name} has {open:?} of {table} instead of {held:?}"))
            })
        })
    }
}

impl ModelTable {
    fn of(entry: &TableEntry) -> Self {
        Self {
            serving: entry.serving,
            history: entry.history.clone(),
            bad: entry.bad.clone(),
        }
    }

    fn apply(&mut self, role: RolloutRole, to: u64, keep: usize) {
        let from = self.serving;
        self.history.retain(|past| *past != to);
        if role == RolloutRole::Swap {
            self.history.extend(from.filter(|from| *from != to));
        }
        if role == RolloutRole::Rollback {
            let is_new = from.filter(|from| !self.bad.contains(from));
            self.bad.extend(is_new);
        }
        self.serving = Some(to);
        while self.history.len() >= keep.max(1) {
            self.history.remove(0);
        }
    }
}

fn phase_name(phase: Phase) -> &'static str {
    match phase {
        Phase::Preparing => "preparing",
        Phase::Committed => "committed",
        Phase::Confirmed => "confirmed",
        Phase::Aborted => "aborted",
        Phase::Reverting => "reverting",
        Phase::Reverted => "reverted",
    }
}
