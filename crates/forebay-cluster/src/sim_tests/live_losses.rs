//! Tests of live tables that lost their majority for good, and of recovery from that.

use forebay_engine::{Bound, PartitionId, TableName};
use forebay_replica::GroupId;

use super::clients::Report;
use super::live_runs::{carts, carts_on, status};
use super::plans::summaries;
use super::world::World;
use crate::ids::NodeId;
use crate::model::{MoveStage, PeerEntry, PlanGoal};
use crate::planning::propose;
use crate::request::Request;

/// Requests to force-recover both partitions, and returns the refusal.
fn force_recover(world: &mut World) -> Option<String> {
    let asked = world.submit(Request::ForceRecover {
        table: TableName::new("carts").unwrap(),
        partitions: vec![PartitionId(0), PartitionId(1)],
    });
    world.run_for_s(10);
    match &world.ops[asked].report {
        Some(Report::Refused(words)) => Some(words.clone()),
        _ => None,
    }
}

#[test]
fn a_force_recovered_partition_continues_from_the_remaining_replica() {
    for seed in 0..20 {
        let mut world = carts(seed);
        let groups = |world: &World| -> Vec<GroupId> {
            let groups = world.store.current().all_groups();
            groups.map(|(_, group)| group.group).collect()
        };
        let before = groups(&world);
        let refused = force_recover(&mut world).unwrap();
        assert!(refused.contains("nothing is lost"), "{refused}");
        world.kill(1);
        world.run_for_s(15);
        let refused = force_recover(&mut world).unwrap();
        assert!(refused.contains("nothing is lost"), "{refused}");
        world.kill(2);
        // One comes back without its data, the other with it.
        world.hosts[1].disk.replicas.clear();
        world.run_for_s(15);
        let lost = status(&world).lost;
        let remaining = lost
            .iter()
            .map(|lost| (lost.gone.len(), lost.remaining.len()));
        assert_eq!(remaining.collect::<Vec<_>>(), [(2, 1), (2, 1)], "{lost:?}");
        assert_eq!(force_recover(&mut world), None);
        world.run_for_s(10);
        let led = status(&world);
        assert_eq!(
            (led.without_majority.count, led.without_leader.count),
            (0, 0)
        );
        assert!(groups(&world).iter().all(|group| !before.contains(group)));
        (1..3).for_each(|host| world.start(host));
        world.run_for_s(60);
        assert_eq!(world.unsettled_live(), None, "seed {seed}");
        let mut places = world
            .hosts
            .iter()
            .flat_map(|host| host.disk.replicas.keys());
        assert!(!places.any(|(group, _)| before.contains(group)));
        assert_eq!(world.checks.violation, None, "seed {seed}");
    }
}

/// A node replaces a dead one while the other dead node is still in a list. The plan does not wait
/// for nodes that are down, have no replica any more and get none by it.
#[test]
fn after_a_loss_plans_replace_the_dead_nodes() {
    let mut replaced = 0;
    for seed in 0..20 {
        let mut world = carts_on(5, seed);
        let mut named: Vec<_> = world.store.current().all_nodes().collect();
        named.sort_by_key(|entry| &entry.name);
        let nodes: Vec<NodeId> = named.iter().map(|entry| entry.id).collect();
        assert_eq!(
            carry_out(&mut world, PlanGoal::Drain([nodes[0]].into())),
            Ok(())
        );
        world.kill(3);
        world.kill(4);
        world.run_for_s(20);
        for lost in [PartitionId(0), PartitionId(1)] {
            world.submit(Request::ForceRecover {
                table: TableName::new("carts").unwrap(),
                partitions: vec![lost],
            });
        }
        world.run_for_s(30);
        let replace = PlanGoal::Replace {
            gone: nodes[3],
            new: nodes[0],
        };
        assert_eq!(carry_out(&mut world, replace), Ok(()), "seed {seed}");
        replaced += usize::from(status(&world).short.count > 0);
        let drain = PlanGoal::Drain([nodes[4]].into());
        assert_eq!(carry_out(&mut world, drain), Ok(()), "seed {seed}");
        let model = world.store.current();
        let mut peers = model.all_groups().flat_map(|(_, group)| &group.peers);
        let is_dead = |peer: &PeerEntry| nodes[3..].contains(&peer.node);
        assert!(!peers.any(is_dead), "seed {seed}");
        assert_eq!(status(&world).short.count, 0, "seed {seed}");
        assert_eq!(world.checks.violation, None, "seed {seed}");
    }
    assert!(replaced > 0, "no plan continued while a node was down");
}

