//! Tests of ordered replicas.

use std::sync::Arc;
use std::time::Duration;

use forebay_engine::live::{Budget, Durability, LiveDraft};
use forebay_engine::{Bound, Bounds, PartitionId, TableName};
use forebay_io::{Clock, Disk, OsDisk, SystemClock, replace_file};
use forebay_replica::{GroupId, PeerId};

use super::nodes::{GROUP, TestNodes, table_name, wait_for};
use crate::ids::NodeId;
use crate::measures::reports::ReplicaProblem;
use crate::routing::live::{ReplicaOrder, ReplicaOrders};

const RUN: [(usize, u64, bool); 3] = [(0, 1, false), (1, 2, false), (2, 3, false)];

#[test]
fn a_group_is_founded_and_a_restarted_node_returns_with_its_data() {
    let mut nodes = TestNodes::new(Durability::Os);
    nodes.found();
    nodes.set(b"a", b"one");
    (0..3).for_each(|at| nodes.wait_value(at, b"a", b"one"));
    let leader = nodes.leader().unwrap();
    assert_eq!(
        nodes.replicas(leader).leader(GROUP),
        Some(NodeId(leader as u32))
    );
    wait_for("the leader's report", || {
        let lead = nodes.report(leader).and_then(|report| report.leads);
        lead.is_some_and(|lead| lead.members.voters.len() == 3 && lead.behind.len() == 2)
    });
    wait_for("the lead of the first node of the list", || {
        nodes.leader() == Some(0)
    });
    nodes.stop(2);
    nodes.set(b"b", b"two");
    nodes.start(2);
    let mut remembered = nodes.orders(2, &RUN, &[1, 2, 3]);
    remembered.is_from_memory = true;
    nodes.replicas(2).carry_out(remembered);
    nodes.wait_value(2, b"a", b"one");
    nodes.wait_value(2, b"b", b"two");
    nodes.wait_report(2, 3, None);
}

#[test]
fn a_new_peer_gets_a_copy_and_an_old_one_is_removed_with_its_table() {
    let mut nodes = TestNodes::new(Durability::Os);
    nodes.found();
    // More than one part of a copy, and long values.
    for key in 0..30_u8 {
        nodes.set(&[b'k', key], &vec![key; 100 << 10]);
    }
    nodes.nodes.push(super::nodes::TestNode::default());
    nodes.start(3);
    nodes.order(&[(0, 1, false), (1, 2, false), (3, 4, true)]);
    nodes.wait_report(3, 4, None);
    assert_eq!(
        nodes.report(3).unwrap().term,
        0,
        "the new peer has promised nothing"
    );
    wait_for("the removal of the old peer", || {
        let tables = nodes.replicas(2).tables().load();
        !tables.contains_key(&table_name())
    });
    wait_for("the removal of its files", || {
        let dir = nodes.nodes[2].dir.path().join("tables");
        OsDisk::default().list(&dir).unwrap().is_empty()
    });
    nodes.order(&[(0, 1, false), (1, 2, false), (3, 4, false)]);
    for key in 0..30_u8 {
        nodes.wait_value(3, &[b'k', key], &vec![key; 100 << 10]);
    }
    let runs = nodes.nodes[3].dir.path().join("tables/t/runs");
    let files = OsDisk::default().list(&runs).unwrap();
    assert!(files.iter().any(|file| file.ends_with(".ext")), "{files:?}");
    wait_for("its vote", || {
        let leader = nodes.leader();
        let report = leader.and_then(|leader| nodes.report(leader));
        let lead = report.and_then(|report| report.leads);
        lead.is_some_and(|lead| lead.members.voters == [1, 2, 4].map(PeerId))
    });
    nodes.set(b"last", b"value");
    nodes.wait_value(3, b"last", b"value");
    nodes.stop(3);
    nodes.start(3);
    nodes.order(&[(0, 1, false), (1, 2, false), (3, 4, false)]);
    nodes.wait_value(3, b"last", b"value");
    nodes.wait_value(3, b"k\x07", &vec![7; 100 << 10]);
}

