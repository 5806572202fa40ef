//! Partitions as replicas: which entries are applied, in which order, and by what time.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use forebay_io::sim::{HandClock, SeededRandom, SimDisk};
use forebay_run::operation::{CowOperation, DeltaKind, Operation};
use forebay_run::times::Times;

use super::{both_orders, collect, create, name, open};
use crate::keys::partition::PartitionId;
use crate::live::{
    AppliedPlace, Batch, Budget, DecidedEntry, EntryError, Expiry, LiveDraft, LiveError, LiveTable,
    PartitionContent, Replication,
};
use crate::tables::store::Store;

const FIRST: PartitionId = PartitionId(0);

fn replicated() -> LiveDraft {
    LiveDraft::hashed()
        .partitions(1)
        .delta(DeltaKind::Append)
        .expiry(Expiry::PerRecord)
        .replicated(Replication::Leader)
}

pub fn entry(index: u64, proposals: u32, stamp_ms: u64) -> DecidedEntry {
    DecidedEntry {
        place: AppliedPlace {
            term: 1,
            index,
            stamp_ms,
            members: Arc::from(index.to_le_bytes()),
            done: 0,
            loaded: 0,
        },
        proposals,
    }
}

fn append(table: &LiveTable, entry: &DecidedEntry, number: u32, key: &[u8]) {
    let write = table.entry(FIRST, entry, number).unwrap();
    write.delta(key, b"x").unwrap().wait().unwrap();
    write.finish().unwrap();
}

fn out_of_order<T>(result: Result<T, LiveError>) {
    let problem = problem(result);
    assert!(
        matches!(problem, EntryError::OutOfOrder { .. }),
        "{problem}"
    );
}

fn problem<T>(result: Result<T, LiveError>) -> EntryError {
    match result {
        Err(LiveError::Entry { source, .. }) => source,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it succeeded"),
    }
}

