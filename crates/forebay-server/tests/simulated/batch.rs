//! Batch tables: versions and reads at every node, while nodes die, are cut off and return.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use forebay_cluster::Timing;
use forebay_cluster::model::{Phase, Rollout};
use forebay_cluster::request::Request;
use forebay_engine::StoreError;
use forebay_io::sim::Rng;
use forebay_run::Order;

use super::clients::{Reading, asked};
use super::cluster::{SimCluster, TestTimer, key, name, value};
use super::common::{Reply, text_of};
use super::node::{GATEWAY, SimNode};

const ROWS: u32 = 50;

/// The version of all rows of a table, as a node answers them; `None` if it does not answer yet.
fn version_at(node: &SimNode, table: &str) -> Option<u32> {
    let keys: Vec<String> = (0..ROWS).map(|n| format!("{table}:{}", key(n))).collect();
    let words: Vec<&str> = ["MGET"]
        .into_iter()
        .chain(keys.iter().map(String::as_str))
        .collect();
    let Ok(Reply::Array(values)) = asked(&mut node.try_client(GATEWAY).ok()?, &words) else {
        return None;
    };
    let texts: Vec<String> = values.iter().map(text_of).collect();
    let version = texts[0].rsplit_once(" of ")?.1.parse().ok()?;
    let wanted: Vec<String> = (0..ROWS).map(|n| value(n, version)).collect();
    assert_eq!(texts, wanted, "at {}", node.name());
    Some(version)
}

/// Checks that all running nodes answer with that version.
fn serves_everywhere(cluster: &SimCluster, table: &str, version: u32) {
    for node in cluster.nodes.iter().filter(|node| node.is_running()) {
        assert_eq!(version_at(node, table), Some(version), "at {}", node.name());
    }
}

/// Waits until all running nodes answer with that version. Meanwhile none answers with an older
/// one, except a node that was cut off and does not know the version yet.
fn until_all_serve(cluster: &SimCluster, table: &str, version: u32, cut_off: Option<u8>) {
    for node in cluster.nodes.iter().filter(|node| node.is_running()) {
        cluster.until("the version serves", |_| {
            let found = version_at(node, table)?;
            if found < version && cut_off == Some(node.number) {
                return None;
            }
            assert_eq!(found, version, "at {}", node.name());
            Some(())
        });
    }
}

fn excluded_nodes(cluster: &SimCluster, rollout: &Rollout) -> BTreeSet<String> {
    let model = cluster.model();
    let name = |id| model.node_name(id);
    rollout.excluded.iter().copied().map(name).collect()
}

/// Otherwise the store would lose its files, and nodes that have fetched them would serve it.
#[test]
fn a_table_is_not_dropped_while_its_first_version_is_rolled_out() {
    let cluster = SimCluster::of(3);
    let coordinator = cluster.coordinator();
    let numbers = cluster.nodes.iter().map(|node| node.number);
    let mut others = numbers.filter(|number| *number != coordinator);
    // The rollout waits for it until it counts as excluded.
    cluster.cut_off(others.next().unwrap());
    let pusher = cluster.pusher("words", ROWS, 1);
    cluster.until("the version is rolled out", |cluster| {
        let model = cluster.model();
        model.work.rollout_of(&name("words")).map(|_| ())
    });
    let refused = cluster.store.drop_table(&name("words"));
    assert!(
        matches!(&refused, Err(StoreError::Refused { is_busy: true, .. })),
        "{refused:?}"
    );
    assert_eq!(pusher.join().unwrap().phase, Phase::Confirmed);
    cluster.store.drop_table(&name("words")).unwrap();
    assert!(cluster.model().table(&name("words")).is_none());
}

