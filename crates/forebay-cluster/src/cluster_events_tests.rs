//! Tests of the events between two models.

use std::collections::{BTreeMap, BTreeSet};

use forebay_engine::TableName;
use forebay_run::Order;

use crate::cluster_events::{ClusterEvent, events_between};
use crate::ids::{HostPort, NodeId, NodeName, Zone};
use crate::model::{
    LayoutName, Model, MoveStage, NodeEntry, NodeState, Phase, PlanGoal, Rebalance, RequestId,
    Rollout, RolloutId, RolloutOptions, RolloutRole, RolloutTable, TableEntry,
};

fn table() -> TableName {
    TableName::new("people").unwrap()
}

fn node(id: u32, state: NodeState) -> NodeEntry {
    NodeEntry {
        id: NodeId(id),
        name: NodeName::new(&format!("n{id}")).unwrap(),
        zone: Zone::new("a").unwrap(),
        incarnation: 1,
        state,
        paused_until_unix_ms: None,
        listen: HostPort::new("127.0.0.1", 1),
        class_ports: Vec::new(),
        peer: HostPort::new("127.0.0.1", 2),
        http: None,
        cut_off_ms: None,
        formats: [1, 4],
        program: "1".to_owned(),
        key: None,
    }
}

fn model(states: &[NodeState]) -> Model {
    let mut model = Model::default();
    for (id, state) in (1..).zip(states) {
        model.put_node(node(id, *state));
    }
    model
}

fn rollout(phase: Phase, role: RolloutRole) -> Rollout {
    let part = RolloutTable {
        from: Some(1),
        to: 2,
        role,
        keep: 3,
        history: Vec::new(),
    };
    Rollout {
        id: RolloutId(1),
        request: RequestId("r".to_owned()),
        tables: BTreeMap::from([(table(), part)]),
        options: RolloutOptions::default(),
        phase,
        begun_unix_ms: 0,
        committed: None,
        reverted: None,
        participants: BTreeSet::new(),
        verified: BTreeMap::new(),
        excluded: BTreeSet::new(),
        gave_way: false,
        reason: None,
    }
}

fn with_rollout(rollout: Rollout) -> Model {
    let mut model = model(&[NodeState::Up, NodeState::Up]);
    model.work.edit().rollouts.insert(rollout.id, rollout);
    model
}

fn words(events: &[ClusterEvent]) -> Vec<(&str, bool)> {
    let words = events.iter().map(|event| (event.what, event.is_wrong));
    words.collect()
}

#[test]
fn each_change_of_a_node_has_an_event() {
    const DOWN: NodeState = NodeState::Down { since_unix_ms: 1 };
    const LEFT: NodeState = NodeState::Left { since_unix_ms: 1 };
    for (from, to, what) in [
        (NodeState::Up, DOWN, Some(("node is down", true))),
        (DOWN, NodeState::Up, Some(("node is up again", false))),
        (LEFT, NodeState::Up, Some(("node is up again", false))),
        (NodeState::Up, LEFT, Some(("node stopped in order", false))),
        (NodeState::Up, NodeState::Up, None),
        (DOWN, DOWN, None),
    ] {
        let events = events_between(&model(&[from]), &model(&[to]));
        let expected: Vec<_> = what.into_iter().collect();
        assert_eq!(words(&events), expected, "{from:?} {to:?}");
        let named = |event: &ClusterEvent| event.node == Some(NodeName::new("n1").unwrap());
        assert!(events.iter().all(named), "{events:?}");
    }
    let (one, two) = (model(&[NodeState::Up]), model(&[NodeState::Up; 2]));
    assert_eq!(
        words(&events_between(&one, &two)),
        [("node joined the cluster", false)]
    );
    assert_eq!(
        words(&events_between(&two, &one)),
        [("node removed from the cluster", false)]
    );
    let mut restarted = one.clone();
    let entry = NodeEntry {
        incarnation: 2,
        ..node(1, NodeState::Up)
    };
    restarted.put_node(entry);
    assert_eq!(
        words(&events_between(&one, &restarted)),
        [("node restarted", false)]
    );
    let mut drained = one.clone();
    drained.work.edit().drained.insert(NodeId(1));
    assert_eq!(
        words(&events_between(&one, &drained)),
        [("node is drained", false)]
    );
    assert_eq!(
        words(&events_between(&drained, &one)),
        [("node takes data again", false)]
    );
}