#[test]
fn proposals_move_the_place_together_with_their_writes() {
    let (_disk, table) = create(replicated());
    assert_eq!(table.applied(FIRST).unwrap(), AppliedPlace::default());
    let first = entry(1, 2, 50);
    append(&table, &first, 0, b"a");
    let begun = table.applied(FIRST).unwrap();
    assert_eq!(
        (begun.position(), begun.stamp_ms, begun.term),
        ((0, 1), 50, 0)
    );
    append(&table, &first, 1, b"a");
    assert_eq!(table.applied(FIRST).unwrap(), first.place);
    table.pass(FIRST, &entry(2, 0, 50)).unwrap();
    // It reads and decides, and nothing is written.
    let third = entry(3, 1, 60);
    let write = table.entry(FIRST, &third, 0).unwrap();
    let decide = |value: Option<&[u8]>| (None::<CowOperation<'static>>, value.map(<[u8]>::len));
    assert_eq!(write.modify(b"a", decide).unwrap().1, Some(2));
    assert_eq!(table.applied(FIRST).unwrap().position(), (2, 0));
    write.finish().unwrap();
    assert_eq!(table.applied(FIRST).unwrap(), third.place);
    assert_eq!(table.get(b"a").unwrap().as_deref(), Some(&b"xx"[..]));
}

#[test]
fn entries_out_of_order_are_refused() {
    let (_disk, table) = create(replicated());
    let first = entry(1, 2, 50);
    out_of_order(table.entry(FIRST, &first, 1));
    out_of_order(table.entry(FIRST, &entry(2, 1, 50), 0));
    out_of_order(table.pass(FIRST, &entry(2, 0, 50)));
    let beyond = problem(table.entry(FIRST, &first, 2));
    assert!(matches!(beyond, EntryError::NoProposal { .. }), "{beyond}");
    for number in 0..2 {
        let write = table.entry(FIRST, &first, number).unwrap();
        write.update(b"a", b"1").unwrap().wait().unwrap();
        let again = problem(write.update(b"a", b"2"));
        let second = EntryError::SecondWrite { index: 1, number };
        assert_eq!(again, second);
        write.finish().unwrap();
    }
    out_of_order(table.entry(FIRST, &first, 1));
    let late = table.entry(FIRST, &entry(2, 1, 50), 0).unwrap();
    append(&table, &entry(2, 1, 50), 0, b"b");
    append(&table, &entry(3, 1, 50), 0, b"b");
    out_of_order(late.update(b"a", b"3"));
    assert_eq!(table.get(b"a").unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(table.get(b"b").unwrap().as_deref(), Some(&b"xx"[..]));
}

#[test]
fn a_flush_between_a_write_and_its_end_has_both_or_none() {
    let (disk, table) = create(replicated());
    let first = entry(1, 2, 50);
    append(&table, &first, 0, b"a");
    let write = table.entry(FIRST, &first, 1).unwrap();
    write.delta(b"a", b"y").unwrap().wait().unwrap();
    table.flush().unwrap();
    let again = open(&disk.after_kill()).unwrap();
    assert_eq!(again.applied(FIRST).unwrap(), first.place);
    assert_eq!(again.get(b"a").unwrap().as_deref(), Some(&b"xy"[..]));
    write.finish().unwrap();
    // The entry was begun, and not written: its time is set, and it is applied again.
    let second = entry(2, 1, 70);
    let write = table.entry(FIRST, &second, 0).unwrap();
    table.pass(PartitionId(0), &entry(3, 0, 80)).unwrap_err();
    table.flush().unwrap();
    write.delta(b"a", b"z").unwrap().wait().unwrap();
    write.finish().unwrap();
    let again = open(&disk.after_kill()).unwrap();
    append(&again, &second, 0, b"a");
    assert_eq!(again.applied(FIRST).unwrap(), second.place);
    assert_eq!(again.get(b"a").unwrap().as_deref(), Some(&b"xyx"[..]));
}

#[test]
fn nothing_is_written_beside_the_log() {
    for draft in both_orders() {
        let draft = draft.delta(DeltaKind::Append);
        let is_ordered = draft.options.order == forebay_run::Order::Ordered;
        let (_disk, table) = create(draft.replicated(Replication::Leader));
        let mut batch = Batch::new();
        batch.push(b"a", Operation::Delete);
        let all = (std::ops::Bound::Unbounded, std::ops::Bound::Unbounded);
        let mut refused = vec![
            table.update(b"a", b"1").err(),
            table.write(&batch).err(),
            table.try_write(&batch).err(),
            table.modify(b"a", |_| (None, ())).err(),
            table.delete_all().err(),
            table
                .split(FIRST, &crate::Bound::Slot(1), PartitionId(9))
                .err(),
            table.ingest(&[]).err(),
        ];
        if is_ordered {
            refused.push(table.delete_range(all.0, all.1).err());
        }
        for (number, error) in refused.into_iter().enumerate() {
            let is_refused = matches!(error, Some(LiveError::Replicated { .. }));
            assert!(is_refused, "{number}: {error:?}");
        }
        assert!(collect(table.entries()).is_empty());
    }
    let (_disk, plain) = create(LiveDraft::hashed());
    let refused = problem(plain.entry(FIRST, &entry(1, 1, 1), 0));
    assert_eq!(refused, EntryError::NotReplicated);
}

#[test]
fn a_proposal_writes_to_its_own_partition_alone() {
    let draft = LiveDraft::ordered(vec![b"m".to_vec()]).replicated(Replication::Leader);
    let (_disk, table) = create(draft);
    for (id, key) in [(FIRST, b"a"), (PartitionId(1), b"z")] {
        let write = table.entry(id, &entry(1, 1, 1), 0).unwrap();
        let other = if id == FIRST { b"z" } else { b"a" };
        assert_eq!(problem(write.update(other, b"1")), EntryError::Elsewhere);
        write.update(key, b"1").unwrap().wait().unwrap();
        write.finish().unwrap();
    }
    // A range reaches as far as the partition does.
    let write = table.entry(FIRST, &entry(2, 1, 1), 0).unwrap();
    let (from, to) = (std::ops::Bound::Unbounded, std::ops::Bound::Unbounded);
    let (deleted, commit) = write.delete_range_counted(from, to).unwrap();
    commit.wait().unwrap();
    assert_eq!(deleted, 1);
    assert!(matches!(
        problem(write.delete_all()),
        EntryError::SecondWrite { .. }
    ));
    write.finish().unwrap();
    let left = collect(table.entries());
    assert_eq!(left, [(b"z".to_vec(), b"1".to_vec())]);
}

#[test]
fn too_many_ranges_are_deleted_key_by_key_in_one_write() {
    let draft = LiveDraft::ordered(Vec::new()).replicated(Replication::Leader);
    let (_disk, table) = create(draft);
    let key = |number: u64| format!("{number:05}").into_bytes();
    let mut batch = Batch::new();
    for number in 0..3000 {
        batch.push(&key(number), Operation::Update(b"v"));
    }
    let write = table.entry(FIRST, &entry(1, 1, 1), 0).unwrap();
    write.write_each(&batch).unwrap().wait().unwrap();
    write.finish().unwrap();
    for number in 0..1200u64 {
        let write = table.entry(FIRST, &entry(number + 2, 1, 1), 0).unwrap();
        let (from, to) = (key(2 * number), key(2 * number + 1));
        let range = (
            std::ops::Bound::Included(&from[..]),
            std::ops::Bound::Excluded(&to[..]),
        );
        let (deleted, commit) = write.delete_range_counted(range.0, range.1).unwrap();
        commit.wait().unwrap();
        assert_eq!(deleted, 1, "{number}");
        write.finish().unwrap();
    }
    assert_eq!(collect(table.entries()).len(), 1800);
}

#[test]
fn stamps_decide_expiry_and_clocks_do_not() {
    let (disk, clock) = (SimDisk::new(), Arc::new(HandClock::of_dates(1_000_000)));
    let random = Arc::new(SeededRandom::new(1));
    let store =
        Store::open_or_create(Arc::new(disk), clock.clone(), random, Path::new("/s")).unwrap();
    let table = store
        .create_live(&name(), replicated(), &Budget::new(64 << 20))
        .unwrap();
    let first = entry(1, 1, 100);
    let write = table.entry(FIRST, &first, 0).unwrap();
    let mut batch = Batch::new();
    batch.push(b"k", Operation::Update(b"v").with_times(Times::until(150)));
    write.write(&batch).unwrap().wait().unwrap();
    write.finish().unwrap();
    clock.advance(Duration::from_secs(1_000_000));
    let there = |table: &LiveTable| {
        let found = table.get(b"k").unwrap().is_some();
        assert_eq!(table.get_many(&[b"k"]).unwrap()[0].is_some(), found);
        assert_eq!(table.snapshot().get(b"k").unwrap().is_some(), found);
        assert_eq!(collect(table.entries()).len(), usize::from(found));
        assert_eq!(table.expires_ms(b"k").unwrap(), found.then_some(150));
        let keys = table.snapshot_keys(&[b"k"]).unwrap();
        assert_eq!(keys.stored(0, true).unwrap().unwrap().is_some(), found);
        found
    };
    assert!(there(&table));
    assert!(table.would_expire(b"k", 150).unwrap() && !table.would_expire(b"k", 149).unwrap());
    assert_eq!(table.try_would_expire(b"k", 150).unwrap(), Some(true));
    assert!(!table.would_expire(b"absent", 150).unwrap());
    table.compact().unwrap();
    assert!(there(&table));
    let before = table.snapshot();
    table.pass(FIRST, &entry(2, 0, 149)).unwrap();
    assert!(there(&table));
    // A handle's stamp is the partition's time before anything is written.
    let third = table.entry(FIRST, &entry(3, 1, 150), 0).unwrap();
    assert!(!there(&third));
    assert_eq!(third.time_of(b"k").unwrap(), 150);
    let seen = third.modify(b"k", |value| (None, value.is_some())).unwrap();
    assert!(!seen.1);
    third.finish().unwrap();
    assert!(before.get(b"k").unwrap().is_some());
    assert_eq!(
        collect(before.scan(forebay_run::scan::Direction::Forward)).len(),
        1
    );
    table.compact().unwrap();
    assert!(!there(&table));
    assert!(!table.would_expire(b"k", 1_000).unwrap());
}

#[test]
fn expired_records_are_dropped_by_the_time_of_the_runs() {
    let (disk, table) = create(replicated());
    let write = table.entry(FIRST, &entry(1, 1, 100), 0).unwrap();
    let mut batch = Batch::new();
    batch.push(b"k", Operation::Update(b"v").with_times(Times::until(150)));
    write.write(&batch).unwrap().wait().unwrap();
    write.finish().unwrap();
    table.flush().unwrap();
    append(&table, &entry(2, 1, 110), 0, b"other");
    table.flush().unwrap();
    // In memory the value has expired; what is applied again would still find it.
    table.pass(FIRST, &entry(3, 0, 200)).unwrap();
    table.shared().merge_all().unwrap();
    let again = open(&disk.after_kill()).unwrap();
    let at = again.applied(FIRST).unwrap();
    assert_eq!((at.position(), at.stamp_ms), ((2, 0), 110));
    let write = again.entry(FIRST, &entry(3, 1, 120), 0).unwrap();
    assert_eq!(write.get(b"k").unwrap().as_deref(), Some(&b"v"[..]));
    write.finish().unwrap();
}

#[test]
fn an_idle_partition_writes_no_manifest() {
    let (disk, table) = create(replicated());
    table.flush().unwrap();
    let before = disk.calls();
    for _ in 0..5 {
        table.flush().unwrap();
    }
    assert_eq!(disk.calls(), before);
    table.pass(FIRST, &entry(1, 0, 10)).unwrap();
    // Not enough for a manifest by itself, but written when a flush is requested.
    table.shared().freeze();
    assert_eq!(
        table.content(FIRST).unwrap().applied,
        Some(AppliedPlace::default())
    );
    table.flush().unwrap();
    assert_eq!(
        table.content(FIRST).unwrap().applied,
        Some(entry(1, 0, 10).place)
    );
    let before = disk.calls();
    table.flush().unwrap();
    assert_eq!(disk.calls(), before);
}

#[test]
fn many_entries_without_a_write_cause_a_manifest() {
    let (disk, table) = create(replicated());
    for index in 1..=crate::live::partition::entry::MOVED_PROPOSALS {
        table.pass(FIRST, &entry(index, 0, index)).unwrap();
    }
    let is_moved = |table: &LiveTable| {
        let at = table.content(FIRST).unwrap().applied.unwrap();
        at.index == crate::live::partition::entry::MOVED_PROPOSALS
    };
    while !is_moved(&table) {
        std::thread::yield_now();
    }
    assert!(is_moved(&open(&disk.after_kill()).unwrap()));
}

#[test]
fn partitions_are_adopted_at_a_founders_place_and_released() {
    let draft = replicated();
    let range = draft.partitions[0].clone();
    let (disk, table) = create(draft.partitions(0));
    assert!(table.partitions().is_empty());
    let founded = PartitionContent {
        applied: Some(entry(1, 0, 0).place),
        ..PartitionContent::empty(range.clone())
    };
    let without = PartitionContent::empty(range);
    let refused = table.adopt(without).unwrap_err().to_string();
    assert!(refused.contains("how far it has come"), "{refused}");
    table.adopt(founded.clone()).unwrap();
    assert_eq!(table.applied(FIRST).unwrap().position(), (1, 0));
    append(&table, &entry(2, 1, 5), 0, b"a");
    let again = open(&disk.after_kill()).unwrap();
    assert_eq!(again.content(FIRST), Some(founded));
    assert_eq!(again.get(b"a").unwrap(), None);
    append(&again, &entry(2, 1, 5), 0, b"a");
    let in_runs = |table: &LiveTable| table.applied_in_runs(FIRST).unwrap().position();
    assert_eq!(in_runs(&again), (1, 0));
    again.flush().unwrap();
    assert_eq!(in_runs(&again), (2, 0));
    let late = again.entry(FIRST, &entry(3, 1, 6), 0).unwrap();
    again.release(FIRST).unwrap();
    assert!(again.applied(FIRST).is_err() && again.partitions().is_empty());
    assert!(matches!(
        late.update(b"a", b"2"),
        Err(LiveError::NotHere { .. })
    ));
    assert!(matches!(late.finish(), Err(LiveError::Partition { .. })));
    assert!(again.applied_in_runs(FIRST).is_err());
}
