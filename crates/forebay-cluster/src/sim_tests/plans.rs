//! Plans of operators: by the planner, or any that keep the rules. Checks that no node routes to a
//! node that lacks the data while a plan is carried out.

use std::collections::{BTreeMap, BTreeSet};

use forebay_engine::Bounds;
use forebay_plan::placement::load_plan::LoadLimits;

use super::engine::summary;
use super::world::{Life, World, table};
use crate::ids::NodeId;
use crate::measures::reads::{BatchReads, NodeReads};
use crate::measures::traffic::{ReplicaTraffic, TrafficWindow};
use crate::model::{
    ListChange, Model, MoveBatch, MovePlan, MoveStage, PlanGoal, Survey, TableEntry,
};
use crate::planning::{
    KnownLoad, PlaceByLoad, Summaries, holders, propose, propose_place_reads, ranges,
};
use crate::request::Request;

/// Draws a plan from an operator's current view.
pub fn draw_plan(world: &mut World) -> Option<Request> {
    let model = world.store.current().clone();
    let nodes: Vec<NodeId> = model.all_nodes().map(|node| node.id).collect();
    let one = *nodes.get(world.rng.below(nodes.len().max(1) as u64) as usize)?;
    let holding = holders(&model);
    let idle = nodes.iter().filter(|node| !holding.contains(node));
    let idle: BTreeSet<NodeId> = idle.copied().collect();
    if world.rng.chance(150) {
        let plan = Box::new(placed(world, &model)?);
        world.count("plans by reads");
        return Some(Request::Rebalance { plan });
    }
    let goal = match world.rng.below(10) {
        0..4 => PlanGoal::Drain(BTreeSet::from([one])),
        4..7 if !idle.is_empty() => PlanGoal::Add(idle),
        7 if !idle.is_empty() => PlanGoal::Replace {
            gone: one,
            new: *idle.first()?,
        },
        8 => PlanGoal::Replicas {
            table: table(world.rng.below(3)).0,
            count: world.rng.between(1, 6) as usize,
        },
        _ => PlanGoal::Even,
    };
    // The planner is slow.
    let is_planned = matches!(goal, PlanGoal::Replicas { .. }) || world.rng.chance(100);
    let plan = match is_planned {
        true => planned(world, &model, &goal),
        false => random(world, &model, goal),
    };
    world.count("plans");
    let plan = Box::new(plan?);
    Some(Request::Rebalance { plan })
}

fn planned(world: &mut World, model: &Model, goal: &PlanGoal) -> Option<MovePlan> {
    let most = world.rng.between(2, 40) << 20;
    let proposal = propose(model, &summaries(model), goal, most);
    Some(proposal.ok()?.plan)
}

/// Places a batch table by its reads.
fn placed(world: &mut World, model: &Model) -> Option<MovePlan> {
    let table = table(world.rng.below(3)).0;
    let summaries = summaries(model);
    let entry = model.table(&table)?;
    let parts = &summaries.get(&table)?.partitions;
    let reported = parts.iter().map(|partition| {
        let mut traffic = ReplicaTraffic::default();
        traffic.minute.reads = 10 * 4u64.pow(world.rng.below(7) as u32);
        NodeReads {
            node: NodeId(0),
            version: 1,
            bounds: partition.bounds.clone(),
            traffic,
        }
    });
    let reads = BatchReads::from([(table.clone(), reported.collect())]);
    let known = KnownLoad {
        summaries: &summaries,
        reads: &reads,
        survey: &Survey::new(),
    };
    let by = PlaceByLoad {
        table: &table,
        window: TrafficWindow::Minute,
        limits: LoadLimits {
            most_copies: 20,
            share: 0.99,
        },
    };
    let spare = 1.0 + entry.replicas as f64 / 4.0;
    let made = propose_place_reads(model, known, &by, spare, 20 << 20).ok()?;
    Some(made.proposal.plan)
}

