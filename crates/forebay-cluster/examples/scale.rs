//! Measures the costs of a catalog of 10,000 nodes and two million partitions.
//!
//! It prints the catalog's size, the cost of a change of one partition, and the bytes that a node
//! reads after it. It also prints the coordinator's processor time for heartbeats.
//!
//! `cargo run --release -p forebay-cluster --example scale`

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use forebay_cluster::catalog::SeenTag;
use forebay_cluster::coordinator::{
    CommitOutcome, Coordinator, CoordinatorAction, CoordinatorEvent, CoordinatorSettings,
};
use forebay_cluster::message::{Beat, Introduction, LeadersMark};
use forebay_cluster::model::{
    DocRef, Documents, FORMATS, Head, Layout, LayoutName, Model, ModelError, NEWEST_FORMAT,
    NodeEntry, NodeState, RangeEntry, TableEntry, written,
};
use forebay_cluster::time::Now;
use forebay_cluster::{ClusterId, HostPort, NodeId, NodeName, Zone};
use forebay_engine::{Bound, TableName};
use forebay_io::{Clock, SystemClock};
use forebay_run::Order;

const NODES: u32 = 10_000;
const TABLES: u32 = 100;
const RANGES: u32 = 20_000;
const SECONDS: u64 = 10;

fn who(id: u32) -> Introduction {
    let address = |port| HostPort::new(&format!("node-{id}.example"), port);
    Introduction {
        name: NodeName::new(&format!("node-{id}")).expect("a plain name"),
        zone: Zone::new(&format!("zone-{}", id % 3)).expect("a plain name"),
        incarnation: u64::from(id) + 1,
        listen: address(7379),
        class_ports: vec![7381, 7382],
        peer: address(7400),
        http: None,
        cut_off_ms: None,
        formats: FORMATS,
        program: "0.1.0".to_owned(),
        key: None,
    }
}

fn node(id: u32) -> NodeEntry {
    let who = who(id);
    NodeEntry {
        id: NodeId(id),
        name: who.name,
        zone: who.zone,
        incarnation: who.incarnation,
        state: NodeState::Up,
        paused_until_unix_ms: None,
        listen: who.listen,
        class_ports: who.class_ports,
        peer: who.peer,
        http: None,
        cut_off_ms: None,
        formats: FORMATS,
        program: who.program,
        key: None,
    }
}

fn range(table: u32, at: u32) -> RangeEntry {
    let first = table.wrapping_mul(7919).wrapping_add(at) % NODES;
    let lower = match at {
        0 => Bound::Key(Vec::new()),
        at => Bound::Key(format!("customer-{at:013}").into_bytes()),
    };
    let list = (0..3).map(|step| NodeId((first + step) % NODES));
    RangeEntry::new(lower, list.collect())
}

fn table(number: u32) -> TableName {
    TableName::new(&format!("table-{number}")).expect("a plain name")
}

fn model() -> Model {
    let mut model = Model::default();
    (0..NODES).for_each(|id| model.put_node(node(id)));
    model.work.edit().next_node = NODES;
    for number in 0..TABLES {
        let name = LayoutName::Table(table(number));
        let ranges = (0..RANGES).map(|at| range(number, at)).collect();
        let layout = Layout::new(Order::Ordered, ranges);
        model.layouts.insert(name.clone(), layout);
        let entry = TableEntry {
            serving: Some(1),
            ..TableEntry::new(Order::Ordered, name, 3)
        };
        model.put_table(&table(number), entry);
    }
    model
}

fn bytes(documents: &Documents) -> usize {
    documents.values().map(Vec::len).sum()
}

struct Names(u64);

impl Names {
    fn next(&mut self) -> DocRef {
        self.0 += 1;
        DocRef::new(&format!("1-1-{}-0a1b2c3d", self.0))
    }
}

/// Runs a piece of work, and prints its name and its duration.
fn timed<T>(clock: &SystemClock, what: &str, work: impl FnOnce() -> T) -> T {
    let begun = clock.monotonic();
    let result = work();
    let took = clock.monotonic().saturating_sub(begun);
    println!("{what}: {:.1} ms", took.as_secs_f64() * 1000.0);
    result
}

