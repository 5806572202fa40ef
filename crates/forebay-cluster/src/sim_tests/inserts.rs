//! Plans that prepare a live table for a bulk insert: they split its partitions, then move them.

use std::collections::BTreeMap;

use forebay_engine::{Bound, Bounds, TableName};
use forebay_run::Order;
use forebay_run::hash::SLOTS;

use super::plans::other_list;
use super::world::World;
use crate::ids::NodeId;
use crate::model::{
    LayoutName, ListChange, Model, MoveBatch, MovePlan, PlanGoal, RangeEntry, SplitChange,
};
use crate::planning::holders;
use crate::request::Request;

/// Returns a plan for one of the live tables, from a client's current view of the cluster.
pub fn insert_plan(world: &mut World) -> Option<Request> {
    let model = world.store.current().clone();
    let tables: Vec<&TableName> = model.live_tables().map(|(name, _)| name).collect();
    let table = tables.get(world.rng.below(tables.len().max(1) as u64) as usize)?;
    let entry = model.table(table)?;
    let count = world.rng.between(1, 5);
    let splits: Vec<SplitChange> = (0..count)
        .map(|_| SplitChange {
            table: (*table).clone(),
            at: random_place(world, entry.order),
        })
        .collect();
    let mut batches = vec![MoveBatch {
        splits: splits.clone(),
        ..MoveBatch::default()
    }];
    let lists = moved(world, &model, table, &splits);
    batches.extend((!lists.is_empty()).then(|| MoveBatch {
        lists,
        ..MoveBatch::default()
    }));
    world.count("insert plans");
    let plan = MovePlan {
        goal: PlanGoal::Insert {
            table: (*table).clone(),
            with: [].into(),
        },
        batches,
        copies: BTreeMap::new(),
    };
    Some(Request::Rebalance {
        plan: Box::new(plan),
    })
}

pub fn random_place(world: &mut World, order: Order) -> Bound {
    match order {
        Order::Hashed => Bound::Slot(world.rng.between(1, u64::from(SLOTS) - 1) as u16),
        Order::Ordered => Bound::Key(vec![
            b'a' + world.rng.below(10) as u8,
            world.rng.below(256) as u8,
        ]),
    }
}

/// Returns other lists for some of the children.
fn moved(
    world: &mut World,
    model: &Model,
    table: &TableName,
    splits: &[SplitChange],
) -> Vec<ListChange> {
    let layout = LayoutName::Table(table.clone());
    let ranges: Vec<RangeEntry> = match model.layouts.get(&layout) {
        Some(found) => found.ranges().cloned().collect(),
        None => return Vec::new(),
    };
    let mut lowers: Vec<&Bound> = ranges.iter().map(|range| &range.lower).collect();
    lowers.extend(splits.iter().map(|split| &split.at));
    lowers.sort();
    lowers.dedup();
    let holding: Vec<NodeId> = holders(model).into_iter().collect();
    let mut changes = Vec::new();
    for (at, lower) in lowers.iter().enumerate() {
        let before = ranges.iter().rev().find(|range| range.lower <= **lower);
        let Some(range) = before.filter(|_| world.rng.chance(400)) else {
            continue;
        };
        let new = other_list(world, &range.list, &holding);
        if new != range.list && !new.is_empty() {
            changes.push(ListChange {
                layout: layout.clone(),
                bounds: Bounds {
                    lower: (*lower).clone(),
                    upper: lowers.get(at + 1).map(|upper| (*upper).clone()),
                },
                old: range.list.clone(),
                new,
            });
        }
    }
    changes
}

