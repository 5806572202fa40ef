//! The swap matrix: five moments of a push, six faults, and which of five nodes they hit.
//!
//! Each of the 150 cases asserts the outcome of the push.

use std::collections::{BTreeMap, BTreeSet};

use super::Setup;
use super::clients::Report;
use super::engine::Trouble;
use super::world::{Moment, SECOND, World, table};
use crate::bugs::{Bug, plant};
use crate::ids::NodeId;
use crate::model::{Phase, RolloutOptions};
use crate::request::{Request, SwapTo};

const NODES: usize = 5;
/// Longer than a new coordinator needs to exclude a node.
const DEAD_S: u64 = 90;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    NodeDead,
    NodeCutOff,
    CoordinatorDead,
    StoreAway,
    Damaged,
    Operator,
}

const MOMENTS: [Moment; 5] = [
    Moment::Preparing,
    Moment::Verifying,
    Moment::Committing,
    Moment::Confirming,
    Moment::Reverting,
];

const FAULTS: [Fault; 6] = [
    Fault::NodeDead,
    Fault::NodeCutOff,
    Fault::CoordinatorDead,
    Fault::StoreAway,
    Fault::Damaged,
    Fault::Operator,
];

pub fn push(version: u64) -> Request {
    let to = SwapTo {
        version,
        replicas: None,
        keep: 3,
        replaces: None,
    };
    Request::Swap {
        tables: BTreeMap::from([(table(0).0, to)]),
        options: RolloutOptions {
            deadline_ms: 30_000,
            ..RolloutOptions::default()
        },
        force: false,
    }
}

/// Builds a cluster with that node as the coordinator, which serves version 1.
pub fn quiet_cluster(mut world: World, nodes: usize, coordinator: usize) -> World {
    let setup = Setup {
        nodes: 0,
        zones: 1,
        stormy_s: 0,
        faults: false,
    };
    world.build(&Setup { nodes, ..setup });
    for host in &mut world.hosts {
        (host.cut_off_ms, host.drift, host.unix_offset_ms) = (None, 0, 0);
    }
    world.start(coordinator);
    world.run_for_s(8);
    let first = world.submit(push(1));
    world.run_for_s(15);
    let is_done = matches!(world.ops[first].report, Some(Report::Done { .. }));
    assert!(
        is_done,
        "{:?} {:?}",
        world.ops[first], world.checks.violation
    );
    world
}

fn coordinator(world: &World) -> Option<usize> {
    let is_it = |host: &super::world::SimHost| {
        let process = host.process.as_ref();
        process.is_some_and(|process| process.node.coordinator().is_some())
    };
    world.hosts.iter().position(is_it)
}

fn inject(world: &mut World, fault: Fault, node: usize, pushed: usize) {
    match fault {
        Fault::NodeDead => {
            world.kill(node);
            world.after(DEAD_S * SECOND, move |world| world.start(node));
        }
        Fault::NodeCutOff => {
            world.isolate(node);
            world.store.cut.insert(node);
            world.after(DEAD_S * SECOND, World::heal);
        }
        Fault::CoordinatorDead => {
            let at = coordinator(world).unwrap_or(node);
            world.kill(at);
            world.after(3 * SECOND, move |world| world.start(at));
        }
        Fault::StoreAway => {
            world.store.is_away = true;
            world.after(20 * SECOND, World::heal);
        }
        Fault::Damaged => {
            let trouble = &mut world.hosts[node].trouble;
            (trouble.is_full, trouble.is_damaged) =
                (node.is_multiple_of(2), !node.is_multiple_of(2));
        }
        Fault::Operator if node.is_multiple_of(2) => {
            let rollout = world.ops[pushed].id.clone();
            world.submit(Request::Cancel { rollout });
        }
        Fault::Operator => {
            world.submit(push(3));
        }
    }
}