/// This holds even if the coordinator restarted, so that no node asks it for updates.
#[test]
fn nodes_soon_learn_of_a_shortened_node_timeout() {
    let mut cluster = SimCluster::of(3);
    let set = |seconds| Request::SetTiming {
        timing: Timing::new(Duration::from_secs(seconds)).unwrap(),
    };
    cluster.carry_out(&set(600));
    cluster.sleep(Duration::from_secs(30));
    let coordinator = cluster.coordinator();
    cluster.node(coordinator).kill();
    cluster.node(coordinator).start();
    cluster.carry_out(&set(3));
    let begun = cluster.now();
    cluster.until("all nodes have the head", |cluster| {
        let (head, _) = cluster.client().model().ok()?;
        let mut nodes = cluster.received()?.nodes.into_iter();
        let has = |serves: Option<u64>| serves.is_some_and(|serves| serves >= head.revision);
        nodes
            .all(|node| node.state == "up" && has(node.serves))
            .then_some(())
    });
    let took = cluster.now() - begun;
    println!("{took:?}");
    assert!(took < Duration::from_secs(20), "it took {took:?}");
}

#[test]
fn a_version_is_read_at_every_node_once_its_push_ends() {
    let cluster = SimCluster::of(3);
    for version in 1..=3 {
        let timed = TestTimer::new("a push", &cluster);
        let rollout = cluster.push("words", ROWS, version);
        drop(timed);
        assert_eq!(excluded_nodes(&cluster, &rollout), BTreeSet::new());
        serves_everywhere(&cluster, "words", version);
    }
}

#[test]
fn two_tables_swap_at_one_moment_under_readers() {
    let cluster = SimCluster::of(3);
    let tables = ["a", "b"];
    for table in tables {
        cluster.push(table, ROWS, 1);
    }
    let reading = Reading::everywhere(&cluster, &tables, ROWS);
    let all_see = |version| reading.iter().for_each(|one| one.until(&cluster, version));
    all_see(1);
    let rows = || (0..ROWS).map(|n| (key(n).into_bytes(), value(n, 2).into_bytes()));
    let built = tables.map(|table| {
        let number = cluster.push_only(table, Order::Hashed, rows().collect());
        (name(table), number)
    });
    cluster
        .pointers
        .swap(&BTreeMap::from(built))
        .expect("swapped");
    all_see(2);
    let both = BTreeSet::from(tables.map(name));
    cluster.pointers.rollback(&both).expect("rolled back");
    all_see(1);
    reading
        .into_iter()
        .for_each(|one| one.check_seen(&[1, 2, 1]));
}

#[test]
fn a_push_survives_a_kill_of_the_coordinator() {
    let mut cluster = SimCluster::of(5);
    cluster.push("words", ROWS, 1);
    let lost = cluster.coordinator();
    let mut reading = Reading::everywhere(&cluster, &["words"], ROWS);
    drop(reading.remove(usize::from(lost) - 1));
    cluster.node(lost).kill();
    let timed = TestTimer::new("a push without its coordinator", &cluster);
    let begun = cluster.now();
    let rollout = cluster.push("words", ROWS, 2);
    // Until the node is excluded, and another is the coordinator.
    assert!(cluster.now() - begun < cluster.timing.node_timeout() * 9 / 2);
    drop(timed);
    assert_eq!(
        excluded_nodes(&cluster, &rollout),
        BTreeSet::from([format!("n{lost}")])
    );
    assert_ne!(cluster.coordinator(), lost);
    for one in reading {
        one.until(&cluster, 2);
        one.check_seen(&[1, 2]);
    }
    cluster.node(lost).start();
    until_all_serve(&cluster, "words", 2, None);
    cluster.until_all_up();
    let rollout = cluster.push("words", ROWS, 3);
    assert_eq!(excluded_nodes(&cluster, &rollout), BTreeSet::new());
    serves_everywhere(&cluster, "words", 3);
}

