//! Tests of load that the cluster balances without an operator.

use super::placed::tests::{survey, two_tables, wide};
use super::world::World;
use crate::ids::NodeId;
use crate::model::{LayoutName, ListChange, MoveBatch, MovePlan, MoveStage, PlanGoal, Rebalance};
use crate::planning::LoadPeak;
use crate::request::Request;

/// How long the test watches for further plans.
const QUIET_S: u64 = 10 * 60;

/// Returns a plan by which one node leads all partitions of the wide table that it holds.
fn led_by(world: &World, leader: NodeId) -> MovePlan {
    let model = world.store.current();
    let layout = LayoutName::Table(wide());
    let mut batch = MoveBatch::default();
    for (group, list) in model.desired_groups(&wide()) {
        let mut new = list.to_vec();
        new.sort_by_key(|node| *node != leader);
        if new != list {
            batch.lists.push(ListChange {
                layout: layout.clone(),
                bounds: group.bounds.clone(),
                old: list.to_vec(),
                new,
            });
        }
    }
    MovePlan {
        goal: PlanGoal::Place { table: wide() },
        batches: vec![batch],
        copies: Default::default(),
    }
}

/// Builds a cluster in which one node leads all that it holds, by the plan of an operator.
fn skewed(seed: u64, bytes_an_hour: u64) -> World {
    let mut world = two_tables(seed);
    world.settings.keep_balanced = Some(bytes_an_hour);
    // The coordinator was started without it.
    for host in 0..5 {
        world.kill(host);
        world.start(host);
        world.run_for_s(20);
    }
    let leader = world.store.current().all_nodes().next().map(|node| node.id);
    let plan = Box::new(led_by(&world, leader.unwrap()));
    world.submit(Request::Rebalance { plan });
    world.run_for_s(20);
    world
}

fn ratio(world: &mut World) -> f64 {
    let survey = survey(world);
    let peak = LoadPeak::of(world.store.current(), &Default::default(), &survey);
    peak.map_or(1.0, |peak| peak.ratio())
}

/// Returns the coordinator's own plans since the last plan of an operator.
fn own_plans(world: &World) -> Vec<&Rebalance> {
    let plans = world.store.current().work.rebalances.iter();
    let newest_first = plans.rev();
    let own = newest_first.take_while(|plan| plan.request.0.starts_with("balance-"));
    own.collect()
}

#[test]
fn an_overloaded_leader_is_relieved_after_a_while() {
    for seed in 0..4 {
        let mut world = skewed(seed, 0);
        assert!(
            own_plans(&world).is_empty(),
            "seed {seed}: an operator's plan has just ended"
        );
        let before = ratio(&mut world);
        assert!(before > 1.5, "seed {seed}: {before}");
        world.run_for_s(90);
        let own = own_plans(&world);
        assert!((1..=2).contains(&own.len()), "seed {seed}: {own:?}");
        for plan in own {
            assert_eq!(plan.stage, MoveStage::Done, "seed {seed}");
            assert_eq!(plan.copied_bytes, 0, "nothing may be copied");
        }
        assert_eq!(world.unsettled_live(), None, "seed {seed}");
        let after = ratio(&mut world);
        assert!(after < 0.9 * before, "seed {seed}: {before} {after}");
        world.run_for_s(QUIET_S);
        assert!(own_plans(&world).len() <= 3, "seed {seed}");
        assert_eq!(world.checks.violation, None, "seed {seed}");
    }
}

#[test]
fn an_operators_plan_ends_a_running_balancing_plan() {
    let mut world = skewed(7, 1 << 40);
    while own_plans(&world).is_empty() {
        world.run_for_s(1);
    }
    let leader = world.store.current().all_nodes().nth(1).map(|node| node.id);
    let plan = Box::new(led_by(&world, leader.unwrap()));
    let asked = world.submit(Request::Rebalance { plan });
    world.run_for_s(60);
    let id = world.ops[asked].id.clone();
    let work = &world.store.current().work;
    let mut plans = work.rebalances.iter();
    let asked = plans.find(|plan| plan.request == id).unwrap();
    assert_eq!(asked.stage, MoveStage::Done);
    assert_eq!(world.checks.violation, None);
}
