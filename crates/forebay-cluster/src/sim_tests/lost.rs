//! Tests of data on nodes that do not return.

use std::time::Duration;

use super::clients::Report;
use super::matrix::{push, quiet_cluster};
use super::world::{World, table};
use crate::ids::NodeId;
use crate::model::{MoveStage, RolloutOptions};
use crate::planning::holders;
use crate::request::Request;

/// Builds seven nodes, with the first as the coordinator. `seconds`: the time after which other
/// nodes take over.
fn cluster(seconds: u64) -> World {
    let mut world = World::new(7);
    world.settings.replace_after = Some(Duration::from_secs(seconds));
    quiet_cluster(world, 7, 0)
}

fn number(world: &World, host: usize) -> NodeId {
    let model = world.store.current();
    model.node_named(&world.hosts[host].name).unwrap().id
}

fn holds(world: &World, host: usize) -> bool {
    holders(world.store.current()).contains(&number(world, host))
}

#[test]
fn the_data_of_a_lost_node_is_copied_to_others() {
    let mut world = cluster(60);
    world.kill(3);
    world.run_for_s(50);
    assert!(holds(&world, 3), "the node may still return");
    world.run_for_s(90);
    assert!(!holds(&world, 3), "{:?}", world.checks.violation);
    let work = &world.store.current().work;
    assert_eq!(work.rebalances.last().unwrap().stage, MoveStage::Done);
    assert!(work.drained.contains(&number(&world, 3)));
    world.start(3);
    world.run_for_s(60);
    assert!(!holds(&world, 3), "no operator has added it again");
    assert_eq!(world.checks.violation, None);
}

#[test]
fn nothing_is_copied_while_two_nodes_are_lost() {
    let mut world = cluster(30);
    world.kill(3);
    world.kill(4);
    world.run_for_s(120);
    assert!(holds(&world, 3) && holds(&world, 4));
    assert!(world.store.current().work.rebalances.is_empty());
    world.start(4);
    world.run_for_s(60);
    assert!(!holds(&world, 3), "a single lost node is replaced");
    assert_eq!(world.checks.violation, None);
}

#[test]
fn a_paused_node_is_not_replaced_before_its_pause_ends() {
    let mut world = cluster(30);
    let node = world.hosts[3].name.clone();
    world.submit(Request::Pause {
        node,
        for_ms: 100_000,
    });
    world.run_for_s(5);
    world.kill(3);
    world.run_for_s(80);
    assert!(holds(&world, 3));
    world.run_for_s(60);
    assert!(!holds(&world, 3), "the pause is over");
    assert_eq!(world.checks.violation, None);
}

#[test]
fn a_rollback_does_not_wait_for_ranges_whose_nodes_are_all_down() {
    let mut world = quiet_cluster(World::new(8), 5, 0);
    let pushed = world.submit(push(2));
    world.run_for_s(15);
    assert!(matches!(
        world.ops[pushed].report,
        Some(Report::Done { .. })
    ));
    (2..5).for_each(|host| world.kill(host));
    world.run_for_s(1);
    let taken_back = world.submit(Request::Rollback {
        tables: [table(0).0].into(),
        options: RolloutOptions::default(),
    });
    world.run_for_s(45);
    let report = &world.ops[taken_back].report;
    assert!(matches!(report, Some(Report::Done { .. })), "{report:?}");
    let serving = |world: &World| world.store.current().table(&table(0).0).unwrap().serving;
    assert_eq!(serving(&world), Some(1));
    // Nodes that return answer from the versions that serve then.
    (2..5).for_each(|host| world.start(host));
    world.run_for_s(30);
    let active = |host: usize| world.hosts[host].process.as_ref().unwrap().active.clone();
    assert!((2..5).all(|host| active(host)[&table(0).0].version == 1));
    assert_eq!(world.checks.violation, None);
}
