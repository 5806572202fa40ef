use forebay_engine::live::{LiveDraft, PartitionSize};
use forebay_engine::{Bounds, PartitionId};
use forebay_replica::GroupId;
use forebay_run::Order;

use super::*;
use crate::ids::{HostPort, NodeName};
use crate::measures::traffic::ReplicaTraffic;
use crate::model::{
    EndedLoad, Layout, LiveEntry, NodeState, RangeEntry, Replication, TableEntry, TableGroups,
};
use crate::planning::{NodeBytes, carry_out, fits};

const PARTITIONS: u32 = 16;

pub(crate) fn node(id: u32) -> NodeEntry {
    NodeEntry {
        id: NodeId(id),
        name: NodeName::new(&format!("n{id}")).unwrap(),
        zone: Zone::new(&format!("z{id}")).unwrap(),
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

pub(crate) fn carts() -> TableName {
    TableName::new("carts").unwrap()
}

fn lower(at: u32) -> Bound {
    Bound::Slot((at * SLOTS / PARTITIONS) as u16)
}

/// A cluster of `all` nodes, of which the first `holding` have a table of 16 partitions with three
/// replicas each. `reads` gives the reads of each partition in a minute.
pub(crate) fn cluster(holding: u32, all: u32, reads: impl Fn(u32) -> u64) -> (Model, Survey) {
    let mut model = Model::default();
    (0..all).for_each(|id| model.put_node(node(id)));
    let layout = LayoutName::Table(carts());
    let mut entry = TableEntry::new(Order::Hashed, layout.clone(), 3);
    entry.live = Some(Box::new(LiveEntry {
        options: LiveDraft::hashed().options,
        replication: Replication::Leader,
        last_load: EndedLoad::default(),
    }));
    let list = |at: u32| -> Vec<NodeId> {
        (0..holding)
            .map(|place| NodeId((at + place) % holding))
            .collect()
    };
    let ranges = (0..PARTITIONS).map(|at| RangeEntry::new(lower(at), list(at)));
    let made = Layout::new(Order::Hashed, ranges.collect());
    model.layouts.insert(layout, made);
    model.put_table(&carts(), entry);
    let group = |at: u32| {
        let bounds = Bounds {
            lower: lower(at),
            upper: (at + 1 < PARTITIONS).then(|| lower(at + 1)),
        };
        let nodes = &list(at)[..3];
        GroupEntry::founded(GroupId(at.into()), PartitionId(at), bounds, nodes, 1)
    };
    let groups: Vec<GroupEntry> = (0..PARTITIONS).map(group).collect();
    model.groups.insert(carts(), TableGroups::new(&groups));
    let reported = |at: u32| {
        let rate = TrafficRate {
            reads: reads(at),
            ..TrafficRate::default()
        };
        let traffic = ReplicaTraffic {
            minute: rate,
            hour: rate,
            ..ReplicaTraffic::default()
        };
        let reported = SurveyedPartition {
            size: PartitionSize {
                records: 1000,
                bytes: 1 << 20,
                split_points: Vec::new(),
            },
            leader: Some(list(at)[0]),
            traffic: vec![(list(at)[0], traffic)],
        };
        (PartitionId(at), reported)
    };
    let survey = Survey::from([(carts(), (0..PARTITIONS).map(reported).collect())]);
    (model, survey)
}

fn placed(model: &Model, survey: &Survey) -> Result<PlaceProposal, PlanningError> {
    placed_with(model, survey, 20)
}

fn placed_with(
    model: &Model,
    survey: &Survey,
    most_copies: usize,
) -> Result<PlaceProposal, PlanningError> {
    let table = carts();
    let by = PlaceByLoad {
        table: &table,
        window: TrafficWindow::Hour,
        limits: LoadLimits {
            most_copies,
            share: 0.99,
        },
    };
    let known = KnownLoad {
        summaries: &Default::default(),
        reads: &Default::default(),
        survey,
    };
    propose_place(model, known, &by, 1 << 30)
}

/// The model after all batches. Each batch must fit the model at its time.
pub(crate) fn carried_out(model: &Model, proposal: &Proposal) -> Model {
    let mut model = model.clone();
    for batch in &proposal.plan.batches {
        fits(&model, batch).unwrap();
        carry_out(&mut model, batch);
    }
    model
}

pub(crate) fn ratio(loads: &[f64]) -> f64 {
    let mean = loads.iter().sum::<f64>() / loads.len() as f64;
    loads.iter().copied().fold(0.0, f64::max) / mean
}

#[test]
fn leaders_follow_the_reads_and_nothing_is_copied() {
    // Three partitions of node 0 have most of the reads.
    let is_hot = |at: u32| [0, 4, 8].contains(&at);
    let (model, survey) = cluster(4, 4, |at| if is_hot(at) { 4800 } else { 600 });
    let made = placed_with(&model, &survey, 0).unwrap();
    let (before, after) = (ratio(&made.placed.before), ratio(&made.placed.after));
    assert!(before > 2.5 && after < 1.1, "{before} {after}");
    assert_eq!(made.proposal.copied_bytes(), 0);
    assert_eq!(made.proposal.plan.batches.len(), 1);
    assert!(made.placed.handed_over > 0);
    let after = carried_out(&model, &made.proposal);
    for ((_, list), placed) in after.desired_groups(&carts()).iter().zip(&made.partitions) {
        assert_eq!(*list, placed.after);
        let before: BTreeSet<&NodeId> = placed.before.iter().collect();
        assert_eq!(list.iter().collect::<BTreeSet<_>>(), before);
    }
    for range in after.layouts[&LayoutName::Table(carts())].ranges() {
        let nodes: BTreeSet<&NodeId> = range.list.iter().collect();
        assert_eq!((nodes.len(), range.list.len()), (4, 4), "{range:?}");
    }
}

#[test]
fn an_empty_node_gets_replicas_and_the_plan_reports_their_bytes() {
    let (model, survey) = cluster(3, 5, |at| 1000 + 100 * u64::from(at));
    let made = placed(&model, &survey).unwrap();
    assert!(ratio(&made.placed.before) > 1.6 && ratio(&made.placed.after) < 1.1);
    assert!(made.placed.copies > 0 && made.placed.copies <= 20);
    let reported = made.proposal.copied_bytes();
    assert_eq!(reported, made.placed.copied_bytes);
    assert_eq!(reported, (made.placed.copies as u64) << 20);
    let after = carried_out(&model, &made.proposal);
    let again = survey.clone();
    let made = placed(&after, &again).unwrap();
    assert_eq!(made.placed.copies, 0, "an even placement does not change");
}

#[test]
fn a_partition_too_hot_for_any_node_gets_a_split_point() {
    let (model, survey) = cluster(4, 4, |at| if at == 5 { 60_000 } else { 1000 });
    let made = placed(&model, &survey).unwrap();
    let partitions = made.partitions.iter();
    let splits: Vec<&Bound> = partitions.filter_map(|one| one.split_at.as_ref()).collect();
    let middle = (5 * SLOTS / PARTITIONS + SLOTS / PARTITIONS / 2) as u16;
    assert_eq!(splits, [&Bound::Slot(middle)]);
    assert_eq!(made.placed.hottest().1, made.placed.bound);
}

#[test]
fn the_load_of_other_live_tables_counts() {
    let (mut model, mut survey) = cluster(4, 4, |_| 1000);
    let words = TableName::new("words").unwrap();
    let mut entry = model.table(&carts()).unwrap().clone();
    entry.layout = LayoutName::Table(words.clone());
    model.put_table(&words, entry);
    model.groups.insert(words.clone(), TableGroups::new(&[]));
    let mut reported = survey[&carts()][&PartitionId(0)].clone();
    reported.traffic[0].1.hour.reads = 4000;
    let reported = [(PartitionId(0), reported)].into_iter().collect();
    survey.insert(words, reported);
    let made = placed(&model, &survey).unwrap();
    let of_busy = made
        .nodes
        .iter()
        .position(|node| *node == NodeId(0))
        .unwrap();
    assert_eq!(made.placed.before[of_busy], 8000.0);
    assert!(made.placed.after[of_busy] <= 5000.0, "{:?}", made.placed);
}

#[test]
fn an_impossible_plan_is_refused_with_a_reason() {
    let (mut model, survey) = cluster(4, 4, |_| 0);
    let quiet = placed(&model, &survey).unwrap_err().to_string();
    assert!(quiet.contains("no node reported reads"), "{quiet}");
    let unknown = placed(&model, &Survey::new()).unwrap_err();
    assert!(matches!(
        unknown,
        PlanningError::Unsurveyed { count: 16, .. }
    ));
    let mut down = node(2);
    down.state = NodeState::Down { since_unix_ms: 5 };
    model.put_node(down);
    let (_, survey) = cluster(4, 4, |_| 10);
    let refused = placed(&model, &survey).unwrap_err().to_string();
    assert!(refused.contains("node n2"), "{refused}");
}

#[test]
fn a_survey_by_the_previous_program_version_is_read() {
    let old = r#"{"records":3,"bytes":70}"#;
    let reported: SurveyedPartition = serde_json::from_str(old).unwrap();
    assert_eq!(
        (reported.size.bytes, reported.leader, reported.traffic.len()),
        (70, None, 0)
    );
    let (_, survey) = cluster(4, 4, |_| 10);
    let text = serde_json::to_string(&survey).unwrap();
    assert_eq!(serde_json::from_str::<Survey>(&text).unwrap(), survey);
}

#[test]
fn an_added_node_takes_bytes_from_the_fullest_nodes() {
    let (model, mut survey) = cluster(5, 6, |_| 1);
    // The large partitions are adjacent. By their number alone the new node could get none of them.
    for (partition, reported) in survey.get_mut(&carts()).unwrap() {
        reported.size.bytes = if partition.0 < 4 { 100 << 20 } else { 1 << 20 };
    }
    let summaries = surveyed(&model, &survey, &[]);
    let goal = PlanGoal::Add([NodeId(5)].into());
    let made = crate::planning::propose(&model, &summaries, &goal, 1 << 30).unwrap();
    let held = |of: fn(&NodeBytes) -> u64| made.nodes.values().map(of).collect::<Vec<u64>>();
    let (before, after) = (held(|node| node.before), held(|node| node.after));
    let mean = after.iter().sum::<u64>() / 6;
    let most = |held: &[u64]| held.iter().copied().max().unwrap();
    assert!(most(&after) < most(&before), "{before:?} {after:?}");
    assert!(after[5] > mean / 2, "{before:?} {after:?}");
    let poorest = (0..5).min_by_key(|node| before[*node]).unwrap();
    assert!(after[poorest] > before[poorest] / 2, "{before:?} {after:?}");
}
