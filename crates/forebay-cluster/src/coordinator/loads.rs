//! Loads into live tables: replicas fetch the runs, then the groups add them.
//!
//! First the nodes fetch the runs of their partitions. When a majority of each partition's replicas
//! has its run, and every other replica that is expected to get it has it, adding begins. The
//! leaders propose the load. So a problem shows before anything is added. Once adding has begun, a
//! load cannot be cancelled.
//!
//! The load has ended when a majority of each partition has added it, and so has every other
//! replica that is expected to. From then on the store need not keep the runs. A replica that did
//! not get its run by then reports that. The coordinator replaces it with a new peer once a
//! majority works without it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use forebay_engine::{PartitionId, TableName};

use super::Step;
use super::groups::GroupWatch;
use super::requests::{Refusal, TakenUp};
use crate::ids::NodeId;
use crate::lost_majority::LostPartition;
use crate::measures::reports::LoadedState;
use crate::model::{
    EndedLoad, GroupEntry, LoadDraft, LoadStage, Model, Outcome, PeerEntry, PeerState, RequestId,
    TableLoad, fresh_id,
};

/// What the coordinator knows of loads beyond the catalog. For each load: the number of finished
/// replicas, the bytes that the others have fetched, and when either last changed.
#[derive(Debug, Default)]
pub struct LoadWatch(BTreeMap<u64, ((usize, u64), Duration)>);

/// The progress of a load's partitions in its present stage.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct LoadProgress {
    /// Replicas that have finished the stage, and all replicas.
    pub ready_replicas: usize,
    pub replicas: usize,
    /// Partitions that have a leader and a majority of finished voters, and all partitions.
    pub settled: usize,
    pub partitions: usize,
    /// Bytes that unfinished replicas have fetched.
    pub coming_bytes: u64,
    /// Whether an unfinished replica is still expected to finish.
    waits: bool,
    /// Nodes that are down and have replicas of partitions without a finished majority.
    pub down: BTreeSet<NodeId>,
    /// A problem that a node reports.
    failed: Option<String>,
}

impl LoadProgress {
    pub fn of(model: &Model, watch: &GroupWatch, load: &TableLoad) -> Self {
        let mut progress = Self::default();
        let groups = model.groups.get(&load.table);
        let groups = groups.into_iter().flat_map(|groups| groups.all());
        for group in groups.filter(|group| load.has(group.partition)) {
            progress.add(model, watch, load, group);
        }
        progress
    }

    fn add(&mut self, model: &Model, watch: &GroupWatch, load: &TableLoad, group: &GroupEntry) {
        let leading = watch.leading(group.group);
        let leading = leading.filter(|leading| is_up(model, leading.node));
        let votes = |peer: &PeerEntry| {
            leading.is_some_and(|leading| leading.lead.members.voters.contains(&peer.peer))
        };
        let (mut ready_replicas, mut voters) = (0, 0);
        let (mut replicas_there, mut replicas) = (0, 0);
        for peer in group.staying() {
            replicas += 1;
            voters += usize::from(votes(peer));
            let report = watch.report(group.group, peer);
            let position = report.and_then(|report| report.load.as_ref());
            let position = position.filter(|position| position.load == load.number);
            let state = position.map(|position| &position.state);
            let is_there = match state {
                Some(LoadedState::Added) => true,
                Some(LoadedState::Here) => load.stage == LoadStage::Fetching,
                Some(LoadedState::Coming(_) | LoadedState::Failed(_)) | None => false,
            };
            replicas_there += usize::from(is_there);
            ready_replicas += usize::from(is_there && votes(peer));
            self.waits |= !is_there && is_expected(model, peer);
            if let Some(LoadedState::Coming(bytes)) = state {
                self.coming_bytes = self.coming_bytes.saturating_add(*bytes);
            }
            if let Some(LoadedState::Failed(problem)) = state {
                let node = model.node_name(peer.node);
                let words = format!("node {node}, partition {}: {problem}", group.partition);
                self.failed.get_or_insert(words);
            }
        }
        self.ready_replicas += replicas_there;
        self.replicas += replicas;
        self.partitions += 1;
        debug_assert!(
            ready_replicas <= voters && voters <= replicas && replicas_there <= replicas,
            "of {replicas} replicas {voters} vote, and {replicas_there} are there"
        );
        let is_settled = 2 * ready_replicas > voters;
        self.settled += usize::from(is_settled);
        let nodes = group.staying().map(|peer| peer.node);
        self.down
            .extend(nodes.filter(|node| !is_settled && !is_up(model, *node)));
    }

