//! Decides about the requests that clients write in the catalog.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use forebay_engine::{StoreError, TableName};
use forebay_run::Order;

use super::layouts::unused;
use super::members::{down_since, entry_of, fits_not};
use super::{CoordinatorAction, Step, Summary};
use crate::bugs::{Bug, is_planted};
use crate::formats::{has_timing, speaks_not};
use crate::ids::{NodeId, NodeName};
use crate::message::Introduction;
use crate::model::{
    FORMAT_OF_REMAKES, Model, NodeEntry, NodeState, Outcome, Phase, RequestAnswer, RequestId,
    Rollout, RolloutId, RolloutOptions, RolloutRole, RolloutTable, TableEntry,
};
use crate::request::{REPLICAS, Request, SwapTo};
use crate::routing::layouts::MOST_REPLICAS;
use crate::time::MOST_WAIT;

/// How long the catalog keeps answers at least.
const KEPT_MS: u64 = 3600 * 1000;
/// How long the catalog keeps the answers that hold a survey. They are long. The next accepted
/// request removes older ones. If their request is found again, it is done again, which changes
/// nothing.
const SURVEY_KEPT_MS: u64 = 60 * 1000;
const ANSWERS_STAY: Duration = Duration::from_secs(600);
/// The number of ended rollouts that the catalog keeps.
const KEPT: usize = 64;

/// The decision about a request.
pub(super) enum TakenUp {
    /// The request needs something that is not known yet.
    Later,
    Answered(Outcome),
}

fn is_old_survey(answer: &RequestAnswer, now_ms: u64) -> bool {
    let is_old = answer.unix_ms < now_ms.saturating_sub(SURVEY_KEPT_MS);
    is_old && answer.outcome.is_reported()
}

/// The reason why a request is not carried out.
pub enum Refusal {
    /// The reason, and what to do.
    Words(String),
    /// The request may succeed later.
    Busy(String),
}

fn words<T>(words: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::Words(words.into()))
}

impl From<String> for Refusal {
    fn from(words: String) -> Self {
        Refusal::Words(words)
    }
}

