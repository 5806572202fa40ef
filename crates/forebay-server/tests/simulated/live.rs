//! Live tables: acknowledged writes survive all failures.

use std::collections::BTreeSet;
use std::time::Duration;

use forebay_cluster::NodeId;
use forebay_cluster::client::RequestEnd;
use forebay_cluster::model::{PlanGoal, Rebalance};
use forebay_cluster::planning::{BATCH_BYTES, Summaries, holders, propose};
use forebay_cluster::request::Request;
use forebay_engine::Bound;
use forebay_engine::live::{Expiry, LiveDraft};
use forebay_io::sim::Rng;

use super::clients::{Writers, asked, read};
use super::cluster::{SimCluster, TestTimer, key, name};
use super::common::Reply;
use super::node::{GATEWAY, SimNode};

fn with_table(nodes: u8) -> SimCluster {
    let cluster = SimCluster::of(nodes);
    let timed = TestTimer::new("a live table", &cluster);
    cluster.make_live("t", LiveDraft::hashed().expiry(Expiry::PerRecord));
    drop(timed);
    cluster
}

#[test]
fn commands_are_answered_as_by_one_server() {
    let cluster = with_table(3);
    let mut client = cluster.nodes[0].client(GATEWAY);
    for (command, reply) in [
        ("SET t:a 1", "OK"),
        ("INCR t:a", "2"),
        ("INCRBY t:a 5", "7"),
        ("MSET t:a 1 t:b 2 t:c 3", "OK"),
        ("DEL t:a t:b t:nosuch", "2"),
        ("SET t:a x NX", "OK"),
        ("SET t:a y NX", "(null)"),
        ("APPEND t:q abc", "3"),
        ("SET t:soon 1 PX 50", "OK"),
        ("MULTI", "OK"),
        ("SET t:{m}1 1", "QUEUED"),
        ("INCR t:{m}1", "QUEUED"),
    ] {
        assert_eq!(client.text(command), reply, "{command}");
    }
    let done = Reply::Array(vec![Reply::Simple("OK".to_owned()), Reply::Int(2)]);
    assert_eq!(client.ask("EXEC"), done);
    for (command, reply) in [
        ("MULTI", "OK"),
        ("SET t:1 1", "QUEUED"),
        ("SET t:2 1", "QUEUED"),
    ] {
        assert_eq!(client.text(command), reply);
    }
    assert!(client.text("EXEC").starts_with("-CROSSSLOT"));
    cluster.sleep(Duration::from_millis(100));
    assert_eq!(client.text("GET t:soon"), "(null)");
    for node in &cluster.nodes {
        let mut client = node.client(GATEWAY);
        assert_eq!(
            client.texts("MGET t:a t:b t:c t:{m}1"),
            ["x", "(null)", "3", "2"]
        );
    }
    let refused = client.text("KV.RANGE nope: +");
    assert!(refused.starts_with("-ERR no table 'nope'"), "{refused}");
}

#[test]
fn no_acknowledged_write_is_lost_as_nodes_die_and_are_cut_off() {
    let mut cluster = with_table(3);
    let writers = Writers::start(&cluster, "t", &[1, 2]);
    writers.resume(&cluster);
    cluster.node(3).kill();
    writers.resume(&cluster);
    cluster.node(3).start();
    writers.resume(&cluster);
    cluster.cut_off(3);
    writers.resume(&cluster);
    cluster.sleep(cluster.timing.node_timeout() * 3 / 2);
    cluster.world.net.heal();
    writers.resume(&cluster);
    let written = writers.end();
    assert!(written.acknowledged.len() > 100);
    cluster.until_all_up();
    written.check(&cluster);
}

#[test]
fn a_stopping_node_hands_over_its_partitions() {
    let mut cluster = with_table(3);
    let writers = Writers::start(&cluster, "t", &[1, 2]);
    writers.resume(&cluster);
    cluster.node(3).stop();
    writers.resume(&cluster);
    cluster.node(3).start();
    writers.resume(&cluster);
    let written = writers.end();
    println!("the longest write took {:?}", written.longest);
    assert_eq!(written.problems, [].into());
    written.check(&cluster);
}

/// Cuts the power of all nodes at once. The seed decides what remains of unsynced data.
#[test]
fn writes_survive_the_failure_of_all_nodes() {
    let mut cluster = with_table(3);
    let mut rng = Rng(cluster.seed);
    for round in 0..3 {
        let writers = Writers::start(&cluster, "t", &[1, 2, 3]);
        writers.resume(&cluster);
        for node in &mut cluster.nodes {
            match round {
                0 => node.kill(),
                _ => node.cut_power(rng.next_u64()),
            }
        }
        let written = writers.end();
        cluster.nodes.iter_mut().for_each(SimNode::start);
        cluster.until_all_up();
        written.check(&cluster);
    }
}

/// Otherwise a node would get traffic that it cannot answer.
#[test]
fn no_node_is_ready_before_its_replicas_exist() {
    let mut cluster = with_table(3);
    for number in [1, 2] {
        cluster.node(number).kill();
    }
    cluster.sleep(cluster.timing.node_timeout() * 2);
    cluster.node(3).kill();
    cluster.sleep(Duration::from_secs(1));
    cluster.nodes.iter_mut().for_each(SimNode::start);
    cluster.until("all are ready", |cluster| {
        let is_ready = |node: &SimNode| {
            let Some((200, body)) = node.page("/ready") else {
                return false;
            };
            assert!(!body.contains("not there yet"), "{}: {body}", node.name());
            true
        };
        let ready = cluster.nodes.iter().filter(|node| is_ready(node));
        (ready.count() == 3).then_some(())
    });
}