#[test]
fn a_copy_shares_the_rate_limit_of_all_fetches() {
    let mut nodes = TestNodes::new(Durability::Os);
    nodes.found();
    for key in 0..30_u8 {
        nodes.set(&[b'k', key], &vec![key; 100 << 10]);
    }
    let throttle = super::nodes::throttle(Some(1 << 20));
    nodes.nodes.push(super::nodes::TestNode::default());
    nodes.nodes[3].throttle = Arc::clone(&throttle);
    nodes.start(3);
    nodes.order(&[(0, 1, false), (1, 2, false), (3, 4, true)]);
    nodes.wait_report(3, 4, None);
    nodes.order(&[(0, 1, false), (1, 2, false), (3, 4, false)]);
    wait_for("a copy under way", || throttle.is_active());
    let begun = SystemClock.monotonic();
    assert!(!nodes.has(3, b"k\x07", &vec![7; 100 << 10]));
    nodes.wait_value(3, b"k\x07", &vec![7; 100 << 10]);
    // Three parts of 1 MiB. The last two wait for a second each, less the accumulated allowance.
    let took = SystemClock.monotonic() - begun;
    assert!(took >= Duration::from_secs(1), "{took:?}");
    assert!(throttle.taken_bytes() >= 30 * (100 << 10));
    wait_for("the end of the copy", || !throttle.is_active());
}

#[test]
fn a_replica_with_an_emptied_directory_reports_that_it_forgot_and_is_replaced() {
    let mut nodes = TestNodes::new(Durability::Sync);
    nodes.found();
    nodes.set(b"a", b"one");
    nodes.stop(2);
    nodes.nodes[2].dir = tempfile::tempdir().unwrap();
    nodes.start(2);
    nodes.order(&RUN);
    nodes.wait_report(2, 3, Some(ReplicaProblem::Forgot));
    assert!(nodes.replicas(2).tables().load().is_empty());
    nodes.order(&[(0, 1, false), (1, 2, false), (2, 5, true)]);
    nodes.wait_report(2, 5, None);
    nodes.order(&[(0, 1, false), (1, 2, false), (2, 5, false)]);
    nodes.wait_value(2, b"a", b"one");
}

#[test]
fn remembered_orders_create_and_remove_no_replicas() {
    let nodes = TestNodes::new(Durability::Os);
    let mut orders = nodes.orders(0, &[(0, 1, true), (1, 2, true)], &[1, 2]);
    orders.is_from_memory = true;
    nodes.replicas(0).carry_out(orders.clone());
    orders.replicas[0].is_new = false;
    nodes.replicas(0).carry_out(orders.clone());
    nodes.wait_report(0, 1, Some(ReplicaProblem::Forgot));
    assert!(nodes.replicas(0).tables().load().is_empty());
    (orders.is_from_memory, orders.replicas[0].is_new) = (false, true);
    nodes.replicas(0).carry_out(orders);
    nodes.wait_report(0, 1, None);
    let nothing = ReplicaOrders {
        is_from_memory: true,
        ..ReplicaOrders::default()
    };
    nodes.replicas(0).carry_out(nothing.clone());
    wait_for("no reports", || nodes.report(0).is_none());
    let is_there = || {
        nodes
            .replicas(0)
            .tables()
            .load()
            .contains_key(&table_name())
    };
    assert!(is_there());
    nodes.replicas(0).carry_out(ReplicaOrders {
        is_from_memory: false,
        ..nothing
    });
    wait_for("the removal of the table", || !is_there());
}

#[test]
fn after_a_reboot_a_cleanly_stopped_replica_remembers_and_a_killed_one_forgot() {
    let mut nodes = TestNodes::new(Durability::Os);
    nodes.found();
    nodes.set(b"a", b"one");
    (0..3).for_each(|at| nodes.wait_value(at, b"a", b"one"));
    nodes.replicas(1).close();
    nodes.stop(1);
    nodes.stop(2);
    nodes.boot_id += 1;
    nodes.start(1);
    nodes.start(2);
    nodes.order(&RUN);
    nodes.wait_report(2, 3, Some(ReplicaProblem::Forgot));
    nodes.wait_value(1, b"a", b"one");
    nodes.wait_report(1, 2, None);
    nodes.set(b"b", b"two");
    // It is not one of the earlier peers, whenever it starts.
    nodes.stop(2);
    nodes.start(2);
    nodes.order(&RUN);
    nodes.wait_report(2, 3, Some(ReplicaProblem::Forgot));
    nodes.order(&[(0, 1, false), (1, 2, false), (2, 6, true)]);
    nodes.wait_report(2, 6, None);
    nodes.order(&[(0, 1, false), (1, 2, false), (2, 6, false)]);
    nodes.wait_value(2, b"b", b"two");
}

