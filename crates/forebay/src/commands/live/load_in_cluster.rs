//! `forebay load` of runs into a live table of a cluster.
//!
//! The command reads and sorts the rows. With a plan, the table's partitions are then split and
//! moved. The runs are built and staged in the store, and the nodes fetch and add them. These are
//! the phases of the Planned Bulk paper (section 3.3).

use std::sync::Arc;
use std::time::Duration;

use forebay_cluster::client::{ClientError, ClusterPointers, RequestEnd};
use forebay_cluster::model::{
    GroupEntry, LoadDraft, LoadStage, LoadedPartition, Model, MovePlan, RolloutOptions, TableLoad,
};
use forebay_cluster::planning::{PlanningError, SLOW_PACE, slowest_pace};
use forebay_cluster::request::Request;
use forebay_engine::live::{LiveOptions, Load, LoadError, LoadTurn};
use forebay_engine::{PartitionId, PartitionRange, RunRef, Store, StoreError, TableName};
use forebay_load::load::{BuiltLoad, LoadReport, LoadRequest, LoadSample, build_load};
use forebay_plan::insert::Mode;

use super::index_loads::{IndexArg, PooledLoad, pooled};
use super::insert_planning::{
    PlanningArgs, Search, best_verdict, carry_out, insert_figures, known_paces, plan_insert,
    verdict_words,
};
use crate::cluster_handle::Drawing;
use crate::context::Context;

/// The time between two checks whether another load of the table is still being built.
const TURN: Duration = Duration::from_secs(1);

/// A live table of a cluster, with the partitions that a load is divided by.
pub struct LoadInCluster {
    pub(in crate::commands) cluster: Arc<ClusterPointers>,
    pub(in crate::commands) options: LiveOptions,
    pub(in crate::commands) deadline: Option<Duration>,
    plan: LoadPlan,
}

/// Whether to skip a plan that takes longer than it saves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IfWorth {
    Only,
    OrNot,
}

/// What to do with the table's partitions before rows are added.
#[derive(Debug, Clone)]
pub enum LoadPlan {
    Nothing,
    /// A plan that the planner makes from the rows read.
    Auto(PlanningArgs, IfWorth),
    /// A plan from a file of `plan insert`.
    Made(Box<MovePlan>),
}

impl LoadInCluster {
    /// Reports before anything is read what the cluster would refuse. `None`: the table is not a
    /// live table of the cluster, or the store does not belong to a cluster.
    pub fn find(
        table: &TableName,
        (deadline, plan): (Option<Duration>, &LoadPlan),
        context: &Context,
        drawing: &Drawing,
    ) -> anyhow::Result<Option<Self>> {
        if !context.is_live_in_cluster(table)? {
            return Ok(None);
        }
        let cluster = context.cluster_drawn(drawing)?;
        let (_, model) = cluster.client().model()?;
        let found = model.table(table).and_then(|entry| entry.live());
        let Some(live) = found else {
            return Ok(None);
        };
        let moving = model.work.moving().filter(|moving| !moving.has_moved());
        if let (Some(moving), LoadPlan::Made(_)) = (moving, plan) {
            return Err(PlanningError::Moving(moving.request.clone()).into());
        }
        Ok(Some(Self {
            options: live.options.clone(),
            cluster,
            deadline,
            plan: plan.clone(),
        }))
    }

    /// Waits until no other load of a table is running and, before a plan of its own, until no
    /// other plan is.
    fn wait_for_turn(&self, table: &TableName, drawing: &Drawing) -> anyhow::Result<()> {
        let client = self.cluster.client();
        let waits = |load: &TableLoad| {
            drawing.message(&format!(
                "another load of {table} is under way ({}): this one waits until it is over",
                load.request
            ));
        };
        client.wait_for_load(table, waits)?;
        if matches!(self.plan, LoadPlan::Auto(..)) {
            let (_, model) = client.model()?;
            let moving = model.work.moving().filter(|moving| !moving.has_moved());
            if let Some(moving) = moving {
                drawing.message(&format!(
                    "plan {} is being carried out (forebay cluster watch): the load waits until it has moved all",
                    moving.request
                ));
                client.wait_until_moved(&moving.request)?;
            }
        }
        Ok(())
    }