impl Step<'_> {
    pub fn take_up(&mut self, requests: &mut BTreeMap<RequestId, Request>) {
        let mut answered = BTreeSet::new();
        for (id, request) in requests.iter() {
            // The request was answered, and the coordinator ended before it removed the document.
            if self.model.work.answers.contains_key(id) && !is_planted(Bug::DoesTwice) {
                answered.insert(id.clone());
                continue;
            }
            let outcome = match self.take(id, request) {
                Ok(TakenUp::Later) => continue,
                Ok(TakenUp::Answered(outcome)) => outcome,
                Err(Refusal::Words(words)) => Outcome::Refused(words),
                Err(Refusal::Busy(words)) => Outcome::Busy(words),
            };
            let unix_ms = self.now.unix_ms;
            let answer = RequestAnswer { unix_ms, outcome };
            let answers = &mut self.model.work.edit().answers;
            answers.retain(|_, answer| !is_old_survey(answer, unix_ms));
            answers.insert(id.clone(), answer);
        }
        // Only committed answers count. These were found in the committed model.
        for id in &answered {
            requests.remove(id);
        }
        if !answered.is_empty() {
            self.actions
                .push(CoordinatorAction::ForgetRequests(answered));
        }
        self.summaries
            .retain(|_, summary| !matches!(summary, Summary::Failed(_)));
    }

    fn take(&mut self, id: &RequestId, request: &Request) -> Result<TakenUp, Refusal> {
        match request {
            Request::Swap {
                tables,
                options,
                force,
            } => self.take_swap(id, tables, options, *force),
            Request::Rollback { tables, options } => self.take_rollback(id, tables, options),
            Request::RollbackFrom {
                table,
                from,
                options,
            } => {
                self.check_serves(table, *from)?;
                self.take_rollback(id, &BTreeSet::from([table.clone()]), options)
            }
            Request::Join { who } => self.take_join(who),
            Request::Rebalance { plan } => self.take_rebalance(id, plan),
            Request::Upgrade { format } => {
                self.take_upgrade(*format)?;
                Ok(TakenUp::Answered(Outcome::Done))
            }
            Request::Cancel { rollout } => self.take_cancel(rollout),
            Request::Drop { table } => self.take_drop(table),
            Request::MakeLive {
                table,
                live,
                lowers,
                replicas,
            } => {
                let replicas = replicas.unwrap_or(REPLICAS);
                self.make_live(table, live, lowers, replicas)?;
                Ok(TakenUp::Answered(Outcome::Done))
            }
            Request::Load { table, load } => self.take_load(id, table, load),
            Request::ForceRecover { table, partitions } => {
                self.force_recover(table, partitions)?;
                Ok(TakenUp::Answered(Outcome::Done))
            }
            Request::LiveState {} => {
                let state = self.live_state()?;
                Ok(TakenUp::Answered(Outcome::LiveState(state)))
            }
            Request::Survey { tables } => {
                let survey = self.survey(tables)?;
                Ok(TakenUp::Answered(Outcome::Survey(survey)))
            }
            Request::Reads {} => Ok(TakenUp::Answered(Outcome::Reads(self.batch_reads()))),
            Request::Split { table, at } => {
                self.plan_split(table, at)?;
                Ok(TakenUp::Answered(Outcome::Done))
            }
            Request::Pause { node, for_ms } => self.take_pause(node, *for_ms),
            Request::Remove { node } => self.take_remove(node),
            Request::SetTiming { timing } => {
                has_timing(self.format)?;
                self.model.work.edit().timing = *timing;
                Ok(TakenUp::Answered(Outcome::Done))
            }
        }
    }

    fn take_swap(
        &mut self,
        id: &RequestId,
        tables: &BTreeMap<TableName, SwapTo>,
        options: &RolloutOptions,
        force: bool,
    ) -> Result<TakenUp, Refusal> {
        let mut parts = BTreeMap::new();
        let mut entries = Vec::new();
        for (table, to) in tables {
            self.refuse_live(table)?;
            self.refuse_busy(table)?;
            let version = to.version;
            let Some(summary) = self.summary(table, version).map_err(|problem| {
                format!("version {version} of table {table} cannot be read in the store: {problem}")
            })?
            else {
                return Ok(TakenUp::Later);
            };
            let known = self.model.table(table).cloned();
            let mut entry = match known {
                Some(entry) if entry.order == summary.order => entry,
                Some(entry) => return words(other_order(table, version, entry.order)),
                None => {
                    let wanted = in_bounds(to.replicas.unwrap_or(REPLICAS))?;
                    let layout = self.layout_for(table, &summary, wanted)?;
                    TableEntry::new(summary.order, layout, wanted)
                }
            };
            check_swap(table, to, &entry, force)?;
            entry.replicas = replicas(&self.model, table, to, &entry)?;
            let role = match to.replaces {
                Some(_) => RolloutRole::Replace,
                None => RolloutRole::Swap,
            };
            parts.insert(
                table.clone(),
                RolloutTable {
                    from: entry.serving,
                    to: version,
                    role,
                    keep: to.keep,
                    history: entry.history.clone(),
                },
            );
            entries.push((table.clone(), entry));
        }
        Ok(self.begin(id, parts, entries, options))
    }

    /// Refuses a rollback from a version that does not serve. [`Step::take_rollback`] checks
    /// whether a rollback is possible at all.
    fn check_serves(&self, table: &TableName, from: u64) -> Result<(), Refusal> {
        match self.model.table(table).and_then(|entry| entry.serving) {
            Some(serving) if serving != from => {
                let table = table.clone();
                words(
                    StoreError::ServesOther {
                        table,
                        from,
                        serving,
                    }
                    .to_string(),
                )
            }
            _ => Ok(()),
        }
    }

    fn take_rollback(
        &mut self,
        id: &RequestId,
        tables: &BTreeSet<TableName>,
        options: &RolloutOptions,
    ) -> Result<TakenUp, Refusal> {
        let mut parts = BTreeMap::new();
        let mut entries = Vec::new();
        for table in tables {
            self.refuse_live(table)?;
            let entry = self
                .model
                .table(table)
                .ok_or_else(|| no_table(table))?
                .clone();
            let Some(serving) = entry.serving else {
                return words(format!(
                    "table {table} serves nothing yet: there is nothing to go back to"
                ));
            };
            let Some(&to) = entry.history.last() else {
                return words(format!(
                    "before version {serving} of table {table} none served that is kept (--keep N of a push \
                     says how many versions stay): there is nothing to go back to"
                ));
            };
            self.make_way(table)?;
            if self.summary(table, to)?.is_none() {
                return Ok(TakenUp::Later);
            }
            parts.insert(
                table.clone(),
                RolloutTable {
                    from: Some(serving),
                    to,
                    role: RolloutRole::Rollback,
                    keep: usize::MAX,
                    history: entry.history.clone(),
                },
            );
            entries.push((table.clone(), entry));
        }
        Ok(self.begin(id, parts, entries, options))
    }

    fn begin(
        &mut self,
        request: &RequestId,
        tables: BTreeMap<TableName, RolloutTable>,
        entries: Vec<(TableName, TableEntry)>,
        options: &RolloutOptions,
    ) -> TakenUp {
        // A node that is down may still answer reads. The rollout waits for it, too, until it is
        // safe to leave it out.
        let nodes = self.model.all_nodes();
        let not_left = nodes.filter(|node| !matches!(node.state, NodeState::Left { .. }));
        let participants = not_left.map(|node| node.id).collect();
        let work = self.model.work.edit();
        let id = RolloutId(work.next_rollout);
        work.next_rollout += 1;
        let rollout = Rollout {
            id,
            request: request.clone(),
            tables,
            options: options.clone(),
            phase: Phase::Preparing,
            begun_unix_ms: self.now.unix_ms,
            committed: None,
            reverted: None,
            participants,
            verified: BTreeMap::new(),
            excluded: BTreeSet::new(),
            gave_way: false,
            reason: None,
        };
        work.rollouts.insert(id, rollout);
        for (table, mut entry) in entries {
            if self.model.table(&table).is_none() && self.format >= FORMAT_OF_REMAKES {
                entry.made = Some(id);
            }
            entry.rollout = Some(id);
            self.model.put_table(&table, entry);
        }
        TakenUp::Answered(Outcome::Rollout(id))
    }

    fn refuse_busy(&self, table: &TableName) -> Result<(), Refusal> {
        match self.model.work.rollout_of(table) {
            None => Ok(()),
            Some(rollout) => {
                let to = rollout.tables[table].to;
                Err(Refusal::Busy(format!(
                    "version {to} of table {table} is being rolled out: wait for it, or end it \
                     (forebay cluster cancel {})",
                    rollout.request
                )))
            }
        }
    }

    /// Ends a rollout that is still in preparation, so that a rollback need not wait for it.
    fn make_way(&mut self, table: &TableName) -> Result<(), Refusal> {
        let Some(rollout) = self.model.work.rollout_of(table) else {
            return Ok(());
        };
        if rollout.phase != Phase::Preparing {
            return self.refuse_busy(table);
        }
        let id = rollout.id;
        if let Some(rollout) = self.model.work.edit().rollouts.get_mut(&id) {
            rollout.gave_way = true;
        }
        self.abort(id, format!("table {table} was rolled back meanwhile"));
        Ok(())
    }

    /// Stores a node's certificate. A client that could write this request could write the catalog
    /// itself.
    fn take_join(&mut self, who: &Introduction) -> Result<TakenUp, Refusal> {
        if let Some(problem) = fits_not(&self.model, who).or_else(|| speaks_not(self.format, who)) {
            return words(problem);
        }
        let since_unix_ms = self.now.unix_ms;
        let entry = match self.model.node_named(&who.name) {
            None => {
                let id = self.model.work.edit().next_node();
                entry_of(id, who, NodeState::Left { since_unix_ms })
            }
            Some(known) if known.key == who.key => return Ok(TakenUp::Answered(Outcome::Done)),
            Some(known) if known.is_up() && known.peer != who.peer => {
                return words(format!(
                    "node {} runs already, at {}",
                    known.name, known.peer
                ));
            }
            Some(known) => NodeEntry {
                key: who.key.clone(),
                ..known.clone()
            },
        };
        self.model.put_node(entry);
        Ok(TakenUp::Answered(Outcome::Done))
    }

    fn take_cancel(&mut self, request: &RequestId) -> Result<TakenUp, Refusal> {
        self.model.work.can_cancel(request)?;
        if self.cancel_load(request) {
            return Ok(TakenUp::Answered(Outcome::Done));
        }
        let is_it = |rollout: &&Rollout| rollout.request == *request;
        let rollout = self.model.work.under_way().find(is_it);
        match rollout.map(|rollout| rollout.id) {
            Some(id) => self.abort(id, "it was cancelled".to_owned()),
            None => self.cancel_moving(),
        }
        Ok(TakenUp::Answered(Outcome::Done))
    }

    fn take_drop(&mut self, table: &TableName) -> Result<TakenUp, Refusal> {
        if self.model.table(table).is_none() {
            return words(no_table(table));
        }
        self.refuse_busy(table)?;
        self.drop_load(table);
        self.model.remove_table(table);
        for layout in unused(&self.model) {
            self.model.layouts.remove(&layout);
        }
        Ok(TakenUp::Answered(Outcome::Done))
    }

    fn take_pause(&mut self, node: &NodeName, for_ms: u64) -> Result<TakenUp, Refusal> {
        if Duration::from_millis(for_ms) > MOST_WAIT {
            let days = MOST_WAIT.as_secs() / 86_400;
            return words(format!("a node is paused for {days} days at most"));
        }
        let mut entry = self.model.known_node(node)?.clone();
        let until = self.now.unix_ms.saturating_add(for_ms);
        entry.paused_until_unix_ms = (for_ms > 0).then_some(until);
        self.model.put_node(entry);
        Ok(TakenUp::Answered(Outcome::Done))
    }

    fn take_remove(&mut self, node: &NodeName) -> Result<TakenUp, Refusal> {
        let id = self.model.known_node(node)?.id;
        if down_since(&self.model, id).is_none() {
            return words(format!("node {node} runs: stop it before it is removed"));
        }
        if is_listed(&self.model, id) {
            return words(format!(
                "node {node} is assigned parts of tables, so it cannot be removed: start it again, \
                 or start another node under its name, which fetches them again"
            ));
        }
        self.model.remove_node(id);
        self.model.work.edit().drained.remove(&id);
        self.received.remove(&id);
        Ok(TakenUp::Answered(Outcome::Done))
    }

    /// Removes old answers, rollouts and layouts. An answer stays while its request may be found
    /// again: otherwise the request would be carried out twice.
    pub fn tidy(&mut self, requests: &BTreeMap<RequestId, Request>) {
        for layout in unused(&self.model) {
            self.model.layouts.remove(&layout);
        }
        let work = &*self.model.work;
        let ended = work.rollouts.values();
        let ended = ended.filter(|rollout| rollout.phase.is_over());
        let ended: Vec<RolloutId> = ended.map(|rollout| rollout.id).collect();
        let over: Vec<RolloutId> = ended[..ended.len().saturating_sub(KEPT)].to_vec();
        // With the time of day alone, a clock that is an hour ahead would remove answers that were
        // just written.
        let is_tidying = self.now.since(self.took_over) >= ANSWERS_STAY;
        let oldest = self.now.unix_ms.saturating_sub(KEPT_MS);
        let old: Vec<RequestId> = work
            .answers
            .iter()
            .filter(|(id, answer)| answer.unix_ms < oldest && !requests.contains_key(id))
            .filter(|_| is_tidying)
            .map(|(id, _)| id.clone())
            .collect();
        let loads = work.loads.iter().filter(|load| load.stage.is_over());
        let loads = loads.count().saturating_sub(KEPT);
        if over.is_empty() && old.is_empty() && loads == 0 {
            return;
        }
        let work = self.model.work.edit();
        work.rollouts.retain(|id, _| !over.contains(id));
        work.answers.retain(|id, _| !old.contains(id));
        let mut left = loads;
        work.loads.retain(|load| {
            let goes = left > 0 && load.stage.is_over();
            left -= usize::from(goes);
            !goes
        });
    }
}

