use std::collections::BTreeMap;

use forebay_engine::Bound;
use forebay_run::Order;
use forebay_run::hash::SLOTS;

use super::super::place::tests::{carried_out, node, ratio};
use super::*;
use crate::ids::Zone;
use crate::measures::traffic::ReplicaTraffic;
use crate::model::{Layout, PlanGoal, RangeEntry};
use crate::planning::{BATCH_BYTES, propose};
use crate::routing::version::{PartitionSummary, ranges_answered};

const PARTITIONS: u32 = 24;
const NODES: u32 = 6;

fn people() -> TableName {
    TableName::new("people").unwrap()
}

fn other() -> TableName {
    TableName::new("other").unwrap()
}

fn lower(at: u32) -> Bound {
    Bound::Slot((at * SLOTS / PARTITIONS) as u16)
}

fn bounds(at: u32) -> Bounds {
    Bounds {
        lower: lower(at),
        upper: (at + 1 < PARTITIONS).then(|| lower(at + 1)),
    }
}

fn summary() -> VersionSummary {
    let partition = |at: u32| PartitionSummary {
        bounds: bounds(at),
        rows: 10,
        content: Default::default(),
        file_bytes: 1000,
    };
    VersionSummary {
        order: Order::Hashed,
        partitions: (0..PARTITIONS).map(partition).collect(),
    }
}

/// Two tables that share the slots of six nodes in three zones, with two replicas each.
fn cluster() -> (Model, Summaries) {
    let mut model = Model::default();
    for id in 0..NODES {
        let mut entry = node(id);
        entry.zone = Zone::new(&format!("z{}", id % 3)).unwrap();
        model.put_node(entry);
    }
    let list = |at: u32| {
        (0..3)
            .map(|place| NodeId((at / 4 + place) % NODES))
            .collect()
    };
    let ranges = (0..PARTITIONS).step_by(4);
    let ranges = ranges.map(|at| RangeEntry::new(lower(at), list(at)));
    let main = Layout::new(Order::Hashed, ranges.collect());
    model.layouts.insert(LayoutName::Main, main);
    let mut summaries = Summaries::new();
    for table in [people(), other()] {
        let mut entry = TableEntry::new(Order::Hashed, LayoutName::Main, 2);
        entry.serving = Some(1);
        model.put_table(&table, entry);
        summaries.insert(table, summary());
    }
    (model, summaries)
}

/// The reports of nodes that all answer for what they hold.
fn reported(model: &Model, table: &TableName, reads: impl Fn(u32) -> u64) -> BatchReads {
    let entry = model.table(table).unwrap();
    let layout = model.layout_of(entry).unwrap();
    let mut reported = Vec::new();
    for at in 0..PARTITIONS {
        let holds = |node: &u32| {
            let ranges = ranges_answered(layout, entry, NodeId(*node));
            overlaps_any(&bounds(at), &ranges)
        };
        let holders: Vec<u32> = (0..NODES).filter(holds).collect();
        for node in &holders {
            let mut traffic = ReplicaTraffic::default();
            traffic.minute.reads = reads(at) / holders.len() as u64;
            reported.push(NodeReads {
                node: NodeId(*node),
                version: 1,
                bounds: bounds(at),
                traffic,
            });
        }
    }
    BatchReads::from([(table.clone(), reported)])
}

fn placed(
    model: &Model,
    summaries: &Summaries,
    reads: &BatchReads,
    most_copies: usize,
) -> Result<PlaceProposal, PlanningError> {
    let (table, survey) = (people(), Survey::new());
    let by = PlaceByLoad {
        table: &table,
        window: TrafficWindow::Minute,
        limits: LoadLimits {
            most_copies,
            share: 0.99,
        },
    };
    let known = KnownLoad {
        summaries,
        reads,
        survey: &survey,
    };
    propose_place_reads(model, known, &by, 1.25, BATCH_BYTES)
}

fn hot(at: u32) -> impl Fn(u32) -> u64 {
    move |one| if one == at { 60_000 } else { 1000 }
}

/// The number of nodes of each partition.
fn copies(model: &Model) -> Vec<usize> {
    let entry = model.table(&people()).unwrap();
    let layout = model.layout_of(entry).unwrap();
    let of_partition = |at: u32| {
        let holds = |node: &u32| {
            let ranges = ranges_answered(layout, entry, NodeId(*node));
            overlaps_any(&bounds(at), &ranges)
        };
        (0..NODES).filter(holds).count()
    };
    (0..PARTITIONS).map(of_partition).collect()
}