    /// Builds the load and those of indexes, and has the cluster add them, the table's first.
    /// Returns when all partitions have them, with a report for each table.
    pub fn carry_out(
        &self,
        request: &LoadRequest,
        indexes: &[IndexArg],
        context: &Context,
        drawing: &Drawing,
    ) -> anyhow::Result<Vec<LoadReport>> {
        let started = context.clock.monotonic();
        let store = context.open_to_merge(drawing)?;
        let (_, model) = self.cluster.client().model()?;
        let mut loads = pooled(indexes, request, &model)?;
        loads.push(PooledLoad {
            request: request.clone(),
            options: self.options.clone(),
        });
        // All loads keep their rows until the last one is read.
        let share = request.memory_bytes / loads.len() as u64;
        for load in &mut loads {
            load.request.memory_bytes = share;
        }
        let mut reports = Vec::new();
        let with = (&store, context, drawing);
        self.load_within(&loads, &mut Vec::new(), with, &mut reports)?;
        // The innermost load was added first.
        reports[1..].reverse();
        for report in &mut reports {
            report.took(context.clock.monotonic() - started);
        }
        Ok(reports)
    }

    /// Reads and sorts the first of these loads, then runs all others, and then builds and adds the
    /// first. So all are read before one plan is made for all, and the last one is added first.
    fn load_within(
        &self,
        loads: &[PooledLoad],
        sampled: &mut Vec<(TableName, LoadSample)>,
        with: (&Store, &Context, &Drawing),
        reports: &mut Vec<LoadReport>,
    ) -> anyhow::Result<()> {
        let Some((PooledLoad { request, options }, others)) = loads.split_first() else {
            sampled.reverse();
            return self.carry_out_plan(sampled, with.1, with.2);
        };
        let (store, _, drawing) = with;
        let table = &request.table;
        // Only the first load waits for its turn: another command may wait for that load.
        let (load, mut groups) = match sampled.is_empty() {
            true => self.begin_in_turn(table, options, with)?,
            false => {
                let turn = store.take_load_turn(table)?;
                let staged = self.stage_unless_loading(turn, table, options, store)?;
                staged.ok_or_else(|| {
                    let why = "another load of it is under way: wait for that (forebay cluster watch), then load again";
                    not_added(table, why.to_owned())
                })?
            }
        };
        let mut is_of_others = false;
        let repartition = |sample: LoadSample| -> anyhow::Result<_> {
            sampled.push((table.clone(), sample));
            let others = self.load_within(others, sampled, with, reports);
            is_of_others = others.is_err();
            others?;
            groups = self.groups(table)?;
            Ok(Some(ranges(&groups)))
        };
        let built = build_load(request, store, load, &***drawing, repartition);
        let built = built.map_err(|error| match others.is_empty() || is_of_others {
            true => error,
            false => error.context(format!("index {table}")),
        })?;
        let has = reports.iter().map(|report| report.table.to_string());
        let has: Vec<String> = has.collect();
        let added = self.add(built, &groups);
        let added = added.map_err(|error| match has.is_empty() {
            true => error,
            false => error.context(format!(
                "{} has the rows by now, and index {table} lacks them: load it alone (forebay load {table} with the \
                 index's --key), or give the same command again: rows that are there are written once more",
                has.join(", ")
            )),
        });
        reports.push(added?);
        Ok(())
    }

    /// Begins to stage a load once no other load of the table is running, divided by the groups
    /// that the table has then.
    pub fn begin(
        &self,
        table: &TableName,
        with: (&Store, &Context, &Drawing),
    ) -> anyhow::Result<(Load, Vec<GroupEntry>)> {
        self.begin_in_turn(table, &self.options, with)
    }

    fn begin_in_turn(
        &self,
        table: &TableName,
        options: &LiveOptions,
        (store, context, drawing): (&Store, &Context, &Drawing),
    ) -> anyhow::Result<(Load, Vec<GroupEntry>)> {
        let mut is_first = true;
        loop {
            self.wait_for_turn(table, drawing)?;
            match store.take_load_turn(table) {
                Err(error @ LoadError::Busy { .. }) => {
                    if std::mem::take(&mut is_first) {
                        drawing.message(&format!("{error}: this load waits until it is over"));
                    }
                    context.clock.sleep(TURN);
                }
                turn => {
                    if let Some(staged) = self.stage_unless_loading(turn?, table, options, store)? {
                        return Ok(staged);
                    }
                }
            }
        }
    }

