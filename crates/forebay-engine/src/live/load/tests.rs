//! Loads whose loader or owner fails or dies at each call, and owners that come and go.

use crate::keys::partition::PartitionId;
use std::path::Path;
use std::sync::Arc;

use forebay_io::sim::{Fault, HandClock, SimDisk, TestOver};
use forebay_io::{Clock, Disk, SystemClock, SystemRandom};
use forebay_run::RunWriter;
use forebay_run::operation::Operation;

use super::offer::{OfferState, file_of, staged};
use super::{Load, LoadError, LoadOutcome, LoadTicket, StagedLoad};
use crate::live::{Budget, IngestRun, LiveDraft, LiveTable};
use crate::name::TableName;
use crate::tables::store::Store;

const KEYS: [&[u8]; 4] = [b"a", b"b", b"x", b"y"];

fn name() -> TableName {
    TableName::new("t").unwrap()
}

fn store_on(disk: &SimDisk) -> Store {
    store_by(disk, Arc::new(SystemClock))
}

fn store_by(disk: &SimDisk, clock: Arc<dyn Clock>) -> Store {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    Store::open_or_create(disk, clock, Arc::new(SystemRandom), Path::new("/s")).unwrap()
}

/// A table of two partitions, in which everything is old.
fn table() -> (SimDisk, LiveTable) {
    let disk = SimDisk::new();
    let options = LiveDraft::ordered(vec![b"m".to_vec()]);
    let table = store_on(&disk).create_live(&name(), options, &Budget::new(64 << 20));
    let table = table.unwrap();
    for key in KEYS {
        table.update(key, b"old").unwrap().wait().unwrap();
    }
    (disk, table)
}

fn open(disk: &SimDisk) -> LiveTable {
    store_on(disk)
        .live_table(&name(), &Budget::new(64 << 20))
        .unwrap()
}

/// The value that all keys have.
fn value_of_all(table: &LiveTable) -> Vec<u8> {
    let values = table.get_many(&KEYS).unwrap();
    assert!(values.iter().all(|value| *value == values[0]), "{values:?}");
    values[0].clone().unwrap()
}

/// Two runs that make everything new, one with an extent.
fn build(load: &Load, disk: &SimDisk) -> Result<Vec<IngestRun>, forebay_run::RunError> {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let mut runs = Vec::new();
    for (partition, keys) in [(PartitionId(0), &KEYS[..2]), (PartitionId(1), &KEYS[2..])] {
        let new = load.new_run(partition);
        let mut writer = RunWriter::create(&disk, &new.path, load.run_options())?;
        for key in keys {
            writer.push(0, key, Operation::Update(&[b'n'; 5000]))?;
        }
        writer.finish()?;
        runs.push(IngestRun {
            partition,
            id: new.id,
        });
    }
    Ok(runs)
}

fn load(disk: &SimDisk) -> Result<(), LoadError> {
    load_into(&store_on(disk), disk)
}

fn load_into(store: &Store, disk: &SimDisk) -> Result<(), LoadError> {
    let load = store.begin_load(&name())?;
    let runs = build(&load, disk).map_err(|source| LoadError::Refused {
        table: name(),
        why: source.to_string(),
    })?;
    load.add(&runs, &Budget::new(64 << 20))
}

fn is_new(value: &[u8]) -> bool {
    match value {
        b"old" => false,
        value => {
            assert_eq!(value, [b'n'; 5000]);
            true
        }
    }
}

fn files_of_loads(disk: &SimDisk) -> usize {
    let files = disk.files();
    let of_loads = files
        .iter()
        .filter(|path| path.to_string_lossy().contains("/load-"));
    of_loads.count()
}

/// Takes loads as a server does, until `over` is set.
fn serve(table: &LiveTable, over: &TestOver) {
    while !over.is() {
        // A failed call is tried again, as a server does.
        let _ = table.take_load();
        std::thread::yield_now();
    }
}

/// Loads with call `nth` failing; returns whether that call was reached.
fn fail_at(nth: u64, fault: Fault, owned: bool) -> bool {
    let words = format!("call {nth}, {fault:?}, owned {owned}");
    let (disk, table) = table();
    let owner = owned.then_some(table);
    let store = store_on(&disk);
    let before = disk.calls();
    disk.plan(nth, fault);
    let over = TestOver::default();
    let loaded = std::thread::scope(|scope| {
        if let Some(table) = &owner {
            scope.spawn(|| serve(table, &over));
        }
        let _at_end = over.at_end();
        load_into(&store, &disk)
    });
    let reached = disk.calls() - before > nth;
    disk.plan(u64::MAX / 2, fault);
    for found in [disk.after_kill(), disk.after_power_cut(nth)] {
        let table = open(&found);
        let new = is_new(&value_of_all(&table));
        assert!(new || loaded.is_err(), "{words}: acknowledged, and lost");
        assert_eq!(files_of_loads(&found), 0, "{words}: {:?}", found.files());
        drop(table);
        load(&found).unwrap_or_else(|error| panic!("{words}: {error}"));
        assert!(is_new(&value_of_all(&open(&found))), "{words}");
    }
    reached
}

