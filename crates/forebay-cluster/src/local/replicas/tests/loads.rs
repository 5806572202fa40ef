//! Tests of ordered loads: fetched, added by the group, cancelled.

use std::sync::Arc;

use forebay_engine::live::{Durability, Load, StagedLoad};
use forebay_engine::{PartitionRange, RunId, RunRef, Store};
use forebay_io::{Disk, OsDisk};
use forebay_run::RunWriter;
use forebay_run::operation::Operation;
use tempfile::TempDir;

use super::nodes::{TestNodes, table_name, wait_for};
use crate::measures::reports::{LoadedState, ReplicaProblem};
use crate::model::EndedLoad;
use crate::routing::live::OrderedLoad;

const RUNS: [(usize, u64, bool); 3] = [(0, 1, false), (1, 2, false), (2, 3, false)];

/// A load of two keys, staged in a store of its own; its files go with it.
struct TestLoad {
    store: TempDir,
    load: Load,
    ordered: OrderedLoad,
}

impl TestLoad {
    fn stage(nodes: &TestNodes, number: u64) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store: Store = forebay_engine::open(dir.path()).unwrap();
        let range: PartitionRange = forebay_engine::live::LiveDraft::hashed()
            .partitions(1)
            .partitions
            .remove(0);
        let partition = range.id;
        let turn = store.take_load_turn(&table_name()).unwrap();
        let load = store.stage_load(turn, &nodes.options, vec![range]);
        let load = load.unwrap();
        let new = load.new_run(partition);
        let disk: Arc<dyn Disk> = Arc::new(OsDisk::default());
        let mut writer = RunWriter::create(&disk, &new.path, load.run_options()).unwrap();
        let hasher = forebay_run::hash::KeyHasher::new(table_name().wire_prefix().as_slice());
        let mut keys = [b"a", b"b"].map(|key| (hasher.hash64(key), key));
        keys.sort();
        for (hash, key) in keys {
            writer.push(hash, key, Operation::Update(b"load")).unwrap();
        }
        let run = RunRef {
            id: new.id,
            summary: writer.finish().unwrap(),
            operations: None,
        };
        let (id, sum) = load.stage(&[(partition, run)]).unwrap();
        *nodes.store.root.lock() = dir.path().to_path_buf();
        let ordered = OrderedLoad {
            number,
            id,
            sum,
            is_adding: false,
        };
        Self {
            store: dir,
            load,
            ordered,
        }
    }

    fn run_files(&self) -> Vec<std::path::PathBuf> {
        let runs = self.store.path().join("tables/t/runs");
        let names = OsDisk::default().list(&runs).unwrap().into_iter();
        names.map(|name| runs.join(name)).collect()
    }
}

fn order(nodes: &mut TestNodes, load: Option<OrderedLoad>, last: EndedLoad) {
    (nodes.load, nodes.last_load) = (load, last);
    nodes.order(&RUNS);
}

fn fetch_copy(nodes: &mut TestNodes, load: &TestLoad) {
    order(nodes, Some(load.ordered.clone()), EndedLoad::default());
}

fn add(nodes: &mut TestNodes, load: &TestLoad) {
    let ordered = OrderedLoad {
        is_adding: true,
        ..load.ordered.clone()
    };
    order(nodes, Some(ordered), EndedLoad::default());
}

fn end(nodes: &mut TestNodes, number: u64, is_added: bool) {
    order(nodes, None, EndedLoad { number, is_added });
}

fn state(nodes: &TestNodes, at: usize) -> Option<LoadedState> {
    Some(nodes.report(at)?.load?.state)
}

fn wait_state(nodes: &TestNodes, at: usize, wanted: &LoadedState) {
    wait_for("a state of a load", || {
        state(nodes, at).as_ref() == Some(wanted)
    });
}

fn found() -> TestNodes {
    let nodes = TestNodes::new(Durability::Os);
    nodes.found();
    nodes.set(b"a", b"old");
    (0..3).for_each(|at| nodes.wait_value(at, b"a", b"old"));
    nodes
}

fn files(nodes: &TestNodes, at: usize) -> usize {
    let runs = nodes.nodes[at].dir.path().join("tables/t/runs");
    OsDisk::default().list(&runs).unwrap().len()
}

#[test]
fn all_replicas_fetch_a_load_and_add_it_once_when_ordered() {
    let mut nodes = found();
    let load = TestLoad::stage(&nodes, 5);
    fetch_copy(&mut nodes, &load);
    (0..3).for_each(|at| wait_state(&nodes, at, &LoadedState::Here));
    (0..3).for_each(|at| assert!(nodes.has(at, b"a", b"old")));
    add(&mut nodes, &load);
    (0..3).for_each(|at| wait_state(&nodes, at, &LoadedState::Added));
    (0..3).for_each(|at| nodes.wait_value(at, b"b", b"load"));
    nodes.set(b"a", b"new");
    // The node knows from its memory that the load was to be added, and starts with that.
    nodes.stop(2);
    nodes.start(2);
    let mut remembered = nodes.orders(2, &RUNS, &[1, 2, 3]);
    remembered.is_from_memory = true;
    nodes.replicas(2).carry_out(remembered);
    wait_state(&nodes, 2, &LoadedState::Added);
    end(&mut nodes, 5, true);
    (0..3).for_each(|at| nodes.wait_value(at, b"a", b"new"));
    nodes.set(b"b", b"new");
    (0..3).for_each(|at| nodes.wait_value(at, b"b", b"new"));
    assert_eq!(load.run_files().len(), 1);
    drop(load.load);
}