    /// `None`: the cluster is still adding a load of the table whose command has ended, and needs
    /// its staged files.
    fn stage_unless_loading(
        &self,
        turn: LoadTurn,
        table: &TableName,
        options: &LiveOptions,
        store: &Store,
    ) -> anyhow::Result<Option<(Load, Vec<GroupEntry>)>> {
        let (_, model) = self.cluster.client().model()?;
        if model.work.load_of(table).is_some() {
            return Ok(None);
        }
        let groups = groups_of(&model, table);
        let load = store.stage_load(turn, options, ranges(&groups))?;
        Ok(Some((load, groups)))
    }

    /// Has the plan carried out, if there is one. Returns the groups that the table has then.
    pub fn make_ready(
        &self,
        table: &TableName,
        sample: &LoadSample,
        context: &Context,
        drawing: &Drawing,
    ) -> anyhow::Result<Vec<GroupEntry>> {
        self.carry_out_plan(&[(table.clone(), sample.clone())], context, drawing)?;
        self.groups(table)
    }

    /// Stages the built load for these groups, and has the cluster add it. Returns when all
    /// partitions have it.
    pub fn add(&self, built: BuiltLoad, groups: &[GroupEntry]) -> anyhow::Result<LoadReport> {
        let BuiltLoad { load, runs, report } = built;
        self.add_runs(&report.table, load, &runs, groups)?;
        Ok(report)
    }

    /// As `add`, for runs that already exist.
    pub fn add_runs(
        &self,
        table: &TableName,
        load: Load,
        runs: &[(PartitionId, RunRef)],
        groups: &[GroupEntry],
    ) -> anyhow::Result<()> {
        let draft = self.stage(&load, runs, groups)?;
        // A load without rows has nothing that partitions could add.
        match draft.partitions.is_empty() {
            true => Ok(()),
            false => self.submit(table, draft, load),
        }
    }

    fn carry_out_plan(
        &self,
        sampled: &[(TableName, LoadSample)],
        context: &Context,
        drawing: &Drawing,
    ) -> anyhow::Result<()> {
        let plan = match &self.plan {
            LoadPlan::Nothing => return self.wait_for_splits(sampled, drawing),
            LoadPlan::Made(plan) => MovePlan::clone(plan),
            LoadPlan::Auto(..) if sampled.iter().all(|(_, sample)| sample.rows == 0) => {
                return Ok(());
            }
            LoadPlan::Auto(args, if_worth) => {
                let only_if_worth = *if_worth == IfWorth::Only;
                // For a small load no node needs to be asked for its copy rate.
                if only_if_worth && !self.may_be_worth(sampled, SLOW_PACE, drawing)? {
                    return self.wait_for_splits(sampled, drawing);
                }
                let paces = known_paces(&self.cluster, context)?;
                if only_if_worth && !self.may_be_worth(sampled, slowest_pace(&paces), drawing)? {
                    return self.wait_for_splits(sampled, drawing);
                }
                let search = Search {
                    mode: Mode::Fast,
                    time: Duration::ZERO,
                };
                let (_, made) =
                    plan_insert(&self.cluster, sampled, (args, &paces), search, context)?;
                let figures = insert_figures(&made);
                let verdict = verdict_words(&made, only_if_worth);
                let verdict = verdict.map_or(String::new(), |words| format!("; {words}"));
                drawing.message(&format!("plan: {figures}{verdict}"));
                match made.verdict.is_worth() || *if_worth == IfWorth::OrNot {
                    true => made.proposal.plan,
                    false => return self.wait_for_splits(sampled, drawing),
                }
            }
        };
        match plan.batches.is_empty() {
            true => Ok(()),
            false => carry_out(&self.cluster, plan),
        }
    }