#[test]
fn a_failure_at_any_call_leaves_a_whole_load_or_none() {
    for fault in [Fault::Dead, Fault::Error, Fault::Full] {
        let calls = (0..).take_while(|nth| fail_at(*nth, fault, false));
        assert!(calls.count() > 40, "{fault:?}");
        // An owner looks for loads all the time, so that there is no last call.
        for nth in (0..200).step_by(4) {
            fail_at(nth, fault, true);
        }
    }
}

#[test]
fn an_owner_takes_a_load_between_the_writes_before_and_after() {
    let (disk, table) = table();
    let over = TestOver::default();
    std::thread::scope(|scope| {
        scope.spawn(|| serve(&table, &over));
        let _at_end = over.at_end();
        load(&disk).unwrap();
    });
    assert!(is_new(&value_of_all(&table)));
    assert_eq!(files_of_loads(&disk), 0);
    table.update(b"a", b"newer").unwrap().wait().unwrap();
    assert_eq!(table.get(b"a").unwrap().unwrap(), b"newer");
    drop(table);
    assert_eq!(open(&disk).get(b"a").unwrap().unwrap(), b"newer");
}

#[test]
fn a_half_taken_load_is_completed_once() {
    // The owner dies with its claim made and one of two runs renamed, then with all of it done.
    for all in [false, true] {
        let (disk, table) = table();
        let load = store_on(&disk).begin_load(&name()).unwrap();
        let runs = build(&load, &disk).unwrap();
        load.offer(&runs).unwrap();
        let files = load.files.clone();
        if all {
            assert_eq!(
                table.take_load().unwrap(),
                Some(LoadOutcome::Added { runs: 2 })
            );
            table.update(b"a", b"newer").unwrap().wait().unwrap();
            let done = file_of(&files, &load.id, OfferState::Done);
            let taken = file_of(&files, &load.id, OfferState::Taken);
            disk.rename(&done, &taken).unwrap();
        } else {
            let offer = file_of(&files, &load.id, OfferState::Offer);
            let taken = file_of(&files, &load.id, OfferState::Taken);
            disk.rename(&offer, &taken).unwrap();
            let id = &runs[0].id;
            let run = (files.run(&staged(id)), files.run(id));
            disk.rename(&run.0, &run.1).unwrap();
        }
        drop(table);
        load.add(&runs, &Budget::new(64 << 20)).unwrap();
        let table = open(&disk);
        if all {
            assert_eq!(table.get(b"a").unwrap().unwrap(), b"newer");
        } else {
            assert!(is_new(&value_of_all(&table)));
        }
        assert_eq!(files_of_loads(&disk), 0);
    }
}

#[test]
fn an_offer_of_a_loader_that_died_is_not_taken() {
    let (disk, table) = table();
    let load = store_on(&disk).begin_load(&name()).unwrap();
    let runs = build(&load, &disk).unwrap();
    load.offer(&runs).unwrap();
    drop(table);
    let disk = disk.after_kill();
    let table = open(&disk);
    assert_eq!(table.take_load().unwrap(), None);
    assert!(!is_new(&value_of_all(&table)));
    assert_eq!(files_of_loads(&disk), 0);
}

#[test]
fn a_load_blocks_other_loads_and_drops_of_its_table() {
    let (disk, table) = table();
    drop(table);
    let store = store_on(&disk);
    let first = store.begin_load(&name()).unwrap();
    let second = store.begin_load(&name()).unwrap_err();
    assert!(matches!(&second, LoadError::Busy { .. }), "{second}");
    let dropped = store.drop_table(&name()).unwrap_err();
    assert!(
        dropped.to_string().contains("a load by process"),
        "{dropped}"
    );
    drop(first);
    store.drop_table(&name()).unwrap();
    let gone = store.begin_load(&name()).unwrap_err();
    assert!(gone.to_string().contains("create it first"), "{gone}");
}

#[test]
fn a_holder_that_takes_no_loads_is_named_and_the_offer_withdrawn() {
    let (disk, table) = table();
    let store = store_by(&disk, Arc::new(HandClock::default()));
    let error = load_into(&store, &disk).unwrap_err();
    assert!(matches!(&error, LoadError::NotTaken { .. }), "{error}");
    assert_eq!(table.take_load().unwrap(), None);
    assert!(!is_new(&value_of_all(&table)));
    assert_eq!(files_of_loads(&disk), 0);
}

