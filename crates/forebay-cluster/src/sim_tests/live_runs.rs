//! Runs of live tables: they are created and dropped, and their nodes die, forget, return, and
//! drain.

use std::collections::BTreeSet;
use std::time::Duration;

use forebay_engine::live::LiveDraft;
use forebay_engine::{Bound, RunId, TableName};
use forebay_io::sim::all_hold;
use forebay_run::Order;
use forebay_run::hash::SLOTS;

use super::inserts::{insert_plan, random_place};
use super::live::ReplicaPlace;
use super::plans::{draw_plan, summaries};
use super::world::{MS, SECOND, World};
use super::{Outcome, Setup};
use crate::bugs::{Bug, plant};
use crate::live_status::LiveStatus;
use crate::model::{EndedLoad, LiveEntry, LoadDraft, LoadedPartition, PlanGoal, Replication};
use crate::node::{FollowerEvent, NodeEvent};
use crate::planning::propose;
use crate::request::Request;

const SEEDS: u64 = 200;
/// The number of seeds within which the planted defect is found.
const FOUND_WITHIN: u64 = 100;

fn run(seed: u64, bug: Option<Bug>) -> Outcome {
    plant(bug);
    let mut world = World::new(seed);
    world.draw_timing(seed);
    let setup = Setup {
        nodes: 3 + world.rng.below(5) as usize,
        zones: 1 + world.rng.below(3) as usize,
        stormy_s: 20 + world.rng.below(60),
        faults: true,
    };
    world.is_faultless = world.rng.chance(100);
    if world.rng.chance(200) {
        let seconds = world.rng.between(15, 30);
        world.settings.replace_after = Some(Duration::from_secs(seconds));
    }
    world.build(&setup);
    world.run_for_s(8);
    for _ in 0..2 {
        let request = make(&mut world);
        world.submit(request);
    }
    world.run_for_s(5);
    let end = world.now + setup.stormy_s * SECOND;
    if !world.is_faultless {
        world.is_stormy = true;
        world.net.loss = world.rng.below(30);
        next_fault(&mut world, end);
    }
    next_request(&mut world, end);
    world.run_for_s(setup.stormy_s);
    world.calm_down();
    plant(None);
    world.outcome()
}

pub fn live(draft: LiveDraft) -> Box<LiveEntry> {
    Box::new(LiveEntry {
        options: draft.options,
        replication: Replication::Leader,
        last_load: EndedLoad::default(),
    })
}

fn make(world: &mut World) -> Request {
    let table = format!("live{}", world.rng.below(3));
    let partitions = world.rng.between(1, 8);
    let is_hashed = world.rng.chance(600);
    let slot = |at: u64| Bound::Slot((at * u64::from(SLOTS) / partitions) as u16);
    let key = |at: u64| match at {
        0 => Bound::Key(Vec::new()),
        at => Bound::Key(vec![b'a' + at as u8]),
    };
    let (draft, lowers) = match is_hashed {
        true => (LiveDraft::hashed(), (0..partitions).map(slot).collect()),
        false => (
            LiveDraft::ordered(Vec::new()),
            (0..partitions).map(key).collect(),
        ),
    };
    Request::MakeLive {
        table: TableName::new(&table).unwrap(),
        live: live(draft),
        lowers,
        replicas: [None, Some(1), Some(3), Some(5), Some(2)][world.rng.below(5) as usize],
    }
}

fn next_request(world: &mut World, end: u64) {
    let pause = world.rng.between(500, 12_000) * MS;
    if world.now + pause > end {
        return;
    }
    world.after(pause, move |world| {
        let table = TableName::new(&format!("live{}", world.rng.below(3))).unwrap();
        let request = match world.rng.below(16) {
            15 if world.rng.chance(500) => Request::LiveState {},
            15 => Request::Survey {
                tables: [table].into(),
            },
            13.. => insert_plan(world).unwrap_or_else(|| make(world)),
            10.. => random_split(world),
            0..3 => make(world),
            3 => Request::Drop { table },
            4 => match world.ops.last() {
                Some(op) => Request::Cancel {
                    rollout: op.id.clone(),
                },
                None => Request::Drop { table },
            },
            5 => replicas(world, table),
            6 => load(world, table),
            _ => draw_plan(world).unwrap_or_else(|| make(world)),
        };
        world.submit(request);
        next_request(world, end);
    });
}

/// Returns a load split by the current partitions, sometimes of a table that does not exist.
pub fn load(world: &mut World, table: TableName) -> Request {
    let model = world.store.current().clone();
    let groups = model.groups.get(&table).into_iter();
    let partitions = groups
        .flat_map(|groups| groups.all())
        .map(|group| LoadedPartition {
            partition: group.partition,
            epoch: group.epoch,
        });
    let load = LoadDraft {
        id: RunId::new("0123456789abcdef").unwrap(),
        sum: 0,
        partitions: partitions.collect(),
        rows: 0,
        bytes: 0,
        deadline_ms: world.rng.between(5, 120) * 1000,
    };
    let load = Box::new(load);
    Request::Load { table, load }
}