fn main() -> Result<(), ModelError> {
    let clock = SystemClock;
    let mut names = Names(0);
    let mut model = timed(&clock, "made", model);
    let (documents, roots) = timed(&clock, "written", || {
        model.write(NEWEST_FORMAT, || names.next())
    })?;
    let mut head = Head::first(ClusterId(1), 1);
    head.roots = roots;
    println!("{} documents, {} bytes", documents.len(), bytes(&documents));
    println!("head: {} bytes", written(NEWEST_FORMAT, &head)?.len());

    let before = model.clone();
    let name = LayoutName::Table(table(7));
    let mut ranges: Vec<RangeEntry> = (0..RANGES).map(|at| range(7, at)).collect();
    ranges[777].list = vec![NodeId(1), NodeId(2), NodeId(3)];
    let (changed, roots) = timed(&clock, "one partition changed, and written", || {
        if let Some(layout) = model.layouts.get_mut(&name) {
            layout.replace(ranges);
        }
        model.write(NEWEST_FORMAT, || names.next())
    })?;
    println!(
        "{} documents, {} bytes, and the head",
        changed.len(),
        bytes(&changed)
    );
    head.roots = roots;
    head.revision = 1;
    let read = timed(&clock, "read by a node", || {
        Model::read(&head, &changed, &before)
    })?;
    assert!(read == model);
    heartbeats(&clock, head, model);
    Ok(())
}

fn beat(id: u32, seq: u64, revision: u64) -> Box<Beat> {
    Box::new(Beat {
        moving: None,
        cluster: ClusterId(1),
        who: who(id),
        seq,
        revision,
        serves: revision,
        holds: revision,
        rollouts: BTreeMap::new(),
        leaving: false,
        free_bytes: Some(1 << 40),
        fetched_bytes_per_s: None,
        problems: Vec::new(),
        suspects: BTreeSet::new(),
        groups: Vec::new(),
        groups_left: 0,
        reads: Vec::new(),
        leaders_known: LeadersMark::default(),
    })
}

/// Simulates one heartbeat a second from every node.
fn heartbeats(clock: &SystemClock, head: Head, model: Model) {
    let at = |millis: u64| Now {
        monotonic: Duration::from_millis(1_000_000 + millis),
        unix_ms: 1_700_000_000_000 + millis,
    };
    let (mut coordinator, _) = Coordinator::new(at(0), 1, CoordinatorSettings::default());
    let seen = SeenTag("seen".to_owned());
    let loaded = CoordinatorEvent::Loaded {
        head: Box::new(head),
        seen: seen.clone(),
        model: Box::new(model),
    };
    let mut todo = coordinator.handle(at(0), loaded);
    let mut revision = 0;
    let mut spent = Duration::ZERO;
    let mut commits = 0;
    for millis in 0..SECONDS * 1000 {
        let mut events: Vec<CoordinatorEvent> = std::mem::take(&mut todo)
            .into_iter()
            .filter_map(|action| match action {
                CoordinatorAction::Commit { head, .. } => {
                    (revision, commits) = (head.revision, commits + 1);
                    let outcome = CommitOutcome::Done(seen.clone());
                    let stamp = head.stamp;
                    Some(CoordinatorEvent::Wrote { stamp, outcome })
                }
                _ => None,
            })
            .collect();
        let first = (millis % 1000) as u32 * (NODES / 1000);
        events.extend(
            (first..first + NODES / 1000).map(|id| CoordinatorEvent::Beat {
                token: millis * 1000 + u64::from(id),
                beat: beat(id, millis, revision),
            }),
        );
        if millis % 100 == 0 {
            events.push(CoordinatorEvent::Tick);
        }
        let begun = clock.monotonic();
        for event in events {
            todo.extend(coordinator.handle(at(millis), event));
        }
        spent += clock.monotonic().saturating_sub(begun);
    }
    let share = spent.as_secs_f64() / SECONDS as f64;
    println!("heartbeats: {share:.3} of a core, {commits} commits");
}
