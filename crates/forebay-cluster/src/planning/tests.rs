//! Tests of plans on models of clusters.

use forebay_engine::Bound;
use forebay_run::Order;
use forebay_run::content::ContentSum;

use super::*;
use crate::ids::{HostPort, NodeName, Zone};
use crate::model::{Layout, LayoutName, NodeEntry, NodeState, TableEntry};
use crate::routing::version::PartitionSummary;

fn node(id: u32, zones: u32) -> NodeEntry {
    NodeEntry {
        id: NodeId(id),
        name: NodeName::new(&format!("n{id}")).unwrap(),
        zone: Zone::new(&format!("z{}", id % zones)).unwrap(),
        incarnation: 1,
        state: NodeState::Up,
        paused_until_unix_ms: None,
        listen: HostPort::new("a", 1),
        class_ports: Vec::new(),
        peer: HostPort::new("a", 2),
        http: None,
        cut_off_ms: None,
        formats: [1, 1],
        program: String::new(),
        key: None,
    }
}

fn summary(order: Order, partitions: u64) -> VersionSummary {
    let bound = |at: u64| match order {
        Order::Hashed => Bound::Slot((at * 16_384 / partitions) as u16),
        Order::Ordered if at == 0 => Bound::Key(Vec::new()),
        Order::Ordered => Bound::Key(format!("{at:04}").into_bytes()),
    };
    let one = |at| PartitionSummary {
        bounds: Bounds {
            lower: bound(at),
            upper: (at + 1 < partitions).then(|| bound(at + 1)),
        },
        rows: 10,
        content: ContentSum(at),
        file_bytes: 1 << 20,
    };
    VersionSummary {
        order,
        partitions: (0..partitions).map(one).collect(),
    }
}

/// A cluster of `all` nodes, of which the first `holding` hold the tables `hash` (3 replicas) and
/// `words` (2, ordered).
pub(super) fn cluster(holding: u32, all: u32, zones: u32) -> (Model, Summaries) {
    let mut model = Model::default();
    (0..holding).for_each(|id| model.put_node(node(id, zones)));
    let mut summaries = Summaries::new();
    for (name, order, replicas) in [("hash", Order::Hashed, 3), ("words", Order::Ordered, 2)] {
        let table = TableName::new(name).unwrap();
        let summary = summary(order, 64);
        let (layout, ranges) = match order {
            Order::Hashed => (
                LayoutName::Main,
                crate::routing::layouts::slot_layout(&model, 3),
            ),
            Order::Ordered => (
                LayoutName::Table(table.clone()),
                crate::routing::layouts::ordered_layout(&model, &summary, 3),
            ),
        };
        let made = Layout::new(order, ranges.unwrap());
        model.layouts.insert(layout.clone(), made);
        let entry = TableEntry {
            serving: Some(1),
            ..TableEntry::new(order, layout, replicas)
        };
        model.put_table(&table, entry);
        summaries.insert(table, summary);
    }
    (holding..all).for_each(|id| model.put_node(node(id, zones)));
    (model, summaries)
}

pub(super) fn nodes(ids: &[u32]) -> BTreeSet<NodeId> {
    ids.iter().copied().map(NodeId).collect()
}

/// The model after all batches. Each batch must fit the model at its time.
fn carried_out(model: &Model, plan: &MovePlan) -> Model {
    let mut model = model.clone();
    for batch in &plan.batches {
        for change in &batch.lists {
            let layout = &model.layouts[&change.layout];
            assert!(
                layout
                    .within(&change.bounds)
                    .all(|range| range.list == change.old)
            );
        }
        carry_out(&mut model, batch);
    }
    model
}

fn check_replicas_span_zones(model: &Model) {
    for (name, entry) in model.all_tables() {
        let zones: BTreeSet<_> = holders(model)
            .iter()
            .filter_map(|node| Some(model.node(*node)?.zone.clone()))
            .collect();
        for range in model.layout_of(entry).unwrap().ranges() {
            let list = &range.list[..entry.replicas.min(range.list.len())];
            let of_list: BTreeSet<_> = list
                .iter()
                .map(|node| model.node(*node).unwrap().zone.clone())
                .collect();
            assert_eq!(
                of_list.len(),
                list.len().min(zones.len()),
                "{name}: {list:?}"
            );
        }
    }
}

#[test]
fn a_drained_node_holds_nothing_and_the_others_their_share() {
    for (count, zones) in [(4, 4), (5, 3), (6, 3), (9, 3)] {
        let (model, summaries) = cluster(count, count, zones);
        let goal = PlanGoal::Drain(nodes(&[1]));
        let proposal = propose(&model, &summaries, &goal, BATCH_BYTES).unwrap();
        let after = carried_out(&model, &proposal.plan);
        assert!(!holders(&after).contains(&NodeId(1)), "{count} nodes");
        check_replicas_span_zones(&after);
        assert_eq!(proposal.nodes[&NodeId(1)].after, 0);
        assert!(!proposal.plan.copies.contains_key(&NodeId(1)));
        let copied = proposal.copied_bytes() as f64;
        let held = proposal.nodes[&NodeId(1)].before as f64;
        assert!(copied >= held * 0.99, "{count}: {copied} of {held}");
        // Partitions are copied whole, and classes are few. So the copies may exceed what the node
        // held.
        assert!(copied <= held * 3.0, "{count} nodes: {copied} for {held}");
    }
}

