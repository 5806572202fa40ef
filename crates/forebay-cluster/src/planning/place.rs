//! Plans that balance the load on a live table between nodes, by measured load.
//!
//! The replica that leads a partition serves its reads and writes. So the plan first changes
//! leaders, which copies nothing, and then moves replicas (`forebay_plan::placement::leaders`).
//! Lists keep their lengths: a partition stays on as many nodes as its table asks for.

use std::collections::{BTreeMap, BTreeSet};

use forebay_engine::{Bound, PartitionId, TableName};
use forebay_plan::placement::leaders::{LedCluster, LedNode, LedPartition, place_leaders};
use forebay_plan::placement::load_plan::{LoadLimits, LoadPlan};
use forebay_run::hash::SLOTS;

use super::known_load::{FOLLOWED_WRITE, KnownLoad, LED_WRITE};
use super::{PlanningError, PricedBatches, Proposal, price, refuse_while_moving, surveyed};
use crate::ids::{NodeId, Zone};
use crate::measures::traffic::{TrafficRate, TrafficWindow};
use crate::model::{
    GroupEntry, LayoutName, ListChange, Model, MoveBatch, NodeEntry, PlanGoal, Survey,
    SurveyedPartition,
};

/// The multiple of the nodes' mean load from which a partition is too hot for any node.
const TOO_HOT: f64 = 1.1;

/// The settings of a plan by load.
#[derive(Debug, Clone, Copy)]
pub struct PlaceByLoad<'a> {
    pub table: &'a TableName,
    pub window: TrafficWindow,
    pub limits: LoadLimits,
}

/// A plan in the planner's terms and in the cluster's.
#[derive(Debug)]
pub struct PlaceProposal {
    pub placed: LoadPlan,
    /// The nodes, by the planner's numbers.
    pub nodes: Vec<NodeId>,
    pub partitions: Vec<PlacedPartition>,
    pub proposal: Proposal,
}

/// A partition, with its nodes before and after the plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacedPartition {
    pub partition: PartitionId,
    /// The rate of requests in a minute. Each write counts once.
    pub rate: TrafficRate,
    pub bytes: u64,
    /// The nodes that hold it, the desired leader first.
    pub before: Vec<NodeId>,
    pub after: Vec<NodeId>,
    /// The key that divides its data evenly, if it is too hot for any node.
    pub split_at: Option<Bound>,
}

impl PlaceProposal {
    /// Creates a proposal from the planner's nodes, partitions and result, priced for the cluster
    /// as it is.
    pub(super) fn of(
        model: &Model,
        by: &PlaceByLoad<'_>,
        priced: PricedBatches,
        (nodes, partitions, placed): (Vec<NodeId>, Vec<PlacedPartition>, LoadPlan),
    ) -> Self {
        let goal = PlanGoal::Place {
            table: by.table.clone(),
        };
        Self {
            nodes,
            partitions,
            placed,
            proposal: Proposal::of(model, priced, goal),
        }
    }
}

/// Makes a plan. `known` covers all tables.
pub fn propose_place(
    model: &Model,
    known: KnownLoad<'_>,
    by: &PlaceByLoad<'_>,
    most_batch_bytes: u64,
) -> Result<PlaceProposal, PlanningError> {
    let table = LoadedTable::of(model, known.survey, by.table, by.window)?;
    let placed = place_leaders(&table.cluster(model, known, by), by.limits);
    let partitions = table.partitions(&placed);
    let batches = batches(model, by.table, &table, &partitions);
    let mut held = surveyed(model, known.survey, &[]);
    held.extend(known.summaries.clone());
    let priced = price(model, &held, batches, Some(most_batch_bytes));
    let nodes = table.nodes.iter().map(|node| node.id).collect();
    Ok(PlaceProposal::of(
        model,
        by,
        priced,
        (nodes, partitions, placed),
    ))
}

/// The load on the partitions of a table, in requests a minute.
#[derive(Debug, Clone, PartialEq)]
pub struct MeasuredLoads {
    /// The number of nodes that may hold the table.
    pub nodes: usize,
    pub replicas: usize,
    pub loads: Vec<f64>,
}