    /// Returns whether the stage has ended. `waited` is the time without progress. After the grace
    /// period only a majority must have finished.
    fn is_settled(&self, waited: Duration, grace: Duration) -> bool {
        self.settled == self.partitions && (!self.waits || waited >= grace)
    }
}

/// Returns whether a replica is made, on a node that is up.
fn is_expected(model: &Model, peer: &PeerEntry) -> bool {
    is_up(model, peer.node) && peer.state == PeerState::Made
}

fn is_up(model: &Model, node: NodeId) -> bool {
    model.node(node).is_some_and(|node| node.is_up())
}

impl Step<'_> {
    pub(super) fn take_load(
        &mut self,
        id: &RequestId,
        table: &TableName,
        draft: &LoadDraft,
    ) -> Result<TakenUp, Refusal> {
        if let Some(load) = self.model.work.load_of(table) {
            return Err(Refusal::Busy(is_under_way(load)));
        }
        self.check_load(table, draft)?;
        if self.is_being_split(table) {
            return Err(Refusal::Busy(format!(
                "a partition of table {table} is being split: wait for that (forebay cluster \
                 status), then load again"
            )));
        }
        let work = self.model.work.edit();
        let number = fresh_id(work.next_load, self.term);
        work.next_load = number + 1;
        work.loads.push(TableLoad {
            number,
            request: id.clone(),
            table: table.clone(),
            draft: draft.clone(),
            stage: LoadStage::Fetching,
            begun_unix_ms: self.now.unix_ms,
            reason: None,
        });
        Ok(TakenUp::Answered(Outcome::Load(number)))
    }

    /// Checks that the table's partitions are those for which the load was made, and that they can
    /// accept it.
    fn check_load(&self, table: &TableName, draft: &LoadDraft) -> Result<(), Refusal> {
        let groups = self.model.groups.get(table);
        let groups = groups.ok_or_else(|| format!("the cluster has no live table {table}"))?;
        for loaded in &draft.partitions {
            let mut groups = groups.all();
            let is_it = |group: &&GroupEntry| {
                (group.partition, group.epoch) == (loaded.partition, loaded.epoch)
            };
            let group = groups.find(is_it).ok_or_else(|| {
                let problem = "was split while the load was built: load again";
                Refusal::Busy(format!("table {table} {problem}"))
            })?;
            self.check_majority(table, group)?;
        }
        Ok(())
    }

    fn check_majority(&self, table: &TableName, group: &GroupEntry) -> Result<(), String> {
        let (mut voters, mut up) = (0, 0);
        for peer in group.staying() {
            voters += 1;
            up += usize::from(is_up(&self.model, peer.node));
        }
        // While a plan is carried out, some nodes that are up have nothing of it yet.
        let is_lost = LostPartition::of(&self.model, self.groups, table, group).is_some();
        match 2 * up > voters && !is_lost {
            true => Ok(()),
            false => Err(format!(
                "partition {} of table {table} has no majority: {up} of its {voters} replicas are on nodes that are \
                 up, or some of these have nothing of it: start the others (forebay cluster status), then load again",
                group.partition
            )),
        }
    }

    /// Cancels a load if that is still possible. Returns whether the request is that of a load.
    pub(super) fn cancel_load(&mut self, request: &RequestId) -> bool {
        let mut loads = self.model.work.loads.iter();
        let load = loads.find(|load| load.request == *request);
        let number = load.map(|load| load.number);
        if let Some(number) = number {
            self.end_load(number, Err("it was cancelled".to_owned()));
        }
        number.is_some()
    }

    /// Ends the load into a table that is dropped.
    pub(super) fn drop_load(&mut self, table: &TableName) {
        let number = self.model.work.load_of(table).map(|load| load.number);
        if let Some(number) = number {
            self.end_load(number, Err("the table was dropped".to_owned()));
        }
    }

    /// Advances all loads as far as possible now.
    pub fn keep_loads(&mut self) {
        let under_way = self.model.work.loads.iter();
        let under_way = under_way.filter(|load| !load.stage.is_over());
        let all: Vec<TableLoad> = under_way.cloned().collect();
        self.loads
            .0
            .retain(|number, _| all.iter().any(|load| load.number == *number));
        for load in all {
            self.keep_load(&load);
        }
    }

    fn keep_load(&mut self, load: &TableLoad) {
        let progress = LoadProgress::of(&self.model, self.groups, load);
        let now = self.now.monotonic;
        let known = self.loads.0.entry(load.number);
        let come = (progress.ready_replicas, progress.coming_bytes);
        let (known, since) = known.or_insert((come, now));
        if *known != come {
            (*known, *since) = (come, now);
        }
        let waited = now.saturating_sub(*since);
        let is_settled = progress.is_settled(waited, self.model.timing().load_grace());
        match load.stage {
            LoadStage::Fetching => match progress.failed {
                Some(problem) => self.end_load(load.number, Err(problem)),
                None if is_settled => self.add_load(load.number),
                None if waited >= Duration::from_millis(load.draft.deadline_ms) => {
                    let problem = self.missing(load, &progress);
                    self.end_load(load.number, Err(problem));
                }
                None => {}
            },
            LoadStage::Adding if is_settled => self.end_load(load.number, Ok(())),
            LoadStage::Adding | LoadStage::Done | LoadStage::Stopped => {}
        }
    }

    fn missing(&self, load: &TableLoad, progress: &LoadProgress) -> String {
        let first = self.first_unsettled(load);
        let first = first.map_or_else(String::new, |first| format!(", the first of them {first}"));
        let seconds = load.draft.deadline_ms / 1000;
        if progress.settled == progress.partitions {
            return format!(
                "nothing came for {seconds} s: each partition has it on a majority of its replicas, and {} of {} \
                 replicas, on nodes that are up or died a moment ago, have not: look at forebay cluster status, or give \
                 it more time (--deadline)",
                progress.replicas - progress.ready_replicas,
                progress.replicas
            );
        }
        let down = progress.down.iter().map(|node| self.model.node_name(*node));
        let down: Vec<String> = down.collect();
        let down = match down.is_empty() {
            true => String::new(),
            false => format!(", and of their nodes {} are down", down.join(", ")),
        };
        format!(
            "nothing came for {seconds} s: {} of {} partitions have no leader, or have it on no majority of their \
             replicas{first}{down}: look at forebay cluster status and the logs of the nodes",
            progress.partitions - progress.settled,
            progress.partitions
        )
    }

    fn first_unsettled(&self, load: &TableLoad) -> Option<PartitionId> {
        let mut groups = self.model.groups.get(&load.table)?.all();
        let group = groups.find(|group| {
            let mut progress = LoadProgress::default();
            progress.add(&self.model, self.groups, load, group);
            load.has(group.partition) && progress.settled == 0
        });
        group.map(|group| group.partition)
    }

    fn add_load(&mut self, number: u64) {
        self.loads.0.remove(&number);
        self.change_load(number, |load| load.stage = LoadStage::Adding);
    }

    fn end_load(&mut self, number: u64, outcome: Result<(), String>) {
        let is_added = outcome.is_ok();
        let table = self.change_load(number, |load| {
            load.stage = match is_added {
                true => LoadStage::Done,
                false => LoadStage::Stopped,
            };
            load.reason = outcome.err();
        });
        let Some(table) = table else {
            return;
        };
        if let Some(mut entry) = self.model.table(&table).cloned()
            && let Some(live) = &mut entry.live
        {
            live.last_load = EndedLoad { number, is_added };
            self.model.put_table(&table, entry);
        }
    }

    fn change_load(
        &mut self,
        number: u64,
        change: impl FnOnce(&mut TableLoad),
    ) -> Option<TableName> {
        let mut loads = self.model.work.edit().loads.iter_mut();
        let load = loads.find(|load| load.number == number)?;
        change(load);
        Some(load.table.clone())
    }
}

/// Returns the refusal of a second load into the table.
fn is_under_way(load: &TableLoad) -> String {
    let TableLoad { table, request, .. } = load;
    format!(
        "another load of table {table} is under way: wait for it (forebay cluster status), or end it (forebay cluster \
         cancel {request}), which it allows until it is being added"
    )
}