#[test]
fn added_nodes_hold_their_share() {
    let (model, summaries) = cluster(3, 5, 3);
    let goal = PlanGoal::Add(nodes(&[3, 4]));
    let proposal = propose(&model, &summaries, &goal, BATCH_BYTES).unwrap();
    let after = carried_out(&model, &proposal.plan);
    assert_eq!(holders(&after), nodes(&[0, 1, 2, 3, 4]));
    check_replicas_span_zones(&after);
    for id in [3, 4] {
        let bytes = proposal.nodes[&NodeId(id)];
        assert_eq!((bytes.before, bytes.after), (0, bytes.copied), "node {id}");
    }
    let total: u64 = proposal.nodes.values().map(|node| node.after).sum();
    let most = proposal.nodes.values().map(|node| node.after).max();
    assert!(most.unwrap() < total * 2 / 5, "{:?}", proposal.nodes);
}

#[test]
fn a_replacement_in_the_same_zone_copies_what_the_old_node_held() {
    let (model, summaries) = cluster(3, 6, 3);
    let goal = PlanGoal::Replace {
        gone: NodeId(0),
        new: NodeId(3),
    };
    let proposal = propose(&model, &summaries, &goal, BATCH_BYTES).unwrap();
    let held = proposal.nodes[&NodeId(0)].before;
    assert_eq!(proposal.copied_bytes(), held);
    assert_eq!(proposal.nodes[&NodeId(3)].after, held);
    assert!(proposal.copies.iter().all(|copy| copy.to == NodeId(3)));
}

#[test]
fn batches_are_bounded_and_small_ones_are_joined() {
    let (model, summaries) = cluster(5, 5, 3);
    let goal = PlanGoal::Drain(nodes(&[2]));
    let most = 8 << 20;
    let small = propose(&model, &summaries, &goal, most).unwrap();
    let whole = propose(&model, &summaries, &goal, BATCH_BYTES).unwrap();
    assert_eq!(whole.plan.batches.len(), 1, "all is less than a batch");
    assert!(small.plan.batches.len() > 4);
    let copied = |proposal: &Proposal| proposal.copied_bytes();
    for batch in &small.plan.batches {
        // If two batches have a part of the same partition, the first copies it whole.
        assert!(batch.copied_bytes <= 2 * most, "{}", batch.copied_bytes);
    }
    assert_eq!(copied(&small), copied(&whole));
    let after = carried_out(&model, &small.plan);
    assert_eq!(after.layouts, carried_out(&model, &whole.plan).layouts);
}

#[test]
fn a_new_replica_count_changes_only_its_table() {
    let (model, summaries) = cluster(5, 5, 3);
    let hash = TableName::new("hash").unwrap();
    let words = TableName::new("words").unwrap();
    let goal = |table: &TableName, count| PlanGoal::Replicas {
        table: table.clone(),
        count,
    };
    let more = propose(&model, &summaries, &goal(&words, 3), BATCH_BYTES).unwrap();
    assert_eq!(more.plan.batches.len(), 1, "the lists are long enough");
    assert_eq!(more.copied_bytes(), 64 << 20);
    let most = propose(&model, &summaries, &goal(&hash, 5), BATCH_BYTES).unwrap();
    let after = carried_out(&model, &most.plan);
    assert_eq!(after.table(&hash).unwrap().replicas, 5);
    assert_eq!(most.plan.batches[0].copied_bytes, 0, "longer lists first");
    check_replicas_span_zones(&after);
    let less = propose(&model, &summaries, &goal(&hash, 1), BATCH_BYTES).unwrap();
    assert_eq!(less.copied_bytes(), 0);
    let refused = |table: &TableName, count| propose(&model, &summaries, &goal(table, count), 1);
    assert!(matches!(
        refused(&hash, 3),
        Err(PlanningError::SameReplicas { .. })
    ));
    assert!(matches!(refused(&hash, 0), Err(PlanningError::Replicas(0))));
    assert!(matches!(refused(&hash, 6), Err(PlanningError::Replicas(6))));
    let none = TableName::new("none").unwrap();
    assert!(matches!(refused(&none, 2), Err(PlanningError::NoTable(_))));
}