#[test]
fn a_damaged_log_is_reported() {
    let mut nodes = TestNodes::new(Durability::Os);
    nodes.found();
    nodes.set(b"a", b"one");
    nodes.stop(2);
    let dir = nodes.nodes[2].dir.path().join("tables/t");
    let state = dir.join("replicas.state");
    replace_file(&OsDisk::default(), &state, &[7; 1024]).unwrap();
    nodes.start(2);
    nodes.order(&RUN);
    nodes.wait_report(2, 3, Some(ReplicaProblem::Damaged));
    nodes.order(&[(0, 1, false), (1, 2, false), (2, 6, true)]);
    nodes.wait_report(2, 6, None);
}

#[test]
fn a_damaged_table_is_reported_and_recreated_for_a_new_peer() {
    let mut nodes = TestNodes::new(Durability::Os);
    nodes.found();
    nodes.set(b"a", b"one");
    nodes.stop(2);
    let manifest = nodes.nodes[2].dir.path().join("tables/t/live");
    replace_file(&OsDisk::default(), &manifest, b"no manifest").unwrap();
    nodes.start(2);
    nodes.order(&RUN);
    nodes.wait_report(2, 3, Some(ReplicaProblem::Damaged));
    nodes.order(&[(0, 1, false), (1, 2, false), (2, 6, true)]);
    nodes.wait_report(2, 6, None);
    nodes.order(&[(0, 1, false), (1, 2, false), (2, 6, false)]);
    nodes.wait_value(2, b"a", b"one");
}

#[test]
fn a_live_table_that_was_never_a_replica_is_not_removed() {
    let mut nodes = TestNodes::new(Durability::Os);
    nodes.stop(0);
    let store = forebay_engine::open(nodes.nodes[0].dir.path()).unwrap();
    let draft = LiveDraft::hashed();
    drop(store.create_live(&table_name(), draft, &Budget::new(1 << 20)));
    nodes.start(0);
    let mut orders = nodes.orders(0, &[(0, 1, true)], &[1]);
    orders.replicas[0].table = TableName::new("other").unwrap();
    nodes.replicas(0).carry_out(orders);
    // By the time of this report, the node has examined everything that is not ordered.
    nodes.wait_report(0, 1, None);
    assert!(store.is_live(&table_name()).unwrap());
}

#[test]
fn replicas_whose_log_fails_in_use_report_that_they_forgot() {
    let nodes = TestNodes::new(Durability::Sync);
    nodes.found();
    nodes.set(b"a", b"one");
    nodes.wait_value(2, b"a", b"one");
    let log = nodes.nodes[2].dir.path().join("tables/t/replicas");
    OsDisk::default().remove_dir_all(&log).unwrap();
    nodes.set(b"a", b"two");
    nodes.wait_report(2, 3, Some(ReplicaProblem::Forgot));
    let new = [(0, 1, false), (1, 2, false), (2, 4, true)];
    nodes.order(&new);
    nodes.wait_report(2, 4, None);
    nodes.order(&[(0, 1, false), (1, 2, false), (2, 4, false)]);
    nodes.set(b"b", b"three");
    nodes.wait_value(2, b"b", b"three");
}

#[test]
fn a_child_whose_parent_must_still_be_split_has_not_forgotten() {
    let nodes = TestNodes::new(Durability::Os);
    let slots = |lower, upper: Option<u16>| Bounds {
        lower: Bound::Slot(lower),
        upper: upper.map(Bound::Slot),
    };
    let order = |is_new| {
        let mut orders = nodes.orders(0, &[(0, 1, is_new)], &[1]);
        orders.replicas[0].bounds = slots(0, Some(8000));
        orders
    };
    nodes.replicas(0).carry_out(order(true));
    nodes.wait_report(0, 1, None);
    // It received both splits in a copy: neither of the others ever existed, and the second has no
    // room.
    let mut orders = order(false);
    let child = |(group, peer), partition, bounds, comes_from| ReplicaOrder {
        partition: PartitionId(partition),
        bounds,
        group: GroupId(group),
        peer: PeerId(peer),
        founders: None,
        comes_from: Some(comes_from),
        ..orders.replicas[0].clone()
    };
    let place = (GROUP, PeerId(1));
    let second = |at| child((70, 21), at, slots(8000, Some(12_000)), place);
    let third = child((71, 31), 2, slots(12_000, None), (GroupId(70), PeerId(21)));
    let (no_room, second) = (second(0), second(1));
    orders.replicas.extend([no_room, third]);
    nodes.replicas(0).carry_out(orders.clone());
    wait_for("the reported problem", || !nodes.troubles(0).is_empty());
    assert_eq!(nodes.unhealthy(0), []);
    orders.replicas[1] = second;
    nodes.replicas(0).carry_out(orders);
    wait_for("all three replicas", || nodes.reported(0) == 3);
    assert_eq!(nodes.unhealthy(0), []);
}