/// Makes a plan, carries it out, and returns why it failed.
fn carry_out(world: &mut World, goal: PlanGoal) -> Result<(), String> {
    let model = world.store.current().clone();
    let plan =
        propose(&model, &summaries(&model), &goal, 1 << 30).map_err(|error| error.to_string())?;
    let asked = world.submit(Request::Rebalance {
        plan: Box::new(plan.plan),
    });
    world.run_for_s(120);
    if let Some(Report::Refused(words)) = &world.ops[asked].report {
        return Err(words.clone());
    }
    let last = world.store.current().work.rebalances.last();
    let last = last.ok_or("there is no plan")?;
    match last.stage {
        MoveStage::Done => Ok(()),
        stage => Err(format!("{stage:?}, {:?}", last.reason)),
    }
}

/// Nodes to which a plan moves a partition are up, and have nothing of it yet.
#[test]
fn no_load_begins_while_a_plan_waits_for_majorities() {
    let mut world = carts_on(4, 2);
    let model = world.store.current().clone();
    let host_of = |world: &World, node: NodeId| {
        let name = model.node_name(node);
        let mut hosts = world.hosts.iter();
        hosts.position(|host| host.name.to_string() == name)
    };
    let table = TableName::new("carts").unwrap();
    let (_, held) = model.desired_groups(&table)[0];
    let others = held
        .iter()
        .filter(|node| host_of(&world, **node) != Some(0));
    let dead: Vec<NodeId> = others.take(2).copied().collect();
    for node in &dead {
        let host = host_of(&world, *node).unwrap();
        world.kill(host);
    }
    // They do not count as down yet.
    world.run_for_s(2);
    let goal = PlanGoal::Drain([dead[0]].into());
    let plan = propose(&model, &summaries(&model), &goal, 1 << 30).unwrap();
    world.submit(Request::Rebalance {
        plan: Box::new(plan.plan),
    });
    world.run_for_s(30);
    let model = world.store.current().clone();
    assert!(model.work.moving().is_some());
    let peers = model.all_groups().map(|(_, group)| group.peers.len());
    assert_eq!(peers.max(), Some(4), "nothing is copied");
    let load = super::live_runs::load(&mut world, table);
    let asked = world.submit(load);
    world.run_for_s(20);
    let report = &world.ops[asked].report;
    let is_refused = matches!(report, Some(Report::Refused(words)) if words.contains("majority"));
    assert!(is_refused, "{report:?}");
}

/// No node could copy a partition to nodes that are down.
#[test]
fn no_plan_leaves_a_partition_only_on_dead_nodes() {
    let mut world = carts(3);
    world.kill(1);
    world.kill(2);
    world.run_for_s(20);
    let _ = force_recover(&mut world);
    world.run_for_s(20);
    let goal = PlanGoal::Replicas {
        table: TableName::new("carts").unwrap(),
        count: 1,
    };
    let refused = carry_out(&mut world, goal).unwrap_err();
    assert!(refused.contains("nodes that are down"), "{refused}");
}

/// A plan would wait for a node that is down, and a split for a majority.
#[test]
fn a_request_that_would_wait_for_dead_nodes_is_refused() {
    let mut world = carts_on(5, 9);
    let named = |world: &World, name: &str| {
        let mut all = world.store.current().all_nodes();
        all.find(|entry| entry.name.as_str() == name)
            .map(|entry| entry.id)
    };
    let (first, last) = (named(&world, "n0").unwrap(), named(&world, "n4").unwrap());
    assert_eq!(
        carry_out(&mut world, PlanGoal::Drain([last].into())),
        Ok(())
    );
    world.kill(4);
    world.run_for_s(20);
    for goal in [
        PlanGoal::Add([last].into()),
        PlanGoal::Replace {
            gone: first,
            new: last,
        },
    ] {
        let refused = carry_out(&mut world, goal).unwrap_err();
        assert!(
            refused.contains("n4 is to hold more, and is down"),
            "{refused}"
        );
    }
    (1..4).for_each(|host| world.kill(host));
    world.run_for_s(20);
    let split = world.submit(Request::Split {
        table: TableName::new("carts").unwrap(),
        at: Bound::Slot(100),
    });
    world.run_for_s(20);
    let report = &world.ops[split].report;
    let is_refused = matches!(report, Some(Report::Refused(words)) if words.contains("no leader"));
    assert!(is_refused, "{report:?}");
}

#[test]
fn a_partition_with_no_replica_left_is_not_force_recovered() {
    let mut world = carts(7);
    (0..3).for_each(|host| world.kill(host));
    world.hosts[0].disk.replicas.clear();
    world.start(0);
    world.run_for_s(30);
    let refused = force_recover(&mut world).unwrap();
    // A node that is up and has not reported its position may still have data.
    let words = [
        "nothing to continue from",
        "there is no report of the replica",
    ];
    assert!(
        words.iter().any(|words| refused.contains(words)),
        "{refused}"
    );
    (1..3).for_each(|host| world.start(host));
    world.run_for_s(60);
    assert_eq!(world.unsettled_live(), None);
    assert_eq!(world.checks.violation, None);
}
