//! Plans that balance the reads of a batch table between nodes, by measured load.
//!
//! Every node that holds a partition serves its reads, each an equal share. So the plan puts the
//! partitions that are read most on more nodes (the paper's replicas by load). No partition gets
//! fewer nodes than the table's replicas. From then on the table has its own layout.

use std::collections::{BTreeMap, BTreeSet};

use forebay_engine::{Bounds, PartitionId, TableName};
use forebay_plan::placement::load_plan::{LoadLimits, LoadPlan};
use forebay_plan::placement::spread::{SpreadCluster, SpreadNode, SpreadPartition, place_spread};

use super::known_load::KnownLoad;
use super::own_lists::ranges;
use super::place::{placing_nodes, zone_numbers};
use super::{
    MeasuredLoads, PlaceByLoad, PlaceProposal, PlacedPartition, PlanningError, Summaries, price,
    refuse_while_moving,
};
use crate::ids::NodeId;
use crate::measures::reads::{BatchReads, NodeReads};
use crate::measures::traffic::{TrafficRate, TrafficWindow};
use crate::model::{LayoutName, ListChange, Model, MoveBatch, NodeEntry, Survey, TableEntry};
use crate::routing::version::{VersionSummary, overlaps_any};

/// The default limit of all replicas of a table, as a multiple of its configured replicas.
pub const SPARE: f64 = 1.25;

/// Makes a plan. The table may have `spare` times as many replicas in all as it is configured for.
pub fn propose_place_reads(
    model: &Model,
    known: KnownLoad<'_>,
    by: &PlaceByLoad<'_>,
    spare: f64,
    most_batch_bytes: u64,
) -> Result<PlaceProposal, PlanningError> {
    let table = ReadTable::of(model, known, by)?;
    let placed = place_spread(&table.cluster(known, by, spare), by.limits);
    let mut partitions = table.partitions(&placed);
    order_lists(&mut partitions);
    let mut batches = table.batches(by, &partitions);
    if !batches.is_empty() && !table.entry.by_range {
        // This batch does not change the assignment.
        let own = vec![by.table.clone()];
        let own = MoveBatch {
            own,
            ..MoveBatch::default()
        };
        batches.insert(0, own);
    }
    let priced = price(model, known.summaries, batches, Some(most_batch_bytes));
    let nodes = table.nodes.iter().map(|node| node.id).collect();
    Ok(PlaceProposal::of(
        model,
        by,
        priced,
        (nodes, partitions, placed),
    ))
}

/// Returns the read rate of each partition of a batch table, by its index.
fn reads_of(
    summary: &VersionSummary,
    reported: &[NodeReads],
    window: TrafficWindow,
) -> Vec<TrafficRate> {
    let mut rates = vec![TrafficRate::default(); summary.partitions.len()];
    for one in reported {
        let next = summary
            .partitions
            .partition_point(|partition| partition.bounds.lower <= one.bounds.lower);
        if let Some(at) = next.checked_sub(1) {
            rates[at].add(one.rate(window));
        }
    }
    rates
}

/// Returns the load on the partitions of a batch table, in reads a minute.
pub fn batch_loads_of(
    model: &Model,
    summaries: &Summaries,
    reads: &BatchReads,
    (table, window): (&TableName, TrafficWindow),
) -> Result<MeasuredLoads, PlanningError> {
    let (survey, limits) = (
        Survey::new(),
        LoadLimits {
            most_copies: 0,
            share: 1.0,
        },
    );
    let known = KnownLoad {
        summaries,
        reads,
        survey: &survey,
    };
    let by = PlaceByLoad {
        table,
        window,
        limits,
    };
    let table = ReadTable::of(model, known, &by)?;
    Ok(MeasuredLoads {
        nodes: table.nodes.len(),
        replicas: table.entry.replicas,
        loads: table.rates.iter().map(|rate| rate.reads as f64).collect(),
    })
}

/// A batch table with its holders and its measured reads.
struct ReadTable<'m> {
    model: &'m Model,
    entry: &'m TableEntry,
    summary: &'m VersionSummary,
    /// The rates, by the partitions' indexes.
    rates: Vec<TrafficRate>,
    holders: Vec<Vec<NodeId>>,
    nodes: Vec<&'m NodeEntry>,
}

impl<'m> ReadTable<'m> {
    fn of(
        model: &'m Model,
        known: KnownLoad<'m>,
        by: &PlaceByLoad<'_>,
    ) -> Result<Self, PlanningError> {
        let table = by.table;
        let no_table = || PlanningError::NoTable(table.clone());
        let entry = model.table(table).filter(|entry| entry.live.is_none());
        let entry = entry.ok_or_else(no_table)?;
        refuse_while_moving(model)?;
        let summary = known.summaries.get(table).ok_or_else(|| {
            PlanningError::Planner(format!("table {table} serves nothing yet: push it first"))
        })?;
        if summary.partitions.len() < 2 {
            return Err(PlanningError::Planner(format!(
                "table {table} is one partition, which is placed whole: push it with --partitions N, so that parts of it \
                 can be on more nodes than others"
            )));
        }
        let ranges = ranges(model, entry);
        let holders = summary.partitions.iter().map(|partition| {
            let mut holders: Vec<NodeId> = Vec::new();
            let within = ranges.iter().filter(|(_, bounds)| {
                overlaps_any(bounds, std::slice::from_ref(&partition.bounds))
            });
            for node in within.flat_map(|(range, _)| entry.of_list(&range.list)) {
                if !holders.contains(node) {
                    holders.push(*node);
                }
            }
            holders
        });
        let holders: Vec<Vec<NodeId>> = holders.collect();
        let holding = holders.iter().flatten().copied().collect();
        let reported = known.reads.get(table).map_or(&[][..], Vec::as_slice);
        let rates = reads_of(summary, reported, by.window);
        if rates.iter().all(|rate| rate.reads == 0) {
            return Err(PlanningError::Planner(format!(
                "no node reported reads of {table} in that time: nodes count from their start, \
                 sample every 10 s, and report to the coordinator within a minute"
            )));
        }
        Ok(Self {
            nodes: placing_nodes(model, table, &holding)?,
            model,
            entry,
            summary,
            rates,
            holders,
        })
    }