/// Checks that a completed batch has split its table at all split points, unless the table was
/// dropped.
pub fn check_splits(before: &Model, after: &Model) -> Option<String> {
    let moving = after.work.rebalances.last()?;
    let known = before.work.rebalances.last();
    let known = known.filter(|known| known.request == moving.request);
    let (plan, done) = match known {
        Some(known) => (before.plan.as_ref()?, known.done),
        None => (after.plan.as_ref()?, 0),
    };
    let splits = plan.batches.get(done..moving.done)?.iter();
    let mut splits = splits.flat_map(|batch| &batch.splits);
    splits.find_map(|SplitChange { table, at }| {
        let mut all = after.groups.get(table)?.all();
        let is_split = all.any(|group| group.bounds.lower == *at);
        (!is_split).then(|| format!("a batch is done, but {table} is not split at {at}"))
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::clients::Report;
    use super::super::live_runs::carts_on;
    use super::super::world::MS;
    use super::*;
    use crate::ids::ClusterId;
    use crate::model::{Identity, Outcome};
    use crate::status::{PlanStatus, Status};

    fn carts() -> TableName {
        TableName::new("carts").unwrap()
    }

    fn split(at: u16) -> SplitChange {
        SplitChange {
            table: carts(),
            at: Bound::Slot(at),
        }
    }

    /// Splits at these slots, then moves the children from these slots on to nodes without the
    /// table.
    fn plan(world: &World, split_slots: &[u16], moved_from: &[u16]) -> MovePlan {
        let model = world.store.current();
        let layout = LayoutName::Table(carts());
        let ranges: Vec<RangeEntry> = model.layouts[&layout].ranges().cloned().collect();
        let all: BTreeSet<NodeId> = model.all_nodes().map(|node| node.id).collect();
        let mut lowers: Vec<Bound> = ranges.iter().map(|range| range.lower.clone()).collect();
        lowers.extend(split_slots.iter().map(|slot| Bound::Slot(*slot)));
        lowers.sort();
        lowers.dedup();
        let lists = moved_from.iter().map(|from| {
            let lower = Bound::Slot(*from);
            let mut before = ranges.iter().rev();
            let old = before.find(|range| range.lower <= lower).unwrap();
            let old = old.list.clone();
            let free = all.iter().filter(|node| !old.contains(node));
            let mut new = old.clone();
            new[0] = *free.clone().next().unwrap();
            ListChange {
                layout: layout.clone(),
                bounds: Bounds {
                    upper: lowers.iter().find(|bound| **bound > lower).cloned(),
                    lower,
                },
                old,
                new,
            }
        });
        let batches = vec![
            MoveBatch {
                splits: split_slots.iter().map(|slot| split(*slot)).collect(),
                ..MoveBatch::default()
            },
            MoveBatch {
                lists: lists.collect(),
                ..MoveBatch::default()
            },
        ];
        MovePlan {
            goal: PlanGoal::Insert {
                table: carts(),
                with: [].into(),
            },
            batches,
            copies: BTreeMap::new(),
        }
    }

    fn submit(world: &mut World, plan: MovePlan) -> usize {
        world.submit(Request::Rebalance {
            plan: Box::new(plan),
        })
    }

    /// Returns the status by the coordinator on a host.
    fn plan_status(world: &World, host: usize) -> Option<PlanStatus> {
        let coordinator = world.hosts[host].process.as_ref()?.node.coordinator()?;
        let (head, model) = coordinator.standing()?;
        let identity = Identity {
            forebay_cluster: 1,
            id: ClusterId(0),
            name: "test".to_owned(),
            created_unix_ms: 0,
        };
        let now = world.clock(host);
        Status::of(&identity, head, model, Some((coordinator, now))).plan
    }

    #[test]
    fn a_table_is_split_and_moved_and_leaders_report_its_sizes() {
        for seed in 0..20 {
            let mut world = carts_on(5, seed);
            let plan = plan(&world, &[1000, 2000, 3000, 12_000], &[2000, 12_000]);
            let wanted: Vec<_> = plan.batches[1].lists.iter().map(|one| one.new[0]).collect();
            let made = submit(&mut world, plan);
            world.run_for_s(120);
            let report = &world.ops[made].report;
            let is_done = matches!(report, Some(Report::Done { .. }));
            assert!(is_done, "seed {seed}: {report:?}");
            let asked = world.submit(Request::Survey {
                tables: [carts()].into(),
            });
            world.run_for_s(20);
            let model = world.store.current();
            let groups = model.desired_groups(&carts());
            let lowers: Vec<&Bound> = groups
                .iter()
                .map(|(group, _)| &group.bounds.lower)
                .collect();
            let slots = [0, 1000, 2000, 3000, 8000, 12_000].map(Bound::Slot);
            assert_eq!(lowers, slots.iter().collect::<Vec<_>>(), "seed {seed}");
            for (at, node) in [(2, wanted[0]), (5, wanted[1])] {
                assert!(groups[at].1.contains(&node), "seed {seed}");
            }
            let outcome = &model.work.answers[&world.ops[asked].id].outcome;
            let Outcome::Survey(survey) = outcome else {
                panic!("seed {seed}: {outcome:?}");
            };
            assert_eq!(survey[&carts()].len(), 6, "seed {seed}");
            assert_eq!(world.unsettled_live(), None, "seed {seed}");
            assert_eq!(world.checks.violation, None, "seed {seed}");
        }
    }

    #[test]
    fn the_status_of_a_plan_counts_the_partitions_it_waits_for() {
        let mut world = carts_on(5, 3);
        let plan = plan(&world, &[1000], &[1000, 8000]);
        let moved = plan.batches[1].clone();
        let gone: Vec<NodeId> = moved.lists[0].old[1..].to_vec();
        submit(&mut world, plan);
        let mut splits_seen = BTreeSet::new();
        for _ in 0..600 {
            let soon = world.now + 100 * MS;
            world.run_until(soon);
            let Some(status) = plan_status(&world, 0) else {
                continue;
            };
            splits_seen.insert(status.splits_left);
            if status.done == 1 && status.live_partitions > 0 {
                break;
            }
        }
        assert_eq!(splits_seen, [0, 1].into());
        let before = plan_status(&world, 0).unwrap();
        assert_eq!(
            (before.live_partitions, before.live_without_majority),
            (2, 0)
        );
        // Two of three replicas of the moved partition, and not the coordinator.
        let hosts: Vec<usize> = (1..5)
            .filter(|host| {
                let name = &world.hosts[*host].name;
                let node = world.store.current().node_named(name).unwrap();
                gone.contains(&node.id)
            })
            .collect();
        hosts.iter().for_each(|host| world.kill(*host));
        world.run_for_s(20);
        let after = plan_status(&world, 0).unwrap();
        assert!(after.live_without_majority > 0, "{hosts:?} {after:?}");
        hosts.iter().for_each(|host| world.start(*host));
        world.run_for_s(120);
        assert_eq!(plan_status(&world, 0), None);
        assert_eq!(world.unsettled_live(), None);
        assert_eq!(world.checks.violation, None);
    }

    #[test]
    fn splits_name_the_down_nodes_they_wait_for() {
        let mut world = carts_on(5, 3);
        let holders = holding_slot(&world, 1000);
        // Two of three replicas of the partition to split, and not the coordinator.
        let hosts: Vec<usize> = (1..5)
            .filter(|host| {
                let name = &world.hosts[*host].name;
                holders.contains(&world.store.current().node_named(name).unwrap().id)
            })
            .take(2)
            .collect();
        let names: BTreeSet<String> = hosts
            .iter()
            .map(|host| world.hosts[*host].name.to_string())
            .collect();
        hosts.iter().for_each(|host| world.kill(*host));
        world.run_for_s(20);
        let plan = plan(&world, &[1000], &[]);
        submit(&mut world, plan);
        world.run_for_s(20);
        let status = plan_status(&world, 0).unwrap();
        assert_eq!((status.splits_left, status.waits_for), (1, names));
        hosts.iter().for_each(|host| world.start(*host));
        world.run_for_s(120);
        assert_eq!(plan_status(&world, 0), None);
        assert_eq!(world.checks.violation, None);
    }

    fn holding_slot(world: &World, slot: u16) -> BTreeSet<NodeId> {
        let model = world.store.current();
        let mut groups = model.groups[&carts()].all();
        let group = groups.find(|group| group.bounds.holds(&Bound::Slot(slot)));
        group.unwrap().peers.iter().map(|peer| peer.node).collect()
    }

    #[test]
    fn a_plan_with_impossible_splits_is_refused_before_it_begins() {
        let mut world = carts_on(3, 1);
        let mut refused = |split: SplitChange| {
            let made = submit(
                &mut world,
                MovePlan {
                    goal: PlanGoal::Insert {
                        table: carts(),
                        with: [].into(),
                    },
                    batches: vec![MoveBatch {
                        splits: vec![split],
                        ..MoveBatch::default()
                    }],
                    copies: BTreeMap::new(),
                },
            );
            world.run_for_s(20);
            match &world.ops[made].report {
                Some(Report::Refused(words)) => words.clone(),
                other => panic!("{other:?}"),
            }
        };
        let by_key = SplitChange {
            table: carts(),
            at: Bound::Key(b"k".to_vec()),
        };
        assert!(refused(by_key).contains("it is split at a slot"));
        let of_other_table = SplitChange {
            table: TableName::new("other").unwrap(),
            at: Bound::Slot(5),
        };
        assert!(refused(of_other_table).contains("table other, which is not what it is for"));
    }
}