#[test]
fn a_rollout_has_an_event_for_each_phase() {
    let none = model(&[NodeState::Up, NodeState::Up]);
    let at = |phase| with_rollout(rollout(phase, RolloutRole::Swap));
    for (from, to, what) in [
        (none.clone(), at(Phase::Preparing), ("rollout began", false)),
        (
            at(Phase::Preparing),
            at(Phase::Committed),
            ("rollout committed", false),
        ),
        (
            at(Phase::Committed),
            at(Phase::Confirmed),
            ("rollout confirmed", false),
        ),
        (
            at(Phase::Committed),
            at(Phase::Reverting),
            ("rollout is being reverted", true),
        ),
        (
            at(Phase::Reverting),
            at(Phase::Reverted),
            ("rollout reverted", true),
        ),
        (
            at(Phase::Preparing),
            at(Phase::Aborted),
            ("rollout aborted before its commit", true),
        ),
        (
            none.clone(),
            with_rollout(rollout(Phase::Preparing, RolloutRole::Rollback)),
            ("rollback began", false),
        ),
    ] {
        let events = events_between(&from, &to);
        assert_eq!(words(&events), [what]);
        let event = &events[0];
        assert_eq!((event.from, event.to), (Some(1), Some(2)));
        assert_eq!(event.table, Some(table()));
        assert_eq!(events_between(&to, &to), []);
    }
    let mut waiting = rollout(Phase::Preparing, RolloutRole::Swap);
    waiting.reason = Some("node n2 is down".to_owned());
    let events = events_between(&at(Phase::Preparing), &with_rollout(waiting));
    assert_eq!(words(&events), [("rollout waits", true)]);
    assert_eq!(events[0].reason.as_deref(), Some("node n2 is down"));
    let mut partial = rollout(Phase::Confirmed, RolloutRole::Swap);
    partial.excluded.insert(NodeId(2));
    let events = events_between(&at(Phase::Committed), &with_rollout(partial));
    assert_eq!(words(&events), [("rollout confirmed", true)]);
    assert_eq!(events[0].reason.as_deref(), Some("left out: n2"));
}

#[test]
fn tables_and_plans_have_events() {
    let none = model(&[NodeState::Up]);
    let mut made = none.clone();
    let entry = TableEntry::new(Order::Hashed, LayoutName::Main, 3);
    made.put_table(&table(), entry.clone());
    assert_eq!(
        words(&events_between(&none, &made)),
        [("table made", false)]
    );
    assert_eq!(
        words(&events_between(&made, &none)),
        [("table dropped", false)]
    );
    let mut fewer = made.clone();
    fewer.put_table(
        &table(),
        TableEntry {
            replicas: 2,
            ..entry
        },
    );
    let events = events_between(&made, &fewer);
    assert_eq!((events[0].from, events[0].to), (Some(3), Some(2)));

    let plan = |stage, done, cancelled| {
        let mut model = none.clone();
        model.work.edit().rebalances.push(Rebalance {
            request: RequestId("p".to_owned()),
            goal: PlanGoal::Place { table: table() },
            begun_unix_ms: 0,
            batches: 3,
            done,
            copied_bytes: 0,
            done_bytes: 0,
            stage,
            cancelled,
            reason: None,
        });
        model
    };
    let begun = plan(MoveStage::Between, 0, false);
    for (old, new, what) in [
        (&none, begun.clone(), ("plan began", false)),
        (
            &begun,
            plan(MoveStage::Between, 1, false),
            ("plan finished a batch of moves", false),
        ),
        (
            &begun,
            plan(MoveStage::Done, 3, false),
            ("plan done", false),
        ),
        (
            &begun,
            plan(MoveStage::Stopped, 1, true),
            ("plan cancelled", false),
        ),
        (
            &begun,
            plan(MoveStage::Stopped, 1, false),
            ("plan stopped before its end", true),
        ),
    ] {
        let events = events_between(old, &new);
        assert_eq!(words(&events), [what]);
        assert_eq!(events[0].table, Some(table()));
        assert_eq!(events_between(&new, &new), []);
    }
}
