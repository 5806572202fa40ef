//! A push into the store of a cluster.
//!
//! It refuses what the cluster would refuse, divides tables where the cluster does, and reports the
//! rollout.

use std::sync::Arc;

use anyhow::bail;
use forebay_cluster::REPLICAS;
use forebay_cluster::client::{ClusterPointers, RolloutDraft};
use forebay_cluster::model::{Layout, LayoutName, Model};
use forebay_engine::StoreError;
use forebay_load::push::{PushReport, PushRequest};
use forebay_run::Order;

use crate::printing::human;
use crate::rollout_result::RolloutResult;

/// A push into the store of a cluster.
#[derive(Debug)]
pub struct PushInCluster {
    cluster: Arc<ClusterPointers>,
    /// Whether the push is the first one of an ordered table, which creates its layout.
    lays_out: bool,
}

impl PushInCluster {
    /// Reports before anything is read what the cluster would refuse, and divides the table where
    /// its nodes divide it.
    pub fn begin(
        cluster: Arc<ClusterPointers>,
        request: &mut PushRequest,
        draft: &RolloutDraft,
    ) -> anyhow::Result<Self> {
        let (_, model) = cluster.client().model()?;
        let known = model.table(&request.table);
        if known.is_some_and(|entry| entry.live().is_some()) {
            let table = &request.table;
            bail!(
                "{table} is a live table: clients write to it, and it has no versions; push to another name"
            );
        }
        check_min_replicas(&model, request, draft)?;
        check_order(&model, request)?;
        if request.swap {
            check_swap(&cluster, &model, request, draft)?;
        }
        let name = known.map_or_else(|| layout_name(request), |entry| entry.layout.clone());
        let layout = model.layouts.get(&name);
        let ranges = layout.into_iter().flat_map(Layout::ranges);
        request.cuts = ranges.map(|range| range.lower.clone()).collect();
        // Each node that has some of a partition's range has the whole partition.
        request.always_cut = known.is_some_and(|entry| entry.by_range);
        let is_new = model.table(&request.table).is_none();
        let lays_out = is_new && request.order == Order::Ordered;
        Ok(Self { cluster, lays_out })
    }

    /// Returns which nodes have the version that the push rolled out.
    pub fn rolled_out(&self) -> anyhow::Result<Option<RolloutResult>> {
        let Some(rollout) = self.cluster.rollouts().pop() else {
            return Ok(None);
        };
        let (_, model) = self.cluster.client().model()?;
        Ok(Some(RolloutResult::of(&rollout, &model)))
    }

    /// Returns what later versions keep of the layout that the first push of an ordered table
    /// created.
    pub fn first_ranges(&self, report: &PushReport) -> anyhow::Result<Option<String>> {
        if !self.lays_out || !report.swapped {
            return Ok(None);
        }
        let (_, model) = self.cluster.client().model()?;
        let name = LayoutName::Table(report.table.clone());
        let ranges = model
            .layouts
            .get(&name)
            .map(|layout| layout.ranges().count());
        Ok(ranges.map(|ranges| {
            format!(
                "table {} is ordered and new: its nodes divide it into {}, by the partitions of this version, and later \
                 versions are divided so, too. If it is to be much larger: push it then with --partitions N, and \
                 forebay cluster rebalance divides it again",
                report.table,
                human::counted(ranges as u64, "range")
            )
        }))
    }
}

/// Returns the layout's name for a new table.
fn layout_name(request: &PushRequest) -> LayoutName {
    match request.order {
        Order::Hashed => LayoutName::Main,
        Order::Ordered => LayoutName::Table(request.table.clone()),
    }
}

fn check_min_replicas(
    model: &Model,
    request: &PushRequest,
    draft: &RolloutDraft,
) -> anyhow::Result<()> {
    let table = &request.table;
    let wanted = draft.replicas.unwrap_or(REPLICAS);
    let replicas = model.table(table).map_or(wanted, |entry| entry.replicas);
    match draft.options.min_replicas {
        Some(least) if least > replicas => wrong!(
            "--min-replicas {least}: table {table} has {replicas} replicas, so it is 1 to {replicas}"
        ),
        _ => Ok(()),
    }
}

/// Checks the order of the table. A version of the other order could never serve. A push with
/// --onto has the order of that version.
fn check_order(model: &Model, request: &PushRequest) -> anyhow::Result<()> {
    let table = &request.table;
    let order = match model.table(table) {
        Some(entry) if request.onto.is_none() && entry.order != request.order => entry.order,
        _ => return Ok(()),
    };
    let order = match order {
        Order::Hashed => "hashed",
        Order::Ordered => "ordered",
    };
    wrong!(
        "table {table} is {order}, and a table of a cluster keeps its order: push it with --order {order}, or under \
         another name, or drop the table first (forebay drop {table})"
    )
}

fn check_swap(
    cluster: &ClusterPointers,
    model: &Model,
    request: &PushRequest,
    draft: &RolloutDraft,
) -> anyhow::Result<()> {
    let table = &request.table;
    if model.all_nodes().next().is_none() {
        bail!(
            "cluster {} has no nodes yet: start some (forebay serve --cluster), or push with --no-swap",
            cluster.client().identity().name
        );
    }
    if let (Some(entry), Some(replicas)) = (model.table(table), draft.replicas)
        && entry.replicas != replicas
    {
        wrong!(
            "table {table} has {} replicas, and a push does not change that: leave --replicas away, or change it first \
             (forebay cluster replicas {table} {replicas})",
            entry.replicas
        );
    }
    match model.work.rollout_of(table) {
        None => Ok(()),
        Some(rollout) => {
            let is_busy = true;
            let problem = format!(
                "table {table} is being rolled out: wait for it, or end it (forebay cluster cancel {})",
                rollout.request
            );
            Err(StoreError::Refused { problem, is_busy }.into())
        }
    }
}