/// Checks the report of the push to an operator; the error text names the expected one.
fn expected(
    moment: Moment,
    fault: Fault,
    hit: NodeId,
    reported: &Report,
    other: Option<&Report>,
) -> Result<(), &'static str> {
    use Fault::{CoordinatorDead, Damaged, NodeCutOff, NodeDead, Operator, StoreAway};
    let only_hit = BTreeSet::from([hit]);
    let done_without = matches!(reported, Report::Done { excluded } if excluded.is_empty());
    let done_but_hit = matches!(reported, Report::Done { excluded } if *excluded == only_hit);
    let aborted = matches!(
        reported,
        Report::Undone {
            phase: Phase::Aborted,
            ..
        }
    );
    let reverted = matches!(
        reported,
        Report::Undone {
            phase: Phase::Reverted,
            ..
        }
    );
    let (fits, should) = match (moment, fault) {
        (Moment::Reverting, _) => (reverted, "reverted"),
        (Moment::Confirming, NodeDead | NodeCutOff) => (
            done_but_hit || done_without,
            "done, at most without the node",
        ),
        (_, NodeDead | NodeCutOff) => (done_but_hit, "done without the node"),
        (_, CoordinatorDead) => (done_without, "done"),
        (Moment::Preparing, StoreAway) => (aborted || done_without, "aborted or done"),
        (_, StoreAway) => (done_without, "done"),
        (Moment::Preparing, Damaged) => (aborted, "aborted"),
        (Moment::Verifying, Damaged) => (aborted || done_without, "aborted or done"),
        (_, Damaged) => (done_without, "done"),
        (_, Operator) if hit.0.is_multiple_of(2) => {
            let cancelled = matches!(other, Some(Report::Done { .. }));
            (
                cancelled == aborted && (aborted || done_without),
                "aborted if the cancel was done",
            )
        }
        (_, Operator) => {
            // Another push that succeeds as well came after the end of this push.
            let is_answered = matches!(other, Some(Report::Refused(_) | Report::Done { .. }));
            let is_refused = is_answered || moment != Moment::Preparing;
            (
                done_without && is_refused,
                "done, with the other push refused",
            )
        }
    };
    match fits {
        true => Ok(()),
        false => Err(should),
    }
}

fn case(moment: Moment, fault: Fault, node: usize) -> Result<(), String> {
    // The faulty node is not the coordinator, unless that is the fault.
    let first = match fault {
        Fault::NodeDead | Fault::NodeCutOff => (node + 1) % NODES,
        _ => node,
    };
    let seed = moment as u64 * 100 + fault as u64 * 10 + node as u64;
    let mut world = quiet_cluster(World::new(seed), NODES, first);
    if moment == Moment::Reverting {
        world.hosts[(node + 2) % NODES].trouble.refuses_activation = true;
    }
    let pushed = world.ops.len();
    let strikes = move |world: &mut World| {
        for host in &mut world.hosts {
            host.trouble = Trouble::default();
        }
        inject(world, fault, node, pushed);
    };
    world.hook = Some((moment, Box::new(strikes)));
    world.submit(push(2));
    world.run_for_s(DEAD_S - 5);
    let is_injected = world.hook.is_none();
    let reported = world.ops[pushed].report.clone();
    let other = world.ops.get(pushed + 1).and_then(|op| op.report.clone());
    world.calm_down();
    let name = world.hosts[node].name.clone();
    let id = world.store.current().node_named(&name).map(|node| node.id);
    let problem = world.checks.violation.clone();
    let place = format!("{moment:?}, {fault:?}, node {node}");
    if let Some(problem) = problem {
        return Err(format!("{place}: {problem}"));
    }
    let (Some(reported), Some(id), true) = (reported, id, is_injected) else {
        return Err(format!(
            "{place}: no report in time, or no fault ({is_injected})"
        ));
    };
    let parity = NodeId(match fault {
        Fault::Operator => node as u32,
        _ => id.0,
    });
    expected(moment, fault, parity, &reported, other.as_ref())
        .map_err(|should| format!("{place}: {reported:?}, {other:?}; expected: {should}"))
}