/// Returns the summaries of the serving versions.
pub fn summaries(model: &Model) -> Summaries {
    let tables = model.all_tables();
    let summaries = tables.filter_map(|(name, entry)| {
        let version = entry.serving?;
        Some((name.clone(), summary(name, entry.order, version)))
    });
    summaries.collect()
}

/// Returns random lists that satisfy the goal.
fn random(world: &mut World, model: &Model, goal: PlanGoal) -> Option<MovePlan> {
    let drained = goal.drained();
    let holding: BTreeSet<NodeId> = holders(model);
    let added = goal.added();
    let allowed: Vec<NodeId> = holding
        .union(&added)
        .filter(|node| !drained.contains(node))
        .filter(|node| added.contains(node) || !model.work.drained.contains(node))
        .copied()
        .collect();
    if allowed.is_empty() || holding.is_empty() {
        return None;
    }
    let mut batches = vec![MoveBatch::default()];
    for (name, layout) in model.used_layouts() {
        let ranges: Vec<_> = layout.ranges().cloned().collect();
        for (at, range) in ranges.iter().enumerate() {
            let new = other_list(world, &range.list, &allowed);
            if new == range.list {
                continue;
            }
            if world.rng.chance(300) {
                batches.push(MoveBatch::default());
            }
            let change = ListChange {
                layout: name.clone(),
                bounds: Bounds {
                    lower: range.lower.clone(),
                    upper: ranges.get(at + 1).map(|next| next.lower.clone()),
                },
                old: range.list.clone(),
                new,
            };
            batches.last_mut()?.lists.push(change);
        }
    }
    batches.retain(|batch| !batch.lists.is_empty());
    Some(MovePlan {
        goal,
        batches,
        copies: BTreeMap::new(),
    })
}

pub fn other_list(world: &mut World, old: &[NodeId], allowed: &[NodeId]) -> Vec<NodeId> {
    let mut list: Vec<NodeId> = old.to_vec();
    list.retain(|node| allowed.contains(node) && !world.rng.chance(150));
    let from = world.rng.below(allowed.len() as u64) as usize;
    for node in allowed.iter().cycle().skip(from).take(allowed.len()) {
        if list.len() < old.len() && !list.contains(node) {
            let at = world.rng.below(list.len() as u64 + 1) as usize;
            list.insert(at, *node);
        }
    }
    list
}

impl World {
    /// Checks that a batch's lists change only when all of their new nodes have the data. Old nodes
    /// give it up only when all nodes know the lists.
    pub fn check_moving(&self, by: Life, before: &Model, after: &Model) -> Option<String> {
        let was = before.work.moving()?;
        let mut plans = after.work.rebalances.iter();
        let is = plans.find(|is| is.request == was.request)?;
        match was.stage {
            MoveStage::Copying { since } if matches!(is.stage, MoveStage::Changed { .. }) => {
                let holders = |model: &Model, at: &Bounds, table: &TableEntry| -> Vec<NodeId> {
                    let ranges = model.layout_of(table).into_iter();
                    let ranges = ranges.flat_map(|layout| layout.within(at));
                    let lists = ranges.flat_map(|range| table.of_list(&range.list));
                    lists.copied().collect()
                };
                for (name, table) in after.all_tables() {
                    let old = before.table(name)?;
                    for (range, at) in ranges(after, table) {
                        let had = holders(before, &at, old);
                        let new = table.of_list(&range.list).iter();
                        for node in new.filter(|node| !had.contains(node)) {
                            let report = self.last_report(by, after, *node);
                            if report.is_none_or(|report| report.holds < since) {
                                return Some(format!(
                                    "node {node} gets a part of {name}, but did not report that it holds it"
                                ));
                            }
                        }
                    }
                }
                None
            }
            MoveStage::Changed { since } if !matches!(is.stage, MoveStage::Changed { .. }) => {
                let mut up = after.all_nodes().filter(|node| node.is_up());
                let late = up.find(|node| {
                    let report = self.last_report(by, after, node.id);
                    report.is_none_or(|report| report.revision < since)
                })?;
                Some(format!(
                    "data that {} may ask for is given up before it knows",
                    late.name
                ))
            }
            _ => None,
        }
    }
}
