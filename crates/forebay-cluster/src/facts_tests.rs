use std::collections::BTreeMap;

use super::*;
use crate::ids::{HostPort, NodeName, Zone};
use crate::model::{
    Phase, RequestId, Rollout, RolloutId, RolloutOptions, RolloutRole, RolloutTable,
};

fn node(id: u32, state: NodeState, paused_until_unix_ms: Option<u64>) -> NodeEntry {
    let address = |port| HostPort::new(&format!("10.0.0.{id}"), port);
    NodeEntry {
        id: NodeId(id),
        name: NodeName::new(&format!("n{id}")).unwrap(),
        zone: Zone::new("a").unwrap(),
        incarnation: 1,
        state,
        paused_until_unix_ms,
        listen: address(7379),
        class_ports: Vec::new(),
        peer: address(7391),
        http: None,
        cut_off_ms: None,
        formats: [1, 1],
        program: String::new(),
        key: None,
    }
}

#[test]
fn each_node_is_in_one_state() {
    let (down, left) = (
        NodeState::Down { since_unix_ms: 1 },
        NodeState::Left { since_unix_ms: 1 },
    );
    let mut model = Model::default();
    let states = [
        (NodeState::Up, None),
        (NodeState::Up, None),
        (NodeState::Up, Some(9)),
        (down, None),
        (down, Some(9)),
        (left, None),
        (left, Some(9)),
    ];
    for (id, (state, paused)) in (1..).zip(states) {
        model.put_node(node(id, state, paused));
    }
    // The other nodes suspect this node and one that is down.
    let suspects = [1, 2, 4].map(NodeId).into();
    assert_eq!(
        NodeCounts::of(&model, Some(NodeId(1)), &suspects),
        NodeCounts {
            up: 2,
            suspected: 1,
            paused: 2,
            down: 1,
            left: 1,
        }
    );
}

fn rollout(id: u64, table: &str, phase: Phase, begun_unix_ms: u64) -> Rollout {
    let part = RolloutTable {
        from: None,
        to: 1,
        role: RolloutRole::Swap,
        keep: 3,
        history: Vec::new(),
    };
    Rollout {
        id: RolloutId(id),
        request: RequestId(id.to_string()),
        tables: BTreeMap::from([(TableName::new(table).unwrap(), part)]),
        options: RolloutOptions::default(),
        phase,
        begun_unix_ms,
        committed: None,
        reverted: None,
        participants: BTreeSet::new(),
        verified: BTreeMap::new(),
        excluded: BTreeSet::new(),
        gave_way: false,
        reason: None,
    }
}

#[test]
fn the_oldest_rollout_is_an_unfinished_one() {
    let mut model = Model::default();
    assert_eq!(RolloutFacts::of(&model, 5000), RolloutFacts::default());
    let all = [
        rollout(1, "a", Phase::Confirmed, 1000),
        rollout(2, "b", Phase::Reverting, 3000),
        // Begun by a node whose clock is ahead.
        rollout(3, "c", Phase::Preparing, 7000),
    ];
    for one in all {
        model.work.edit().rollouts.insert(one.id, one);
    }
    let facts = RolloutFacts::of(&model, 5500);
    assert_eq!(
        (facts.count, facts.oldest),
        (2, Duration::from_millis(2500))
    );
    let tables: Vec<&str> = facts.tables.iter().map(TableName::as_str).collect();
    assert_eq!(tables, ["b", "c"]);
}