/// Returns the loads that nodes reported.
pub fn loads_of(
    (model, survey): (&Model, &Survey),
    table: &TableName,
    window: TrafficWindow,
) -> Result<MeasuredLoads, PlanningError> {
    let known = LoadedTable::of(model, survey, table, window)?;
    let rates = known.rates.iter();
    Ok(MeasuredLoads {
        nodes: known.nodes.len(),
        replicas: model.table(table).map_or(0, |entry| entry.replicas),
        loads: rates.map(|rate| rate.requests() as f64).collect(),
    })
}

/// A live table with its groups and their reported load.
struct LoadedTable<'m> {
    groups: Vec<(&'m GroupEntry, &'m [NodeId])>,
    reported: Vec<&'m SurveyedPartition>,
    rates: Vec<TrafficRate>,
    nodes: Vec<&'m NodeEntry>,
}

impl<'m> LoadedTable<'m> {
    fn of(
        model: &'m Model,
        survey: &'m Survey,
        table: &TableName,
        window: TrafficWindow,
    ) -> Result<Self, PlanningError> {
        let groups = model.desired_groups(table);
        if groups.is_empty() {
            return Err(PlanningError::NoLiveTable(table.clone()));
        }
        refuse_while_moving(model)?;
        let of_table = survey.get(table);
        let reported = groups.iter().filter_map(|(group, _)| {
            let reported = of_table?.get(&group.partition)?;
            Some(reported)
        });
        let reported: Vec<&SurveyedPartition> = reported.collect();
        if reported.len() < groups.len() {
            return Err(PlanningError::Unsurveyed {
                table: table.clone(),
                count: groups.len() - reported.len(),
            });
        }
        let holders: BTreeSet<NodeId> = groups
            .iter()
            .flat_map(|(_, list)| list.iter().copied())
            .collect();
        let nodes = placing_nodes(model, table, &holders)?;
        let rates: Vec<TrafficRate> = reported
            .iter()
            .map(|reported| rate(reported, window))
            .collect();
        if rates.iter().all(|rate| rate.requests() == 0) {
            return Err(PlanningError::Planner(format!(
                "no node reported reads or writes of {table} in that time: nodes count from their \
                 start, sample every 10 s, and report to the coordinator within a minute (forebay \
                 cluster status shows what it knows)"
            )));
        }
        Ok(Self {
            groups,
            reported,
            rates,
            nodes,
        })
    }

    fn number(&self, node: NodeId) -> Option<u32> {
        let place = self.nodes.iter().position(|known| known.id == node);
        place.map(|place| place as u32)
    }

    /// Returns the table for the planner.
    fn cluster(&self, model: &Model, known: KnownLoad<'_>, by: &PlaceByLoad<'_>) -> LedCluster {
        let zones = zone_numbers(&self.nodes);
        let others = known.by_node(model, by.window, |table| table != by.table);
        let nodes = self.nodes.iter().map(|node| {
            let is_drained = model.work.drained.contains(&node.id);
            LedNode {
                zone: zones[&node.zone],
                takes: node.is_up() && !is_drained,
                may_lead: node.is_up(),
                other_load: others.get(&node.id).copied().unwrap_or(0.0),
            }
        });
        let nodes = nodes.collect();
        let groups = self.groups.iter().zip(&self.reported).zip(&self.rates);
        let partitions = groups.map(|(((_, list), reported), rate)| LedPartition {
            holders: list.iter().filter_map(|node| self.number(*node)).collect(),
            leader_load: rate.reads as f64 + LED_WRITE * rate.writes as f64,
            follower_load: FOLLOWED_WRITE * rate.writes as f64,
            bytes: reported.size.bytes,
        });
        LedCluster {
            partitions: partitions.collect(),
            nodes,
        }
    }

    fn partitions(&self, placed: &LoadPlan) -> Vec<PlacedPartition> {
        let too_hot = TOO_HOT * placed.mean;
        let groups = self.groups.iter().zip(&self.reported).zip(&self.rates);
        let partitions = groups.zip(&placed.lists);
        let placed = partitions.map(|((((group, list), reported), rate), new)| {
            let load = rate.reads as f64 + LED_WRITE * rate.writes as f64;
            PlacedPartition {
                partition: group.partition,
                rate: *rate,
                bytes: reported.size.bytes,
                before: list.to_vec(),
                after: new
                    .iter()
                    .map(|number| self.nodes[*number as usize].id)
                    .collect(),
                split_at: (load > too_hot).then(|| middle(group, reported)).flatten(),
            }
        });
        placed.collect()
    }
}