#[test]
fn impossible_goals_are_refused_with_a_reason() {
    let (model, summaries) = cluster(3, 4, 3);
    let refused = |goal| propose(&model, &summaries, &goal, 1).unwrap_err();
    assert_eq!(
        refused(PlanGoal::Drain(nodes(&[0, 1, 2]))),
        PlanningError::NobodyLeft
    );
    let replace = |gone, new| PlanGoal::Replace {
        gone: NodeId(gone),
        new: NodeId(new),
    };
    let holds = |id: u32| PlanningError::HoldsAlready(format!("n{id}"));
    assert_eq!(refused(replace(0, 1)), holds(1));
    let nothing = PlanningError::HoldsNothing("n3".to_owned());
    assert_eq!(refused(replace(3, 3)), nothing);
    let empty = propose(&Model::default(), &summaries, &PlanGoal::Even, 1);
    assert_eq!(empty.unwrap_err(), PlanningError::NoTables);
}

#[test]
fn the_picture_of_a_plan_shows_its_nodes_and_flows() {
    let (model, summaries) = cluster(3, 5, 3);
    let goal = PlanGoal::Add(nodes(&[3, 4]));
    let proposal = propose(&model, &summaries, &goal, BATCH_BYTES).unwrap();
    let picture = proposal.picture(&model, "two nodes more");
    let drawn = forebay_plan::draw::svg(&picture);
    for word in ["two nodes more", "n0", "n4", "bytes after"] {
        assert!(drawn.contains(word), "{word}");
    }
    let flows: f64 = picture.flows.iter().map(|flow| flow.amount).sum();
    assert_eq!(flows as u64, proposal.copied_bytes());
}

#[test]
fn a_saved_plan_is_shown_unchanged_and_refused_once_outdated() {
    let (model, summaries) = cluster(5, 5, 3);
    let goal = PlanGoal::Drain(nodes(&[2]));
    let made = propose(&model, &summaries, &goal, 8 << 20).unwrap();
    let again = Proposal::again(&model, &summaries, made.plan.clone()).unwrap();
    assert_eq!(again.plan, made.plan);
    assert_eq!((again.nodes, again.copies), (made.nodes, made.copies));
    let after = carried_out(&model, &made.plan);
    let old = Proposal::again(&after, &summaries, made.plan).unwrap_err();
    assert!(old.contains("when the plan was made"), "{old}");
}

/// The first push of a small ordered table advises this plan for the time when the table is large.
#[test]
fn an_ordered_table_of_one_range_is_divided_when_a_version_has_more_partitions() {
    let (mut model, mut summaries) = cluster(5, 5, 3);
    let table = TableName::new("words").unwrap();
    let layout = LayoutName::Table(table.clone());
    let small = summary(Order::Ordered, 1);
    let ranges = crate::routing::layouts::ordered_layout(&model, &small, 3).unwrap();
    assert_eq!(ranges.len(), 1);
    let made = Layout::new(Order::Ordered, ranges);
    model.layouts.insert(layout.clone(), made);
    summaries.insert(table, summary(Order::Ordered, 64));
    let proposal = propose(&model, &summaries, &PlanGoal::Even, BATCH_BYTES).unwrap();
    let after = carried_out(&model, &proposal.plan);
    check_replicas_span_zones(&after);
    let ranges: Vec<_> = after.layouts[&layout].ranges().collect();
    assert!(ranges.len() > 3, "{ranges:?}");
    assert_eq!(listed(&after.layouts[&layout]), nodes(&[0, 1, 2, 3, 4]));
}

#[test]
fn a_plan_reports_ranges_left_with_fewer_available_nodes() {
    let (mut model, summaries) = cluster(3, 3, 1);
    let goal = PlanGoal::Drain(nodes(&[0]));
    let thinned = |model: &Model| {
        let proposal = propose(model, &summaries, &goal, BATCH_BYTES).unwrap();
        proposal.thinned
    };
    assert_eq!(thinned(&model), None, "all are up");
    let mut down = model.node(NodeId(1)).unwrap().clone();
    down.state = NodeState::Down { since_unix_ms: 5 };
    model.put_node(down);
    let found = thinned(&model).unwrap();
    let least = found.ranges.keys().next().copied();
    assert_eq!((least, found.down.clone()), (Some(1), nodes(&[1])));
    let words = found.words(&model);
    let leaves = format!("leaves {} ranges with 1 copy, ", found.ranges[&1]);
    assert!(
        words.contains(" is down: ") && words.contains(&leaves),
        "{words}"
    );
    // With one replica, the data of that node cannot be read.
    let table = TableName::new("words").unwrap();
    let goal = PlanGoal::Replicas { table, count: 1 };
    let proposal = propose(&model, &summaries, &goal, BATCH_BYTES).unwrap();
    let ranges = proposal.thinned.unwrap().ranges;
    assert!(ranges.len() == 1 && ranges[&0] > 0, "{ranges:?}");
    // With as many nodes that are up as before, there is nothing to report.
    (3..6).for_each(|id| model.put_node(node(id, 1)));
    let goal = PlanGoal::Replace {
        gone: NodeId(0),
        new: NodeId(4),
    };
    let proposal = propose(&model, &summaries, &goal, BATCH_BYTES).unwrap();
    assert_eq!(proposal.thinned, None);
}