    /// Returns the table for the planner.
    fn cluster(&self, known: KnownLoad<'_>, by: &PlaceByLoad<'_>, spare: f64) -> SpreadCluster {
        let others = known.by_node(self.model, by.window, |table| table != by.table);
        let zones = zone_numbers(&self.nodes);
        let nodes = self.nodes.iter().map(|node| SpreadNode {
            zone: zones[&node.zone],
            takes: node.is_up() && !self.model.work.drained.contains(&node.id),
            other_load: others.get(&node.id).copied().unwrap_or(0.0),
        });
        let number = |node: &NodeId| {
            let place = self.nodes.iter().position(|known| known.id == *node);
            place.map(|place| place as u32)
        };
        let partitions = self
            .holders
            .iter()
            .zip(&self.rates)
            .zip(&self.summary.partitions);
        let partitions = partitions.map(|((holders, rate), partition)| SpreadPartition {
            holders: holders.iter().filter_map(number).collect(),
            load: rate.reads as f64,
            bytes: partition.file_bytes,
        });
        let wanted = self.entry.replicas * self.summary.partitions.len();
        SpreadCluster {
            nodes: nodes.collect(),
            partitions: partitions.collect(),
            least: self.entry.replicas,
            most_in_all: (wanted as f64 * spare).ceil() as usize,
        }
    }

    fn partitions(&self, placed: &LoadPlan) -> Vec<PlacedPartition> {
        let known = self
            .holders
            .iter()
            .zip(&self.rates)
            .zip(&self.summary.partitions);
        let placed = known.zip(&placed.lists).enumerate();
        let placed = placed.map(
            |(at, (((holders, rate), partition), new))| PlacedPartition {
                partition: PartitionId(at as u32),
                rate: *rate,
                bytes: partition.file_bytes,
                before: holders.clone(),
                after: new
                    .iter()
                    .map(|number| self.nodes[*number as usize].id)
                    .collect(),
                split_at: None,
            },
        );
        placed.collect()
    }

    /// Returns one batch for each partition whose lists change.
    fn batches(&self, by: &PlaceByLoad<'_>, placed: &[PlacedPartition]) -> Vec<MoveBatch> {
        let layout = LayoutName::Table(by.table.clone());
        let ranges = ranges(self.model, self.entry);
        let mut batches = Vec::new();
        for (partition, placed) in self.summary.partitions.iter().zip(placed) {
            if !is_changed(placed) {
                continue;
            }
            let parts = ranges.iter().filter_map(|(range, bounds)| {
                let change = ListChange {
                    layout: layout.clone(),
                    bounds: both(bounds, &partition.bounds)?,
                    old: self.entry.of_list(&range.list).to_vec(),
                    new: placed.after.clone(),
                };
                (change.old != change.new).then_some(change)
            });
            let lists: Vec<ListChange> = parts.collect();
            if !lists.is_empty() {
                batches.push(MoveBatch {
                    lists,
                    ..MoveBatch::default()
                });
            }
        }
        batches
    }
}

/// Returns whether the set of the partition's nodes changes.
fn is_changed(placed: &PlacedPartition) -> bool {
    let nodes = |list: &[NodeId]| list.iter().copied().collect::<BTreeSet<NodeId>>();
    nodes(&placed.before) != nodes(&placed.after)
}

/// Orders the lists that change. Clients that do not read from replicas ask only the first node of
/// a list. So each changed list begins with its node that has the least load of that kind.
fn order_lists(placed: &mut [PlacedPartition]) {
    let mut heads: BTreeMap<NodeId, u64> = BTreeMap::new();
    for one in placed.iter().filter(|one| !is_changed(one)) {
        if let Some(first) = one.before.first() {
            *heads.entry(*first).or_default() += one.rate.reads;
        }
    }
    let mut changed: Vec<&mut PlacedPartition> =
        placed.iter_mut().filter(|one| is_changed(one)).collect();
    changed.sort_by_key(|one| std::cmp::Reverse(one.rate.reads));
    for one in changed {
        let load = |node: &NodeId| heads.get(node).copied().unwrap_or(0);
        let least = (0..one.after.len()).min_by_key(|at| load(&one.after[*at]));
        if let Some(at) = least {
            one.after[..=at].rotate_right(1);
            *heads.entry(one.after[0]).or_default() += one.rate.reads;
        }
    }
}

/// Returns the intersection of two ranges.
fn both(one: &Bounds, other: &Bounds) -> Option<Bounds> {
    let upper = match (&one.upper, &other.upper) {
        (Some(one), Some(other)) => Some(one.min(other).clone()),
        (one, other) => one.clone().or_else(|| other.clone()),
    };
    let lower = one.lower.clone().max(other.lower.clone());
    let is_any = upper.as_ref().is_none_or(|upper| lower < *upper);
    is_any.then_some(Bounds { lower, upper })
}

#[cfg(test)]
#[path = "place_reads_tests.rs"]
mod tests;