/// Returns the nodes on which a table is placed, sorted by name. These are its holders, which must
/// be up, and other nodes that are up and may hold it.
pub fn placing_nodes<'m>(
    model: &'m Model,
    table: &TableName,
    holders: &BTreeSet<NodeId>,
) -> Result<Vec<&'m NodeEntry>, PlanningError> {
    let nodes = model.all_nodes().filter(|node| {
        holders.contains(&node.id) || (node.is_up() && !model.work.drained.contains(&node.id))
    });
    let mut nodes: Vec<&NodeEntry> = nodes.collect();
    nodes.sort_by(|a, b| a.name.cmp(&b.name));
    match nodes.iter().find(|node| !node.is_up()) {
        Some(down) => Err(PlanningError::Planner(format!(
            "node {}, which has replicas of {table}, is down, and others do its work: start it, or put another \
             in its place (forebay cluster replace), then ask again",
            down.name
        ))),
        None => Ok(nodes),
    }
}

/// Numbers the zones of these nodes.
pub fn zone_numbers<'m>(nodes: &[&'m NodeEntry]) -> BTreeMap<&'m Zone, u32> {
    let zones: BTreeSet<&Zone> = nodes.iter().map(|node| &node.zone).collect();
    zones.into_iter().zip(0..).collect()
}

/// Returns a partition's rate of requests, whoever led it. Reads are counted where they are served.
/// So a mean over some time is the sum over all replicas that led. Every replica applies the
/// writes.
fn rate(reported: &SurveyedPartition, window: TrafficWindow) -> TrafficRate {
    let mut rate = TrafficRate::default();
    for (_, traffic) in &reported.traffic {
        let one = traffic.over(window);
        rate.reads += one.reads;
        rate.read_bytes += one.read_bytes;
        rate.writes = rate.writes.max(one.writes);
        rate.written_bytes = rate.written_bytes.max(one.written_bytes);
    }
    rate
}

/// Returns the bound below which about half of a partition's data is.
fn middle(group: &GroupEntry, reported: &SurveyedPartition) -> Option<Bound> {
    let split_points = &reported.size.split_points;
    match (&group.bounds.lower, &group.bounds.upper) {
        (Bound::Key(_), _) => split_points.get(split_points.len() / 2).cloned(),
        (Bound::Slot(lower), upper) => {
            let upper = match upper {
                Some(Bound::Slot(upper)) => u32::from(*upper),
                _ => SLOTS,
            };
            let middle = u32::from(*lower).midpoint(upper);
            (middle > u32::from(*lower)).then_some(Bound::Slot(middle as u16))
        }
    }
}

/// Returns the batches. Changes of leaders alone come first, because they copy nothing.
fn batches(
    model: &Model,
    table: &TableName,
    known: &LoadedTable<'_>,
    partitions: &[PlacedPartition],
) -> Vec<MoveBatch> {
    let layout = LayoutName::Table(table.clone());
    let (mut led, mut moved) = (MoveBatch::default(), Vec::new());
    for ((group, _), placed) in known.groups.iter().zip(partitions) {
        let ranges = model.layouts.get(&layout);
        let range = ranges.and_then(|ranges| ranges.within(&group.bounds).next());
        let Some(range) = range.filter(|_| placed.before != placed.after) else {
            continue;
        };
        let change = ListChange {
            layout: layout.clone(),
            bounds: group.bounds.clone(),
            old: range.list.clone(),
            new: changed(&range.list, &placed.after),
        };
        let has_same = |node: &NodeId| placed.before.contains(node);
        match placed.after.iter().all(has_same) {
            true => led.lists.push(change),
            false => moved.push(MoveBatch {
                lists: vec![change],
                ..MoveBatch::default()
            }),
        }
    }
    let led = (!led.lists.is_empty()).then_some(led);
    led.into_iter().chain(moved).collect()
}

/// Returns a list that begins with these nodes. The nodes that they displace take their places
/// further back.
fn changed(list: &[NodeId], first: &[NodeId]) -> Vec<NodeId> {
    let mut out = list[..first.len().min(list.len())]
        .iter()
        .filter(|node| !first.contains(node));
    let rest = list.iter().skip(first.len());
    let rest = rest.filter_map(|node| match first.contains(node) {
        true => out.next().copied(),
        false => Some(*node),
    });
    first.iter().copied().chain(rest).collect()
}

#[cfg(test)]
#[path = "place_tests.rs"]
pub(super) mod tests;