#[test]
fn every_fault_at_every_moment_of_a_push_has_the_expected_outcome() {
    let mut wrong = Vec::new();
    for moment in MOMENTS {
        for fault in FAULTS {
            wrong.extend((0..NODES).filter_map(|node| case(moment, fault, node).err()));
        }
    }
    assert!(wrong.is_empty(), "{} of 150: {wrong:#?}", wrong.len());
}

/// A cluster of three nodes keeps working without any one of them.
#[test]
fn three_nodes_keep_working_without_one() {
    for dead in 0..3 {
        for first in 0..3 {
            let mut world = quiet_cluster(World::new(dead as u64), 3, first);
            world.kill(dead);
            let pushed = world.submit(push(2));
            world.run_for_s(75);
            let excluded = match &world.ops[pushed].report {
                Some(Report::Done { excluded }) => excluded.len(),
                other => panic!("{other:?}"),
            };
            assert_eq!(excluded, 1);
            for _ in 0..20 {
                world.gather((dead + 1) % 3);
                world.run_for_s(1);
            }
            let counts = &world.counts;
            assert!(counts["gathered"] >= 20, "{counts:?}");
            assert_eq!(
                (counts.get("no replica"), counts.get("try again")),
                (None, None)
            );
            assert_eq!(world.checks.violation, None);
        }
    }
}

/// A rollback does not wait for a push.
#[test]
fn a_rollback_commits_while_a_push_prepares() {
    let mut world = quiet_cluster(World::new(1), 3, 0);
    let second = world.submit(push(2));
    world.run_for_s(15);
    assert!(matches!(
        world.ops[second].report,
        Some(Report::Done { .. })
    ));
    for host in &mut world.hosts {
        host.trouble.is_stuck = true;
    }
    let third = world.submit(push(3));
    world.run_for_s(5);
    let rollback = world.submit(Request::Rollback {
        tables: BTreeSet::from([table(0).0]),
        options: RolloutOptions::default(),
    });
    world.run_for_s(8);
    let report = |at: usize| world.ops[at].report.clone();
    assert!(
        matches!(report(rollback), Some(Report::Done { .. })),
        "{:?}",
        report(rollback)
    );
    assert!(matches!(
        report(third),
        Some(Report::Undone {
            phase: Phase::Aborted,
            ..
        })
    ));
    assert_eq!(world.checks.violation, None);
}

#[test]
fn answers_from_a_replaced_version_are_found() {
    plant(Some(Bug::AnswersFromOld));
    let found = case(Moment::Preparing, Fault::NodeCutOff, 2);
    assert!(found.is_err_and(|found| found.contains("is answered")));
}

fn serves(world: &World, host: usize) -> bool {
    let process = world.hosts[host].process.as_ref();
    process.is_some_and(|process| !process.active.is_empty())
}

/// In a store that allows reads but no writes, no node coordinates.
#[test]
fn nodes_that_start_with_a_read_only_store_serve_their_data() {
    let mut world = quiet_cluster(World::new(21), 3, 0);
    world.kill(2);
    // The others detect that it is down.
    world.run_for_s(30);
    (0..2).for_each(|host| world.kill(host));
    world.store.is_read_only = true;
    world.run_for_s(5);
    (0..3).for_each(|host| world.start(host));
    world.run_for_s(20);
    assert!(
        (0..3).all(|host| !serves(&world, host)),
        "another node may still coordinate"
    );
    world.run_for_s(20);
    assert!((0..3).all(|host| serves(&world, host)));
    world.store.is_read_only = false;
    world.run_for_s(30);
    let model = world.store.current();
    assert!(model.all_nodes().all(|node| node.is_up()));
    assert_eq!(world.checks.violation, None);
}