    /// Returns whether some plan could be worth it, judged by where the rows go now.
    fn may_be_worth(
        &self,
        sampled: &[(TableName, LoadSample)],
        bytes_per_s: u64,
        drawing: &Drawing,
    ) -> anyhow::Result<bool> {
        let best = best_verdict(&self.cluster, sampled, bytes_per_s)?;
        if !best.is_worth() {
            drawing.message(&format!(
                "plan: none, as none could save enough: at best the load would take {:.1} s less",
                best.saves.as_secs_f64()
            ));
        }
        Ok(best.is_worth())
    }

    /// Waits until the splits of others are complete. Runs must be built after them: a run of the
    /// parent partition does not fit its children.
    fn wait_for_splits(
        &self,
        sampled: &[(TableName, LoadSample)],
        drawing: &Drawing,
    ) -> anyhow::Result<()> {
        for (table, _) in sampled {
            let waits = || {
                drawing.message(&format!(
                    "partitions of {table} are being split (forebay cluster watch): the load continues after that"
                ));
            };
            self.cluster.client().wait_for_splits(table, waits)?;
        }
        Ok(())
    }

    fn groups(&self, table: &TableName) -> anyhow::Result<Vec<GroupEntry>> {
        let (_, model) = self.cluster.client().model()?;
        Ok(groups_of(&model, table))
    }

    fn stage(
        &self,
        load: &Load,
        runs: &[(PartitionId, RunRef)],
        groups: &[GroupEntry],
    ) -> anyhow::Result<LoadDraft> {
        let (id, sum) = load.stage(runs)?;
        let rows = runs.iter().map(|(_, run)| run.summary.records);
        let bytes = runs.iter();
        let bytes = bytes.map(|(_, run)| run.summary.file_bytes + run.summary.ext_bytes);
        let has_run = |group: &&GroupEntry| {
            let mut runs = runs.iter();
            runs.any(|(partition, _)| *partition == group.partition)
        };
        let loaded = groups.iter().filter(has_run);
        let loaded = loaded.map(|group| LoadedPartition {
            partition: group.partition,
            epoch: group.epoch,
        });
        let deadline = self.deadline.map(|time| time.as_millis() as u64);
        Ok(LoadDraft {
            id,
            sum,
            partitions: loaded.collect(),
            rows: rows.sum(),
            bytes: bytes.sum(),
            deadline_ms: deadline.unwrap_or(RolloutOptions::default().deadline_ms),
        })
    }

    /// Keeps the staged files if the outcome is unknown.
    fn submit(&self, table: &TableName, draft: LoadDraft, load: Load) -> anyhow::Result<()> {
        let request = Request::Load {
            table: table.clone(),
            load: Box::new(draft),
        };
        match self.cluster.client().carry_out(&request) {
            Ok(RequestEnd::Load(ended)) => Ok(outcome(&ended)?),
            Ok(_) => {
                let why = "internal error: the cluster answered another kind of request; see \
                           `forebay cluster status`";
                Err(not_added(table, why.to_owned()).into())
            }
            Err(error @ (ClientError::Catalog(_) | ClientError::Deserted { .. })) => {
                load.leave();
                let problem = format!(
                    "{error}; it is unknown whether the cluster continues the load: forebay cluster status shows it \
                     while it does"
                );
                Err(StoreError::Unheard { problem }.into())
            }
            Err(error @ ClientError::Busy(_)) => Err(error.into()),
            Err(error) => Err(not_added(table, error.to_string()).into()),
        }
    }
}

fn groups_of(model: &Model, table: &TableName) -> Vec<GroupEntry> {
    let groups = model.groups.get(table).into_iter();
    groups.flat_map(|groups| groups.all().cloned()).collect()
}

fn outcome(load: &TableLoad) -> Result<(), LoadError> {
    match load.stage {
        LoadStage::Done => Ok(()),
        _ => {
            let why = load.reason.clone().unwrap_or_default();
            Err(not_added(&load.table, why))
        }
    }
}

fn not_added(table: &TableName, why: String) -> LoadError {
    let table = table.clone();
    LoadError::Refused { table, why }
}

/// Returns the partitions of groups.
pub fn ranges(groups: &[GroupEntry]) -> Vec<PartitionRange> {
    let range = |group: &GroupEntry| PartitionRange {
        id: group.partition,
        bounds: group.bounds.clone(),
    };
    groups.iter().map(range).collect()
}