fn random_split(world: &mut World) -> Request {
    let model = world.store.current().clone();
    let tables: Vec<_> = model.live_tables().map(|(name, _)| name.clone()).collect();
    let Some(table) = tables.get(world.rng.below(tables.len().max(1) as u64) as usize) else {
        return make(world);
    };
    let order = model.table(table).map(|entry| entry.order);
    let at = random_place(world, order.unwrap_or(Order::Ordered));
    Request::Split {
        table: table.clone(),
        at,
    }
}

fn replicas(world: &mut World, table: TableName) -> Request {
    let count = [1, 3, 5][world.rng.below(3) as usize];
    let model = world.store.current().clone();
    let goal = PlanGoal::Replicas { table, count };
    match propose(&model, &summaries(&model), &goal, 1 << 30) {
        Ok(proposal) => Request::Rebalance {
            plan: Box::new(proposal.plan),
        },
        Err(_) => make(world),
    }
}

fn next_fault(world: &mut World, end: u64) {
    let pause = world.rng.between(200, 6000) * MS;
    if world.now + pause > end {
        return;
    }
    world.after(pause, move |world| {
        world.count("faults");
        let at = world.rng.below(world.hosts.len() as u64) as usize;
        let long = world.rng.between(100, 35_000) * MS;
        fault(world, at, long);
        next_fault(world, end);
    });
}

fn fault(world: &mut World, at: usize, long: u64) {
    match world.rng.below(9) {
        0..3 => {
            world.kill(at);
            forget(world, at);
            world.after(long, move |world| world.start(at));
        }
        3 => {
            world.pause(at);
            world.after(long, move |world| world.resume(at));
        }
        4 | 5 => world.isolate_for(at, long),
        6 => {
            world.store.is_away = true;
            world.after(long / 2, |world| world.store.is_away = false);
        }
        7 => {
            let life = world.life(at);
            world.notify(life, NodeEvent::Follower(FollowerEvent::Leave));
        }
        _ => damage(world, at),
    }
}

/// Returns the replicas of a host whose groups have a remembering majority without them.
fn spared(world: &World, at: usize) -> Vec<ReplicaPlace> {
    let places = world.hosts[at].disk.replicas.keys();
    let is_spared = |place: &&ReplicaPlace| {
        let (group, peer) = **place;
        let Some(there) = world.live.groups.get(&group) else {
            return false;
        };
        let voters = &there.members.voters;
        let others: Vec<_> = voters.iter().copied().filter(|one| *one != peer).collect();
        world.remembering(group, &others) > voters.len() / 2
    };
    places.filter(is_spared).copied().collect()
}

/// Restarts the machine, so that data that was not synced is lost.
fn forget(world: &mut World, at: usize) {
    if world.rng.chance(400) {
        for place in spared(world, at) {
            world.count("forgot");
            world.hosts[at].disk.replicas.remove(&place);
        }
    }
}

fn damage(world: &mut World, at: usize) {
    if let Some(place) = spared(world, at).first() {
        world.count("damaged");
        let replica = world.hosts[at].disk.replicas.get_mut(place);
        if let Some(replica) = replica {
            replica.is_damaged = true;
        }
    }
}

#[test]
fn the_same_seed_twice_is_the_same_run_of_live_tables() {
    for seed in 0..3 {
        let trace = || run(seed, None).trace;
        assert_eq!(trace(), trace(), "seed {seed}");
    }
}

#[test]
fn all_invariants_of_live_tables_hold_for_every_seed() {
    all_hold(SEEDS, |seed| {
        let outcome = run(seed, None);
        (outcome.violation, outcome.counts)
    });
}

#[test]
fn a_peer_reused_after_it_forgot_is_found() {
    let found = (0..FOUND_WITHIN)
        .find_map(|seed| Some((seed, run(seed, Some(Bug::ReusesAPeer)).violation?)));
    println!("{found:?}");
    let words = found.map(|(_, words)| words);
    assert!(words.is_some_and(|words| words.contains("made again, empty")));
}

