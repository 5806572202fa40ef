//! How long a cluster's planner takes: a live table of many nodes, and rows that all come into a
//! part of its keys.

use std::collections::BTreeMap;
use std::time::Instant;

use clap::Args;
use forebay_cluster::model::{
    EndedLoad, GroupEntry, Layout, LayoutName, LiveEntry, Model, NodeEntry, NodeState, RangeEntry,
    Replication, Survey, SurveyedPartition, TableEntry, TableGroups,
};
use forebay_cluster::planning::{
    BulkInsert, BulkRows, KnownCluster, Paces, Summaries, propose_insert,
};
use forebay_cluster::{HostPort, NodeId, NodeName, Zone};
use forebay_engine::live::{LiveDraft, PartitionSize};
use forebay_engine::{Bound, Bounds, PartitionId, TableName};
use forebay_plan::insert::Mode;
use forebay_replica::GroupId;
use forebay_run::Order;
use serde_json::json;

/// What a node has before, and what comes for each, as in the paper: rows of 1 KB.
const BEFORE_A_NODE: u64 = 500_000;
const NEW_A_NODE: u64 = 100_000;
const ROW_BYTES: u64 = 1016;
const PARTITIONS_A_NODE: u64 = 4;
/// Keys are numbers below this; new ones lie in the third tenth of them.
const KEYS: u64 = 1_000_000_000_000;
const SAMPLES: u64 = 20_000;
const SPLIT_POINTS: u64 = 15;

#[derive(Debug, Args)]
pub struct Clusters {
    /// How many nodes.
    #[arg(long)]
    nodes: u64,
    /// Replicas of each partition.
    #[arg(long, default_value_t = 3)]
    replicas: usize,
}

/// Plans once; one JSON line.
pub fn run(args: &Clusters) {
    let table = TableName::new("t").expect("a table's name");
    let (model, survey) = cluster(args, &table);
    let keys: Vec<Vec<u8>> = (0..SAMPLES)
        .map(|at| key(KEYS / 5 + at * (KEYS / 10) / SAMPLES))
        .collect();
    let rows = NEW_A_NODE * args.nodes;
    let into = [BulkRows {
        table: &table,
        keys: &keys,
        rows,
        bytes: rows * ROW_BYTES,
    }];
    let bulk = BulkInsert {
        into: &into,
        partition_bytes: None,
        batch_bytes: None,
        move_price: 1.0,
        mode: Mode::Fast,
    };
    let paces: Paces = (0..args.nodes as u32)
        .map(|id| (NodeId(id), 12 << 20))
        .collect();
    let known = KnownCluster {
        model: &model,
        summaries: &Summaries::new(),
        survey: &survey,
        paces: &paces,
    };
    let started = Instant::now();
    let made = propose_insert(&known, &bulk, &mut || false);
    let milliseconds = started.elapsed().as_secs_f64() * 1e3;
    let line = match made {
        Ok(made) => json!({
            "nodes": args.nodes,
            "partitions": PARTITIONS_A_NODE * args.nodes,
            "milliseconds": milliseconds,
            "splits": made.insert.splits.len(),
            "moves": made.insert.own.moves.len(),
            "saves_seconds": made.verdict.saves.as_secs_f64(),
            "takes_seconds": made.verdict.takes.as_secs_f64(),
        }),
        Err(error) => json!({"nodes": args.nodes, "problem": error.to_string()}),
    };
    println!("{line}");
}

fn key(number: u64) -> Vec<u8> {
    format!("{number:016}").into_bytes()
}

fn cluster(args: &Clusters, table: &TableName) -> (Model, Survey) {
    let (nodes, partitions) = (args.nodes, PARTITIONS_A_NODE * args.nodes);
    let mut model = Model::default();
    (0..nodes as u32).for_each(|id| model.put_node(node(id)));
    let layout = LayoutName::Table(table.clone());
    let replicas = args.replicas;
    let mut entry = TableEntry::new(Order::Ordered, layout.clone(), replicas);
    entry.live = Some(Box::new(LiveEntry {
        options: LiveDraft::ordered(Vec::new()).options,
        replication: Replication::Leader,
        last_load: EndedLoad::default(),
    }));
    let place = |at: u64| match at {
        0 => Vec::new(),
        _ => key(at * (KEYS / partitions)),
    };
    let list = |at: u64| -> Vec<NodeId> {
        let nodes_of = (0..3.max(replicas) as u64).map(|place| (at + place) % nodes);
        nodes_of.map(|id| NodeId(id as u32)).collect()
    };
    let ranges = (0..partitions).map(|at| RangeEntry::new(Bound::Key(place(at)), list(at)));
    let layout_of = Layout::new(Order::Ordered, ranges.collect());
    model.layouts.insert(layout, layout_of);
    model.put_table(table, entry);
    let groups: Vec<GroupEntry> = (0..partitions)
        .map(|at| {
            let bounds = Bounds {
                lower: Bound::Key(place(at)),
                upper: (at + 1 < partitions).then(|| Bound::Key(place(at + 1))),
            };
            let (group, partition) = (GroupId(at + 1), PartitionId(at as u32));
            GroupEntry::founded(group, partition, bounds, &list(at)[..replicas], 1)
        })
        .collect();
    model
        .groups
        .insert(table.clone(), TableGroups::new(&groups));
    let records = BEFORE_A_NODE * nodes / partitions;
    let width = KEYS / partitions;
    let sizes: BTreeMap<PartitionId, SurveyedPartition> = (0..partitions)
        .map(|at| {
            let key_of = |point| at * width + point * width / (SPLIT_POINTS + 1);
            let split_points = (1..=SPLIT_POINTS).map(key_of);
            let size = SurveyedPartition {
                size: PartitionSize {
                    records,
                    bytes: records * ROW_BYTES,
                    split_points: split_points.map(|point| Bound::Key(key(point))).collect(),
                },
                leader: Some(list(at)[0]),
                traffic: Vec::new(),
            };
            (PartitionId(at as u32), size)
        })
        .collect();
    (model, Survey::from([(table.clone(), sizes)]))
}

fn node(id: u32) -> NodeEntry {
    NodeEntry {
        id: NodeId(id),
        name: NodeName::new(&format!("n{id}")).expect("a node's name"),
        zone: Zone::new(&format!("z{}", id % 3)).expect("a zone's name"),
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