#[test]
fn without_a_majority_nothing_is_acknowledged() {
    let mut cluster = with_table(3);
    cluster.node(2).kill();
    cluster.node(3).kill();
    let mut client = cluster.nodes[0].client(GATEWAY);
    for n in 0..5 {
        let refused = client.text(&format!("SET t:{n} 1"));
        let says = ["nothing was written", "it is unknown whether"];
        assert!(
            says.iter().any(|words| refused.contains(words)),
            "{refused}"
        );
    }
    cluster.node(2).start();
    cluster.until("writes are accepted again", |cluster| {
        let mut client = cluster.nodes[0].client(GATEWAY);
        (client.text("SET t:1 2") == "OK").then_some(())
    });
}

#[test]
fn the_coordinator_and_leaders_die_in_turns() {
    let mut cluster = with_table(3);
    let writers = Writers::start(&cluster, "t", &[1, 2, 3]);
    for _ in 0..3 {
        let struck = cluster.coordinator();
        cluster.node(struck).kill();
        writers.resume(&cluster);
        cluster.node(struck).start();
        cluster.until_all_up();
        writers.resume(&cluster);
    }
    let written = writers.end();
    written.check(&cluster);
}

/// Asks for a split of the table, and does not wait for it.
pub fn request_split(cluster: &SimCluster, at: u16) {
    let request = Request::Split {
        table: name("t"),
        at: Bound::Slot(at),
    };
    cluster.client().ask(&request).expect("asked");
}

/// Returns whether a partition of the table begins at this key and has a leader.
fn is_split(cluster: &SimCluster, at: u16) -> Option<()> {
    let model = cluster.model();
    let mut groups = model.all_groups();
    let found = groups.find(|(_, group)| group.bounds.lower == Bound::Slot(at));
    found.filter(|(_, group)| group.term > 0).map(drop)
}

#[test]
fn nothing_is_lost_if_nodes_die_during_splits() {
    let mut cluster = with_table(3);
    let mut rng = Rng(cluster.seed);
    let writers = Writers::start(&cluster, "t", &[1, 2, 3]);
    writers.resume(&cluster);
    for at in [1000, 5000, 9000, 13_000] {
        request_split(&cluster, at);
        cluster.sleep(Duration::from_millis(rng.below(1500)));
        let struck = 1 + rng.below(3) as u8;
        cluster.node(struck).kill();
        let most_away_ms = cluster.timing.node_timeout().as_millis() as u64 * 3 / 2;
        cluster.sleep(Duration::from_millis(rng.below(most_away_ms)));
        cluster.node(struck).start();
        // Just after a failure a partition may have no leader, and its split is refused.
        let asked_again = |cluster: &SimCluster| {
            request_split(cluster, at);
            cluster.sleep(Duration::from_secs(1));
            None
        };
        cluster.until("the partition is split", |cluster| {
            is_split(cluster, at).or_else(|| asked_again(cluster))
        });
        writers.resume(&cluster);
    }
    let written = writers.end();
    cluster.until_all_up();
    written.check(&cluster);
}

fn drained(cluster: &SimCluster, number: u8) -> Rebalance {
    let (_, model) = cluster.client().model_to_plan().expect("a model");
    let node = model
        .all_nodes()
        .find(|node| node.name.to_string() == format!("n{number}"));
    let wish = PlanGoal::Drain(BTreeSet::from([node.expect("a node").id]));
    let proposal = propose(&model, &Summaries::new(), &wish, BATCH_BYTES).expect("a plan");
    let plan = Box::new(proposal.plan);
    match cluster.carry_out(&Request::Rebalance { plan }) {
        RequestEnd::Rebalance(plan) => *plan,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_node_is_drained_under_writers() {
    let cluster = with_table(4);
    let writers = Writers::start(&cluster, "t", &[1, 2, 3, 4]);
    writers.resume(&cluster);
    let timed = TestTimer::new("a drain", &cluster);
    let plan = drained(&cluster, 4);
    drop(timed);
    assert!(plan.has_moved(), "{plan:?}");
    writers.resume(&cluster);
    let written = writers.end();
    let model = cluster.model();
    let gone = model.all_nodes().find(|node| node.name.to_string() == "n4");
    let gone: NodeId = gone.expect("a node").id;
    assert!(!holders(&model).contains(&gone));
    written.check(&cluster);
}

/// The other nodes keep idle connections to it.
#[test]
fn a_drained_node_removes_its_tables_despite_open_connections() {
    let cluster = with_table(4);
    cluster.push("words", 50, 1);
    let keys: Vec<String> = (0..50).map(|n| format!("words:{}", key(n))).collect();
    for node in &cluster.nodes {
        assert_eq!(read(node, &keys).len(), keys.len(), "at {}", node.name());
    }
    drained(&cluster, 4);
    let drained = &cluster.nodes[3];
    cluster.until("the node has no live table", |_| {
        drained.live_tables().is_empty().then_some(())
    });
}

#[test]
fn a_dropped_table_disappears_on_all_nodes() {
    let cluster = with_table(3);
    assert_eq!(cluster.nodes[0].client(GATEWAY).text("SET t:1 1"), "OK");
    cluster.carry_out(&Request::Drop { table: name("t") });
    for node in &cluster.nodes {
        cluster.until("the table is gone", |_| {
            let mut client = node.client(GATEWAY);
            let reply = asked(&mut client, &["GET", "t:1"]);
            matches!(reply, Ok(Reply::Error(text)) if text.contains("no table")).then_some(())
        });
    }
    cluster.make_live("t", LiveDraft::hashed());
    for node in &cluster.nodes {
        assert_eq!(read(node, &["t:1".to_owned()]), [].into());
    }
}