#[test]
fn a_live_table_has_the_requested_number_of_replicas() {
    let mut world = super::matrix::quiet_cluster(World::new(3), 3, 0);
    let request = |name: &str, replicas| Request::MakeLive {
        table: TableName::new(name).unwrap(),
        live: live(LiveDraft::hashed()),
        lowers: vec![Bound::Slot(0), Bound::Slot(8000)],
        replicas: Some(replicas),
    };
    let asked = [
        ("carts", 3),
        ("carts", 3),
        ("few", 2),
        ("many", 5),
        ("flights", 3),
    ];
    let ops: Vec<usize> = asked
        .iter()
        .map(|(name, replicas)| {
            let at = world.submit(request(name, *replicas));
            world.run_for_s(10);
            at
        })
        .collect();
    let words = |at: usize| match &world.ops[ops[at]].report {
        Some(super::clients::Report::Refused(words)) => words.clone(),
        other => panic!("{other:?}"),
    };
    assert!(words(1).contains("already"));
    assert!(words(2).contains("majority"));
    assert!(words(3).contains("3 are up"), "{}", words(3));
    assert!(words(4).contains("already"));
    assert_eq!(world.unsettled_live(), None);
    let nodes: BTreeSet<_> = world
        .live
        .groups
        .values()
        .map(|group| group.term > 0)
        .collect();
    assert_eq!(
        (world.live.groups.len(), nodes),
        (2, BTreeSet::from([true]))
    );
    let table = TableName::new("carts").unwrap();
    let swapped = world.submit(Request::Rollback {
        tables: [table.clone()].into(),
        options: crate::model::RolloutOptions::default(),
    });
    world.run_for_s(10);
    let report = &world.ops[swapped].report;
    assert!(
        matches!(report, Some(super::clients::Report::Refused(words)) if words.contains("live table"))
    );
    world.submit(Request::Drop { table });
    world.run_for_s(10);
    assert!(world.hosts.iter().all(|host| host.disk.replicas.is_empty()));
    assert_eq!(world.checks.violation, None);
}

/// Builds live table `carts` of two partitions, on three nodes.
pub fn carts(seed: u64) -> World {
    carts_on(3, seed)
}

pub fn carts_on(nodes: usize, seed: u64) -> World {
    let mut world = super::matrix::quiet_cluster(World::new(seed), nodes, 0);
    world.submit(Request::MakeLive {
        table: TableName::new("carts").unwrap(),
        live: live(LiveDraft::hashed()),
        lowers: vec![Bound::Slot(0), Bound::Slot(8000)],
        replicas: Some(3),
    });
    world.run_for_s(20);
    world
}

pub fn status(world: &World) -> LiveStatus {
    let now = world.clock(0);
    let coordinator = world.hosts[0].process.as_ref().unwrap().node.coordinator();
    let coordinator = coordinator.unwrap();
    let (_, model) = coordinator.standing().unwrap();
    LiveStatus::of(model, coordinator.received_reports(), now).unwrap()
}

#[test]
fn an_unhealthy_replica_is_replaced_once_its_group_has_a_majority_without_it() {
    for seed in 0..10 {
        let mut world = carts(seed);
        let first = world.hosts[0].name.to_string();
        let mark_unhealthy = |world: &mut World| {
            let replicas = world.hosts[0].disk.replicas.values_mut();
            replicas.for_each(|replica| replica.is_unhealthy = true);
        };
        let places = |world: &World| -> Vec<ReplicaPlace> {
            world.hosts[0].disk.replicas.keys().copied().collect()
        };
        let of_table = |world: &World| {
            let status = status(world);
            status.tables[&TableName::new("carts").unwrap()].clone()
        };
        let before = places(&world);
        world.kill(2);
        world.run_for_s(15);
        mark_unhealthy(&mut world);
        world.run_for_s(20);
        assert_eq!(places(&world), before, "seed {seed}: the replica is needed");
        assert_eq!(
            of_table(&world).unhealthy,
            [(first, 2)].into(),
            "seed {seed}"
        );
        assert_eq!(of_table(&world).led, 2, "seed {seed}");
        world.start(2);
        world.run_for_s(60);
        assert!(places(&world).iter().all(|place| !before.contains(place)));
        assert_eq!(world.unsettled_live(), None, "seed {seed}");
        assert_eq!(of_table(&world).unhealthy, [].into(), "seed {seed}");
        assert_eq!(world.checks.violation, None, "seed {seed}");
    }
}

#[test]
fn a_group_whose_voters_are_down_is_reported() {
    let mut world = carts(5);
    let before = status(&world);
    assert_eq!((before.partitions, before.problems()), (2, Vec::new()));
    assert!(before.notes().is_empty());
    let of_table = |status: &LiveStatus| status.tables[&TableName::new("carts").unwrap()].clone();
    assert_eq!(
        (of_table(&before).partitions, of_table(&before).led),
        (2, 2)
    );
    world.kill(2);
    world.run_for_s(15);
    let unreachable = status(&world);
    let name = world.hosts[2].name.to_string();
    assert_eq!(
        of_table(&unreachable).unreachable,
        [(name.clone(), 2)].into()
    );
    let problems = unreachable.problems();
    assert!(
        problems
            .iter()
            .any(|problem| problem.contains("without an answer to their leaders"))
    );
    world.kill(1);
    world.run_for_s(15);
    let after = status(&world);
    let counts = [&after.without_majority, &after.without_leader].map(|some| some.count);
    assert_eq!(counts, [2, 2], "{after:?}");
    let problems = after.problems();
    let first = &problems[0];
    assert!(
        first.contains("partition 0 of carts and 1 more: no majority"),
        "{first}"
    );
    assert!(
        first.contains("force-recover carts") && first.contains(&name),
        "{first}"
    );
    (1..3).for_each(|host| world.start(host));
    world.run_for_s(30);
    assert_eq!(status(&world), before);
    assert_eq!(world.checks.violation, None);
}