#[test]
fn the_most_read_partition_gets_more_nodes_and_other_tables_stay() {
    let (model, summaries) = cluster();
    let reads = reported(&model, &people(), hot(5));
    let made = placed(&model, &summaries, &reads, 20).unwrap();
    assert!(ratio(&made.placed.before) > 1.8 && ratio(&made.placed.after) < 1.1);
    assert!(
        made.placed.copies <= 20
            && made.proposal.copied_bytes() == 1000 * made.placed.copies as u64
    );
    let plan = &made.proposal.plan;
    assert_eq!(plan.batches[0].own, [people()]);
    assert!(plan.has_own() && !plan.batches[0].moves() && plan.batches[1].moves());
    let after = carried_out(&model, &made.proposal);
    let entry = after.table(&people()).unwrap();
    assert!(entry.by_range && entry.replicas == 2);
    let copies = copies(&after);
    assert!(
        copies[5] >= 5 && copies.iter().all(|count| *count >= 2),
        "{copies:?}"
    );
    // The other table's holders did not change.
    let held = |model: &Model| {
        let entry = model.table(&other()).unwrap();
        let layout = model.layout_of(entry).unwrap();
        (0..NODES)
            .map(|node| ranges_answered(layout, entry, NodeId(node)))
            .collect::<Vec<_>>()
    };
    assert_eq!(held(&model), held(&after));
    // The load is even now.
    let reads = reported(&after, &people(), hot(5));
    let again = placed(&after, &summaries, &reads, 20).unwrap();
    assert!(
        again.proposal.plan.batches.is_empty(),
        "{:?}",
        again.proposal.plan
    );
}

#[test]
fn a_new_plan_follows_a_shift_of_the_load() {
    let (model, summaries) = cluster();
    let made = placed(&model, &summaries, &reported(&model, &people(), hot(5)), 20).unwrap();
    let model = carried_out(&model, &made.proposal);
    let reads = reported(&model, &people(), hot(17));
    let made = placed(&model, &summaries, &reads, 20).unwrap();
    assert!(
        made.proposal
            .plan
            .batches
            .iter()
            .all(|batch| batch.own.is_empty())
    );
    let after = carried_out(&model, &made.proposal);
    let copies = copies(&after);
    assert!(
        copies[17] >= 5 && copies.iter().sum::<usize>() <= 60,
        "{copies:?}"
    );
    assert!(ratio(&made.placed.after) < 1.15);
}

#[test]
fn load_of_other_tables_counts() {
    let (model, summaries) = cluster();
    let mut reads = reported(&model, &people(), |_| 1000);
    reads.extend(reported(&model, &other(), hot(0)));
    let made = placed(&model, &summaries, &reads, 20).unwrap();
    // Nodes 0 and 1 have the other table's hot partition.
    let [before, after] = [&made.placed.before, &made.placed.after];
    assert!(
        before[0] > 2.0 * before[3] && after[0] < before[0],
        "{before:?} {after:?}"
    );
}

#[test]
fn placed_lists_follow_added_and_removed_nodes() {
    let (model, summaries) = cluster();
    let made = placed(&model, &summaries, &reported(&model, &people(), hot(5)), 20).unwrap();
    let model = carried_out(&model, &made.proposal);
    let before = copies(&model);
    let gone = NodeId(2);
    let goal = PlanGoal::Drain([gone].into());
    let drained = propose(&model, &summaries, &goal, BATCH_BYTES).unwrap();
    let after = carried_out(&model, &drained);
    let entry = after.table(&people()).unwrap();
    let mut lists = after
        .layout_of(entry)
        .unwrap()
        .ranges()
        .map(|range| &range.list);
    assert!(lists.all(|list| !list.contains(&gone) && list.len() >= 2));
    let kept: Vec<usize> = before.iter().map(|count| (*count).min(5)).collect();
    assert_eq!(
        copies(&after),
        kept,
        "as many copies as before, up to the number of nodes"
    );
    let mut model = model;
    model.put_node(node(7));
    let new = NodeId(7);
    let goal = PlanGoal::Replace { gone, new };
    let replaced = propose(&model, &summaries, &goal, BATCH_BYTES).unwrap();
    let after = carried_out(&model, &replaced);
    let entry = after.table(&people()).unwrap();
    let layout = after.layout_of(entry).unwrap();
    let had = model.layout_of(entry).unwrap();
    assert_eq!(
        ranges_answered(layout, entry, new),
        ranges_answered(had, entry, gone)
    );
    let count = |count| PlanGoal::Replicas {
        table: people(),
        count,
    };
    for wanted in [1, 3] {
        let changed = propose(&model, &summaries, &count(wanted), BATCH_BYTES).unwrap();
        let after = carried_out(&model, &changed);
        assert_eq!(after.table(&people()).unwrap().replicas, wanted);
        assert_eq!(copies(&after), vec![wanted; PARTITIONS as usize]);
    }
}