#[test]
fn a_replica_without_its_run_at_the_end_of_a_load_reports_it() {
    let mut nodes = found();
    let load = TestLoad::stage(&nodes, 5);
    nodes.store.away_from.lock().insert(2);
    fetch_copy(&mut nodes, &load);
    (0..2).for_each(|at| wait_state(&nodes, at, &LoadedState::Here));
    add(&mut nodes, &load);
    (0..2).for_each(|at| wait_state(&nodes, at, &LoadedState::Added));
    nodes.set(b"a", b"new");
    assert!(!nodes.has(2, b"a", b"new"), "it waits for its run");
    assert_eq!(nodes.report(2).unwrap().problem, None);
    end(&mut nodes, 5, true);
    nodes.wait_report(2, 3, Some(ReplicaProblem::Missed));
}

#[test]
fn a_replica_that_gets_its_run_late_catches_up() {
    let mut nodes = found();
    let load = TestLoad::stage(&nodes, 5);
    nodes.store.away_from.lock().insert(2);
    fetch_copy(&mut nodes, &load);
    (0..2).for_each(|at| wait_state(&nodes, at, &LoadedState::Here));
    add(&mut nodes, &load);
    (0..2).for_each(|at| wait_state(&nodes, at, &LoadedState::Added));
    nodes.set(b"a", b"new");
    nodes.store.away_from.lock().clear();
    wait_state(&nodes, 2, &LoadedState::Added);
    nodes.wait_value(2, b"a", b"new");
    nodes.wait_value(2, b"b", b"load");
}

#[test]
fn a_damaged_run_is_reported_and_a_cancelled_one_is_removed() {
    let mut nodes = found();
    nodes.replicas(0).tables().load()[&table_name()]
        .flush()
        .unwrap();
    let load = TestLoad::stage(&nodes, 5);
    let before = files(&nodes, 0);
    fetch_copy(&mut nodes, &load);
    (0..3).for_each(|at| wait_state(&nodes, at, &LoadedState::Here));
    assert_eq!(files(&nodes, 0), before + 1);
    end(&mut nodes, 5, false);
    wait_for("its removal", || files(&nodes, 0) == before);
    let other = TestLoad::stage(&nodes, 6);
    let [run] = &other.run_files()[..] else {
        panic!("one run");
    };
    let disk = OsDisk::default();
    let mut bytes = disk.read(run).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    forebay_io::replace_file(&disk, run, &bytes).unwrap();
    fetch_copy(&mut nodes, &other);
    wait_for("the report of the damage", || {
        let failed = state(&nodes, 0);
        matches!(failed, Some(LoadedState::Failed(why)) if why.contains("damaged"))
    });
    assert!(nodes.has(0, b"a", b"old") && !nodes.has(0, b"b", b"load"));
}

#[test]
fn a_replica_that_cannot_apply_an_entry_is_damaged_and_replaced() {
    let mut nodes = found();
    let load = TestLoad::stage(&nodes, 5);
    fetch_copy(&mut nodes, &load);
    (0..3).for_each(|at| wait_state(&nodes, at, &LoadedState::Here));
    let runs = nodes.nodes[2].dir.path().join("tables/t/runs");
    for name in OsDisk::default().list(&runs).unwrap() {
        OsDisk::default().remove(&runs.join(name)).unwrap();
    }
    add(&mut nodes, &load);
    (0..2).for_each(|at| wait_state(&nodes, at, &LoadedState::Added));
    nodes.wait_report(2, 3, Some(ReplicaProblem::Damaged));
    end(&mut nodes, 5, true);
    nodes.set(b"a", b"one");
    nodes.order(&[(0, 1, false), (1, 2, false), (2, 4, true)]);
    nodes.wait_report(2, 4, None);
    nodes.order(&[(0, 1, false), (1, 2, false), (2, 4, false)]);
    nodes.set(b"c", b"two");
    nodes.wait_value(2, b"c", b"two");
    nodes.wait_value(2, b"b", b"load");
}

#[test]
fn the_document_names_the_runs() {
    let nodes = found();
    let load = TestLoad::stage(&nodes, 5);
    let name = StagedLoad::document(&table_name(), &load.ordered.id);
    let bytes = OsDisk::default()
        .read(&load.store.path().join(name))
        .unwrap();
    let (staged, sum) = StagedLoad::parse(&bytes).unwrap();
    assert_eq!((staged.runs.len(), sum), (1, load.ordered.sum));
    assert_ne!(staged.id, RunId::new("other").unwrap());
}