#[test]
fn one_node_is_killed_with_its_disk_and_one_is_cut_off() {
    let mut cluster = SimCluster::of(5);
    cluster.push("words", ROWS, 1);
    let coordinator = cluster.coordinator();
    let others: Vec<u8> = (1..=5).filter(|number| *number != coordinator).collect();
    // For each zone there are at least two replicas of each part in other zones.
    let faulty = [[1, 4], [2, 5]]
        .into_iter()
        .find(|pair| !pair.contains(&coordinator));
    let [killed, cut] = faulty.expect("a zone");
    let mut reading = Reading::everywhere(&cluster, &["words"], ROWS);
    for number in [killed.max(cut), killed.min(cut)] {
        drop(reading.remove(usize::from(number) - 1));
    }
    cluster.node(killed).kill();
    cluster.cut_off(cut);
    let rollout = cluster.push("words", ROWS, 2);
    let names = BTreeSet::from([format!("n{killed}"), format!("n{cut}")]);
    assert_eq!(excluded_nodes(&cluster, &rollout), names);
    let status = cluster.client().status().expect("a status");
    let down = status.nodes.iter().filter(|node| node.state == "down");
    assert_eq!(
        down.map(|node| node.name.clone()).collect::<BTreeSet<_>>(),
        names
    );
    assert!(!status.healthy, "{status:?}");
    for number in others.iter().chain([&coordinator]) {
        if ![killed, cut].contains(number) {
            assert_eq!(version_at(cluster.node(*number), "words"), Some(2));
        }
    }
    cluster.world.net.heal();
    cluster.node(killed).disk = forebay_io::sim::SimDisk::new();
    cluster.node(killed).start();
    cluster.until_all_up();
    until_all_serve(&cluster, "words", 2, None);
    let rollout = cluster.push("words", ROWS, 3);
    assert_eq!(excluded_nodes(&cluster, &rollout), BTreeSet::new());
    serves_everywhere(&cluster, "words", 3);
    for one in reading {
        one.until(&cluster, 3);
        one.check_seen(&[1, 2, 3]);
    }
}

#[test]
fn nodes_restart_with_their_data() {
    let mut cluster = SimCluster::of(5);
    cluster.push("words", ROWS, 1);
    for _ in 0..2 {
        cluster.nodes.iter_mut().for_each(SimNode::stop);
        cluster.nodes.iter_mut().for_each(SimNode::start);
        until_all_serve(&cluster, "words", 1, None);
        cluster.until_all_up();
    }
    let rollout = cluster.push("words", ROWS, 2);
    assert_eq!(excluded_nodes(&cluster, &rollout), BTreeSet::new());
    serves_everywhere(&cluster, "words", 2);
}

/// The faults of a node during a push.
#[derive(Debug, Clone, Copy)]
enum NodeFault {
    Kill,
    PowerCut,
    Stop,
    CutOff,
}

const NODE_FAULTS: [NodeFault; 4] = [
    NodeFault::Kill,
    NodeFault::PowerCut,
    NodeFault::Stop,
    NodeFault::CutOff,
];

/// During each push, any node fails and returns at any moment. Meanwhile the others answer from one
/// version, and at the end from the newest one.
#[test]
fn pushes_succeed_while_any_node_fails_at_any_moment() {
    let mut cluster = SimCluster::of(4);
    cluster.push("words", ROWS, 1);
    let mut rng = Rng(cluster.seed);
    for version in 2..=5 {
        let faulty = 1 + rng.below(4) as u8;
        let fault = NODE_FAULTS[rng.below(4) as usize];
        let after = Duration::from_millis(rng.below(1500));
        let most_away_ms = 3 * cluster.timing.node_timeout().as_millis() as u64;
        let away = Duration::from_millis(rng.below(most_away_ms));
        println!("version {version}: {fault:?} of n{faulty} after {after:?} for {away:?}");
        let mut reading = Reading::everywhere(&cluster, &["words"], ROWS);
        drop(reading.remove(usize::from(faulty) - 1));
        let client = cluster.pusher("words", ROWS, version);
        cluster.sleep(after);
        let cut = rng.next_u64();
        match fault {
            NodeFault::Kill => cluster.node(faulty).kill(),
            NodeFault::PowerCut => cluster.node(faulty).cut_power(cut),
            NodeFault::Stop => cluster.node(faulty).stop(),
            NodeFault::CutOff => cluster.cut_off(faulty),
        }
        cluster.sleep(away);
        match fault {
            NodeFault::CutOff => cluster.world.net.heal(),
            _ => cluster.node(faulty).start(),
        }
        client.join().expect("the version is rolled out");
        let cut_off = matches!(fault, NodeFault::CutOff).then_some(faulty);
        until_all_serve(&cluster, "words", version, cut_off);
        cluster.until_all_up();
        for one in reading {
            one.until(&cluster, version);
            one.check_seen(&[version - 1, version]);
        }
    }
}
