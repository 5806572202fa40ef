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

/// All running nodes answer with that version by now.
fn serves_everywhere(cluster: &SimCluster, table: &str, version: u32) {
    for node in cluster.nodes.iter().filter(|node| node.is_running()) {
        assert_eq!(version_at(node, table), Some(version), "at {}", node.name());
    }
}

/// All running nodes soon answer with that version, and none with an older one meanwhile. The
/// exception is a node that was cut off and has not yet learned of it.
fn comes_to_serve(cluster: &SimCluster, table: &str, version: u32, cut_off: Option<u8>) {
    for node in cluster.nodes.iter().filter(|node| node.is_running()) {
        cluster.until("it serves", |_| {
            let found = version_at(node, table)?;
            if found < version && cut_off == Some(node.number) {
                return None;
            }
            assert_eq!(found, version, "at {}", node.name());
            Some(())
        });
    }
}

fn left_out(cluster: &SimCluster, rollout: &Rollout) -> BTreeSet<String> {
    let model = cluster.model();
    let name = |id| model.node_name(id);
    rollout.excluded.iter().copied().map(name).collect()
}

/// Else its files would be gone from the store, and nodes that have fetched them would serve it.
#[test]
fn a_table_is_not_dropped_while_its_first_version_is_rolled_out() {
    let cluster = SimCluster::of(3);
    let coordinator = cluster.coordinator();
    let numbers = cluster.nodes.iter().map(|node| node.number);
    let mut others = numbers.filter(|number| *number != coordinator);
    // The rollout waits for it until it counts as excluded.
    cluster.cut_off(others.next().unwrap());
    let pusher = cluster.pusher("words", ROWS, 1);
    cluster.until("it is rolled out", |cluster| {
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

/// Also if the coordinator restarted meanwhile, so that no node asks it for updates.
#[test]
fn nodes_hear_soon_of_a_shortened_node_timeout() {
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
        assert_eq!(left_out(&cluster, &rollout), BTreeSet::new());
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
    reading.into_iter().for_each(|one| one.saw(&[1, 2, 1]));
}

#[test]
fn the_coordinator_is_killed_and_comes_back() {
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
        left_out(&cluster, &rollout),
        BTreeSet::from([format!("n{lost}")])
    );
    assert_ne!(cluster.coordinator(), lost);
    for one in reading {
        one.until(&cluster, 2);
        one.saw(&[1, 2]);
    }
    cluster.node(lost).start();
    comes_to_serve(&cluster, "words", 2, None);
    cluster.until_all_up();
    let rollout = cluster.push("words", ROWS, 3);
    assert_eq!(left_out(&cluster, &rollout), BTreeSet::new());
    serves_everywhere(&cluster, "words", 3);
}

#[test]
fn one_node_is_killed_with_its_disk_and_one_is_cut_off() {
    let mut cluster = SimCluster::of(5);
    cluster.push("words", ROWS, 1);
    let coordinator = cluster.coordinator();
    let others: Vec<u8> = (1..=5).filter(|number| *number != coordinator).collect();
    // For each zone there are at least two replicas of each part in other zones.
    let struck = [[1, 4], [2, 5]]
        .into_iter()
        .find(|pair| !pair.contains(&coordinator));
    let [killed, cut] = struck.expect("a zone");
    let mut reading = Reading::everywhere(&cluster, &["words"], ROWS);
    for number in [killed.max(cut), killed.min(cut)] {
        drop(reading.remove(usize::from(number) - 1));
    }
    cluster.node(killed).kill();
    cluster.cut_off(cut);
    let rollout = cluster.push("words", ROWS, 2);
    let names = BTreeSet::from([format!("n{killed}"), format!("n{cut}")]);
    assert_eq!(left_out(&cluster, &rollout), names);
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
    comes_to_serve(&cluster, "words", 2, None);
    let rollout = cluster.push("words", ROWS, 3);
    assert_eq!(left_out(&cluster, &rollout), BTreeSet::new());
    serves_everywhere(&cluster, "words", 3);
    for one in reading {
        one.until(&cluster, 3);
        one.saw(&[1, 2, 3]);
    }
}

#[test]
fn nodes_stop_and_start_with_what_they_had() {
    let mut cluster = SimCluster::of(5);
    cluster.push("words", ROWS, 1);
    for _ in 0..2 {
        cluster.nodes.iter_mut().for_each(SimNode::stop);
        cluster.nodes.iter_mut().for_each(SimNode::start);
        comes_to_serve(&cluster, "words", 1, None);
        cluster.until_all_up();
    }
    let rollout = cluster.push("words", ROWS, 2);
    assert_eq!(left_out(&cluster, &rollout), BTreeSet::new());
    serves_everywhere(&cluster, "words", 2);
}

/// The faults of a node during a push.
#[derive(Debug, Clone, Copy)]
enum Strike {
    Kill,
    PowerCut,
    Stop,
    CutOff,
}

const STRIKES: [Strike; 4] = [Strike::Kill, Strike::PowerCut, Strike::Stop, Strike::CutOff];

/// Pushes, during each of which any node fails at any moment and returns at any. The others answer
/// all the while, from one version, and from the newest one in the end.
#[test]
fn pushes_hold_as_any_node_is_struck_at_any_moment() {
    let mut cluster = SimCluster::of(4);
    cluster.push("words", ROWS, 1);
    let mut rng = Rng(cluster.seed);
    for version in 2..=5 {
        let struck = 1 + rng.below(4) as u8;
        let strike = STRIKES[rng.below(4) as usize];
        let after = Duration::from_millis(rng.below(1500));
        let most_away_ms = 3 * cluster.timing.node_timeout().as_millis() as u64;
        let away = Duration::from_millis(rng.below(most_away_ms));
        println!("version {version}: {strike:?} of n{struck} after {after:?} for {away:?}");
        let mut reading = Reading::everywhere(&cluster, &["words"], ROWS);
        drop(reading.remove(usize::from(struck) - 1));
        let client = cluster.pusher("words", ROWS, version);
        cluster.sleep(after);
        let cut = rng.next_u64();
        match strike {
            Strike::Kill => cluster.node(struck).kill(),
            Strike::PowerCut => cluster.node(struck).cut_power(cut),
            Strike::Stop => cluster.node(struck).stop(),
            Strike::CutOff => cluster.cut_off(struck),
        }
        cluster.sleep(away);
        match strike {
            Strike::CutOff => cluster.world.net.heal(),
            _ => cluster.node(struck).start(),
        }
        client.join().expect("it is rolled out");
        let cut_off = matches!(strike, Strike::CutOff).then_some(struck);
        comes_to_serve(&cluster, "words", version, cut_off);
        cluster.until_all_up();
        for one in reading {
            one.until(&cluster, version);
            one.saw(&[version - 1, version]);
        }
    }
}