#[test]
fn a_load_that_begins_while_the_table_is_opened_keeps_its_files() {
    let (disk, table) = table();
    drop(table);
    let over = TestOver::default();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.is() {
                if let Ok(table) = store_on(&disk).live_table(&name(), &Budget::new(64 << 20)) {
                    table.take_load().unwrap();
                }
            }
        });
        let _at_end = over.at_end();
        (0..200).for_each(|_| load(&disk).unwrap());
    });
}

/// A staged load of a table of a cluster, of which the store has nothing else.
#[test]
fn a_staged_load_is_removed_with_its_load_unless_that_leaves_it() {
    let disk = SimDisk::new();
    let store = store_on(&disk);
    let LiveDraft {
        options,
        partitions,
    } = LiveDraft::ordered(vec![b"m".to_vec()]);
    let begin = || {
        let turn = store.take_load_turn(&name())?;
        store.stage_load(turn, &options, partitions.clone())
    };
    let names = || {
        let of = |dir: &str| disk.list(Path::new(dir)).unwrap();
        let names = [of("/s/tables/t"), of("/s/tables/t/runs")].concat();
        let of_loads = names.into_iter().filter(|name| name.starts_with("load-"));
        of_loads.count()
    };
    let stage = |load: &Load| {
        let built = build(load, &disk).unwrap();
        let summary = forebay_run::format::RunSummary::default();
        let runs = built.into_iter().map(|run| {
            let (id, operations) = (run.id, None);
            let run_ref = crate::documents::manifest::RunRef {
                id,
                summary,
                operations,
            };
            (run.partition, run_ref)
        });
        load.stage(&runs.collect::<Vec<_>>()).unwrap()
    };
    let load = begin().unwrap();
    let (id, sum) = stage(&load);
    // Two runs, one of them with an extent each, and the document.
    assert_eq!(names(), 5);
    assert!(matches!(begin(), Err(LoadError::Busy { .. })));
    let document = Path::new("/s").join(StagedLoad::document(&name(), &id));
    let (staged, read) = StagedLoad::parse(&disk.read(&document).unwrap()).unwrap();
    assert_eq!((read, &staged.id, staged.runs.len()), (sum, &id, 2));
    let run = staged.run(PartitionId(1)).unwrap();
    let files = run.files(Path::new("/to/x.run"));
    let found: Vec<bool> = files
        .iter()
        .map(|file| {
            disk.exists(&Path::new("/s/tables/t/runs").join(&file.name))
                .unwrap()
        })
        .collect();
    assert_eq!(found, [true], "its summary does not mention an extent");
    drop(load);
    assert_eq!(names(), 0);
    let load = begin().unwrap();
    stage(&load);
    load.leave();
    assert_eq!(names(), 5);
    store.remove_staged(&name()).unwrap();
    assert_eq!(names(), 0);
    assert!(store.table(&name()).is_err() && !store.is_live(&name()).unwrap());
}

#[test]
fn runs_that_others_wrote_belong_to_one_staged_load_and_are_removed_with_it() {
    let disk = SimDisk::new();
    let store = store_on(&disk);
    let LiveDraft {
        options,
        partitions,
    } = LiveDraft::ordered(Vec::new());
    let begin = || {
        let turn = store.take_load_turn(&name())?;
        store.stage_load(turn, &options, partitions.clone())
    };
    let mut load = begin().unwrap();
    let ticket = load.share();
    let text = serde_json::to_string(&ticket).unwrap();
    let ticket: LoadTicket = serde_json::from_str(&text).unwrap();
    let (first, second) = (ticket.new_run(&store, 0), ticket.new_run(&store, 0));
    assert_ne!(first.id, second.id);
    assert!(ticket.is_of(&first.id, 0) && !ticket.is_of(&first.id, 1));
    let runs = || disk.list(Path::new("/s/tables/t/runs")).unwrap();
    for run in [&first, &second] {
        let options = load.run_options();
        let disk: Arc<dyn Disk> = Arc::new(disk.clone());
        let mut writer = RunWriter::create(&disk, &run.path, options).unwrap();
        writer.push(0, b"k", Operation::Update(b"v")).unwrap();
        writer.finish().unwrap();
    }
    ticket.sync(&store).unwrap();
    load.check_lock_held().unwrap();
    assert_eq!(runs().len(), 2);
    drop(load);
    assert_eq!(runs(), Vec::<String>::new());
    let mut next = begin().unwrap();
    assert!(!next.share().is_of(&first.id, 0));
}