#[test]
fn an_impossible_placement_is_refused_with_a_reason() {
    let (mut model, mut summaries) = cluster();
    let reads = reported(&model, &people(), hot(5));
    let refused = |model: &Model, summaries: &Summaries, reads: &BatchReads| {
        let made = placed(model, summaries, reads, 20);
        made.map(drop).unwrap_err().to_string()
    };
    let quiet = BatchReads::new();
    assert!(refused(&model, &summaries, &quiet).contains("no node reported reads"));
    let whole = summary().partitions.remove(0);
    let one = VersionSummary {
        order: Order::Hashed,
        partitions: vec![whole],
    };
    let of_one = Summaries::from([(people(), one)]);
    assert!(refused(&model, &of_one, &reads).contains("push it with --partitions"));
    let mut down = model.node(NodeId(1)).unwrap().clone();
    down.state = crate::model::NodeState::Down { since_unix_ms: 0 };
    model.put_node(down);
    assert!(refused(&model, &summaries, &reads).contains("is down"));
    summaries.remove(&people());
    assert!(refused(&model, &summaries, &reads).contains("push it first"));
}

#[test]
fn ordered_tables_are_placed_by_their_own_partitions() {
    let (mut model, _) = cluster();
    let key = |at: u32| Bound::Key(format!("{at:02}").into_bytes());
    let first = |at: u32| {
        if at == 0 {
            Bound::Key(Vec::new())
        } else {
            key(at)
        }
    };
    let list = |at: u32| (0..3).map(|place| NodeId((at + place) % NODES)).collect();
    let ranges = (0..12)
        .step_by(2)
        .map(|at| RangeEntry::new(first(at), list(at)));
    let layout = LayoutName::Table(people());
    let own = Layout::new(Order::Ordered, ranges.collect());
    model.layouts.insert(layout.clone(), own);
    let mut entry = TableEntry::new(Order::Ordered, layout, 2);
    entry.serving = Some(1);
    model.put_table(&people(), entry);
    // The partitions of another version: some cross the bounds of the layout's ranges.
    let lowers: Vec<Bound> = [0, 1, 3, 4, 7, 9].map(first).to_vec();
    let uppers = lowers.iter().skip(1).cloned().map(Some).chain([None]);
    let parts = lowers
        .iter()
        .zip(uppers)
        .map(|(lower, upper)| PartitionSummary {
            bounds: Bounds {
                lower: lower.clone(),
                upper,
            },
            rows: 1,
            content: Default::default(),
            file_bytes: 1000,
        });
    let summary = VersionSummary {
        order: Order::Ordered,
        partitions: parts.collect(),
    };
    let mut traffic = ReplicaTraffic::default();
    traffic.minute.reads = 9000;
    let reported = NodeReads {
        node: NodeId(4),
        version: 1,
        bounds: summary.partitions[3].bounds.clone(),
        traffic,
    };
    let summaries = Summaries::from([(people(), summary)]);
    let reads = BatchReads::from([(people(), vec![reported])]);
    let made = placed(&model, &summaries, &reads, 20).unwrap();
    let after = carried_out(&model, &made.proposal);
    let entry = after.table(&people()).unwrap();
    let lists: BTreeMap<&Bound, usize> = after
        .layout_of(entry)
        .unwrap()
        .ranges()
        .map(|range| (&range.lower, range.list.len()))
        .collect();
    assert!(lists[&first(4)] >= 5, "{lists:?}");
    assert!(lists.values().all(|count| *count >= 2), "{lists:?}");
}
