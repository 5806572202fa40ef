//! Partitions that are copied from one replica to another, and replace the partition there.

use forebay_io::Disk;
use forebay_io::sim::SimDisk;
use forebay_run::operation::{DeltaKind, Operation};
use forebay_run::scan::Direction;

use super::replicas::entry;
use super::{collect, create, create_on, open};
use crate::keys::partition::PartitionId;
use crate::live::{
    AppliedPlace, Batch, Budget, LiveDraft, LiveError, LiveTable, PartitionContent, PartitionCopy,
    Replication,
};

const FIRST: PartitionId = PartitionId(0);

fn draft() -> LiveDraft {
    LiveDraft::ordered(vec![b"m".to_vec()])
        .delta(DeltaKind::Append)
        .factor(2)
        .replicated(Replication::Leader)
}

/// Applies entries up to this one, each of which adds to two keys.
fn apply_to(table: &LiveTable, last: u64) {
    for index in table.applied(FIRST).unwrap().index + 1..=last {
        let write = table.entry(FIRST, &entry(index, 1, 10 * index), 0).unwrap();
        let delta = format!("{index},").into_bytes();
        let mut batch = Batch::new();
        batch.push(b"all", Operation::Delta(&delta));
        batch.push(&index.to_be_bytes(), Operation::Delta(&delta));
        write.write(&batch).unwrap().wait().unwrap();
        write.finish().unwrap();
    }
}

fn all_of(table: &LiveTable) -> Option<String> {
    let value = table.get(b"all").unwrap();
    value.map(|value| String::from_utf8(value).unwrap())
}

fn up_to(last: u64) -> Option<String> {
    Some((1..=last).map(|index| format!("{index},")).collect())
}

/// Writes the files of a copy for another table.
fn fetch(copy: &PartitionCopy, from: &SimDisk, to: &LiveTable) -> PartitionContent {
    let mut content = copy.content().clone();
    let disk = to.shared().disk();
    for run in &mut content.runs {
        let new = to.new_run();
        let bytes = from.read(&copy.run_file(&run.id)).unwrap();
        forebay_io::replace_file(&**disk, &new.path, &bytes).unwrap();
        assert!(!from.exists(&copy.long_values_file(&run.id)).unwrap());
        run.id = new.id;
    }
    content
}

fn runs_on(disk: &SimDisk) -> usize {
    let is_run = |path: &std::path::PathBuf| path.extension().is_some_and(|end| end == "run");
    disk.files().iter().filter(|path| is_run(path)).count()
}

#[test]
fn the_files_of_a_copy_stay_until_it_is_dropped() {
    let (disk, table) = create(draft());
    apply_to(&table, 3);
    let copy = table.copy_of(FIRST).unwrap();
    assert_eq!(copy.content().applied, Some(entry(3, 0, 30).place));
    let again = table.copy_of(FIRST).unwrap();
    assert_eq!(again.content(), copy.content());
    apply_to(&table, 5);
    table.compact().unwrap();
    let is_there = || {
        let runs = copy.content().runs.iter();
        runs.filter(|run| disk.exists(&copy.run_file(&run.id)).unwrap())
            .count()
    };
    assert_eq!((is_there(), runs_on(&disk)), (1, 2));
    drop(again);
    assert_eq!((is_there(), runs_on(&disk)), (1, 2));
    drop(copy);
    assert_eq!(runs_on(&disk), 1);
    // Runs that are still part of the table stay.
    drop(table.copy_of(FIRST).unwrap());
    assert_eq!((runs_on(&disk), all_of(&table)), (1, up_to(5)));
}

#[test]
fn files_that_a_crash_kept_of_a_copy_are_removed() {
    let (disk, table) = create(draft());
    apply_to(&table, 3);
    let copy = table.copy_of(FIRST).unwrap();
    apply_to(&table, 5);
    table.compact().unwrap();
    let found = disk.after_kill();
    assert_eq!(runs_on(&found), 2);
    drop(copy);
    let again = open(&found).unwrap();
    assert_eq!((runs_on(&found), all_of(&again)), (1, up_to(5)));
}