fn check_swap(
    table: &TableName,
    to: &SwapTo,
    entry: &TableEntry,
    force: bool,
) -> Result<(), String> {
    let version = to.version;
    if entry.bad.contains(&version) && !force {
        return Err(format!(
            "version {version} of table {table} was rolled back from: forebay swap {table}@{version} --force lets it serve all the same"
        ));
    }
    match (to.replaces, entry.serving) {
        (Some(replaced), serving) if serving != Some(replaced) => Err(format!(
            "version {replaced} of table {table} serves no longer, so version {version} cannot take its place"
        )),
        _ => Ok(()),
    }
}

fn replicas(
    model: &Model,
    table: &TableName,
    to: &SwapTo,
    entry: &TableEntry,
) -> Result<usize, String> {
    let wanted = in_bounds(to.replicas.unwrap_or(entry.replicas))?;
    if entry.serving.is_some() && wanted != entry.replicas {
        return Err(format!(
            "table {table} has {} replicas, and a push does not change that: leave --replicas away, or change \
             it first (forebay cluster replicas {table} {wanted})",
            entry.replicas
        ));
    }
    match model.layouts.contains_key(&entry.layout) {
        true => Ok(wanted),
        false => Err(format!(
            "table {table} has no layout: the catalog is damaged"
        )),
    }
}

pub(super) fn in_bounds(replicas: usize) -> Result<usize, String> {
    match (1..=MOST_REPLICAS).contains(&replicas) {
        true => Ok(replicas),
        false => Err(format!(
            "{replicas} replicas: a table has 1 to {MOST_REPLICAS}"
        )),
    }
}

fn is_listed(model: &Model, node: NodeId) -> bool {
    model
        .used_layouts()
        .flat_map(|(_, layout)| layout.ranges())
        .any(|range| {
            let mut holders = range.holders(usize::MAX);
            holders.any(|id| id == node)
        })
}

fn other_order(table: &TableName, version: u64, order: Order) -> String {
    let (is, other) = match order {
        Order::Hashed => ("hashed", "ordered"),
        Order::Ordered => ("ordered", "hashed"),
    };
    format!(
        "table {table} is {is}, and version {version} is {other}: a table of a cluster keeps its order; push it \
         under another name, or drop the table first"
    )
}

fn no_table(table: &TableName) -> String {
    format!("the cluster has no table {table}")
}