#[test]
fn a_copy_replaces_the_existing_partition() {
    let (from, leader) = create(draft());
    apply_to(&leader, 9);
    let (disk, table) = create(draft());
    apply_to(&table, 3);
    table.flush().unwrap();
    apply_to(&table, 5);
    let (before, watch) = (table.snapshot(), table.watch(b"all").unwrap());
    let late = table.entry(FIRST, &entry(6, 1, 60), 0).unwrap();
    let copy = leader.copy_of(FIRST).unwrap();
    let content = fetch(&copy, &from, &table);
    table.install(content.clone()).unwrap();
    assert_eq!(table.content(FIRST), Some(content));
    assert_eq!((all_of(&table), runs_on(&disk)), (up_to(9), 1));
    assert!(watch.is_written());
    let old = String::from_utf8(before.get(b"all").unwrap().unwrap()).unwrap();
    assert_eq!(Some(old), up_to(5));
    assert_eq!(collect(before.scan(Direction::Forward)).len(), 6);
    assert!(matches!(
        late.update(b"all", b""),
        Err(LiveError::Entry { .. })
    ));
    let found = open(&disk.after_kill()).unwrap();
    for table in [&table, &found] {
        assert_eq!(table.applied(FIRST).unwrap(), entry(9, 0, 90).place);
        apply_to(table, 12);
        table.flush().unwrap();
        assert_eq!(all_of(table), up_to(12));
    }
}

#[test]
fn a_copy_without_space_is_installed_later() {
    let (from, leader) = create(draft());
    apply_to(&leader, 9);
    let copy = leader.copy_of(FIRST).unwrap();
    let budget = Budget::by_hand(1 << 20);
    for given_up in [false, true] {
        let disk = SimDisk::new();
        let table = create_on(&disk, draft(), &budget);
        apply_to(&table, 3);
        let content = fetch(&copy, &from, &table);
        disk.fill_up();
        for _ in 0..2 {
            let error = table.install(content.clone()).unwrap_err();
            assert!(error.may_pass(), "{error}");
        }
        assert_eq!((all_of(&table), runs_on(&disk)), (up_to(3), 1));
        disk.make_room();
        if given_up {
            table.discard_runs(content.runs.iter().map(|run| &run.id));
            assert_eq!((all_of(&table), runs_on(&disk)), (up_to(3), 0));
        } else {
            table.install(content).unwrap();
            assert_eq!((all_of(&table), runs_on(&disk)), (up_to(9), 1));
        }
    }
}

#[test]
fn a_copy_is_installed_where_there_is_no_partition() {
    let (from, leader) = create(draft());
    apply_to(&leader, 4);
    let copy = leader.copy_of(FIRST).unwrap();
    let (disk, table) = create(draft().holding(&crate::OpenPartitions::Only([].into())));
    table.install(fetch(&copy, &from, &table)).unwrap();
    apply_to(&table, 6);
    assert_eq!(all_of(&table), up_to(6));
    let again = open(&disk.after_kill()).unwrap();
    assert_eq!(all_of(&again), up_to(4));
}

#[test]
fn a_copy_of_an_earlier_state_is_refused() {
    let (from, leader) = create(draft());
    apply_to(&leader, 4);
    let copy = leader.copy_of(FIRST).unwrap();
    let (disk, table) = create(draft());
    apply_to(&table, 4);
    table.flush().unwrap();
    let refused = |change: &dyn Fn(&mut PartitionContent), part: &str| {
        let mut content = fetch(&copy, &from, &table);
        change(&mut content);
        let words = table.install(content).unwrap_err().to_string();
        assert!(words.contains(part), "{words}");
        assert_eq!((all_of(&table), runs_on(&disk)), (up_to(4), 1));
    };
    refused(&|content| content.epoch = 0, "it is of epoch 0");
    refused(&|content| content.range.bounds.upper = None, "it goes");
    refused(&|content| content.applied = None, "it is not replicated");
    apply_to(&table, 5);
    let words = table.install(fetch(&copy, &from, &table)).unwrap_err();
    let words = words.to_string();
    assert!(
        words.contains("at entry 4, what is here at entry 5"),
        "{words}"
    );
    assert_eq!(all_of(&table), up_to(5));
    // The same place again does no harm.
    apply_to(&leader, 5);
    let copy = leader.copy_of(FIRST).unwrap();
    table.install(fetch(&copy, &from, &table)).unwrap();
    assert_eq!(all_of(&table), up_to(5));
}

#[test]
fn a_partition_at_a_new_place_keeps_its_content_after_a_crash() {
    let (disk, table) = create(draft());
    apply_to(&table, 3);
    let place = AppliedPlace {
        term: 9,
        members: b"alone".as_slice().into(),
        ..entry(4, 0, 30).place
    };
    table.place_copy(FIRST, place.clone()).unwrap();
    assert_eq!(table.applied(FIRST).unwrap(), place);
    let other = table.applied(PartitionId(1)).unwrap();
    let table = open(&disk.after_kill()).unwrap();
    assert_eq!(
        (table.applied(FIRST).unwrap(), all_of(&table)),
        (place, up_to(3))
    );
    assert_eq!(table.applied(PartitionId(1)).unwrap(), other);
}
