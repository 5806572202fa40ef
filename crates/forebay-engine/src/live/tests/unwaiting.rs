//! Writers that must not wait.

use crate::live::partition::part::LivePart;
use std::sync::Arc;

use forebay_io::sim::SimDisk;
use forebay_run::operation::CowOperation;

use super::{Model, create};
use crate::live::partition::part::PartView;
use crate::live::partition::shared::GATE_ENDED;
use crate::live::writing::pause::Pause;
use crate::live::{Batch, LiveDraft, LiveError, LiveLookup, LiveTable, Stored};

fn batch(key: &[u8], value: &[u8]) -> Batch {
    let mut batch = Batch::new();
    batch.update(key, value);
    batch
}

fn part_of<'a>(table: &'a LiveTable, key: &[u8]) -> &'a parking_lot::Mutex<LivePart> {
    let parts = &table.shared().parts;
    let id = table.partition_of(key).unwrap();
    parts.at(parts.find(id).unwrap())
}

#[test]
fn writers_that_would_have_to_wait_get_no_commit() {
    let (_disk, table) = create(LiveDraft::hashed());
    let first = table.try_write(&batch(b"a", b"1")).unwrap().unwrap();
    let ticket = first.ticket();
    table.commit(ticket).wait().unwrap();
    assert!(first.is_durable());

    let places = (0..table.shared().parts.places()).collect();
    let one_at_a_time = table.shared().ingesting.lock();
    let paused = Pause::new(table.shared(), places);
    assert!(table.try_write(&batch(b"a", b"2")).unwrap().is_none());
    let transacted = table.try_transact(&[b"a"], |_| -> (Batch, ()) { panic!("called") });
    assert!(transacted.unwrap().is_none());
    assert_eq!(table.get(b"a").unwrap().as_deref(), Some(&b"1"[..]));

    drop(paused);
    drop(one_at_a_time);
    let read = |mut values: Vec<Option<Stored>>| (batch(b"a", b"3"), values.remove(0));
    let (commit, before) = table.try_transact(&[b"a"], read).unwrap().unwrap();
    let before = before.expect("a value");
    assert_eq!(
        (&before.value[..], before.expires_ms),
        (&b"1"[..], u64::MAX)
    );
    assert!(commit.ticket() > ticket);
    commit.wait().unwrap();
    assert_eq!(table.get(b"a").unwrap().as_deref(), Some(&b"3"[..]));

    let locked = part_of(&table, b"a").lock();
    assert!(table.try_write(&batch(b"a", b"4")).unwrap().is_none());
    assert_eq!(table.try_get(b"a").unwrap(), LiveLookup::NotResident);
    assert_eq!(table.try_expires_ms(b"a").unwrap(), None);
    drop(locked);
    assert_eq!(table.try_expires_ms(b"a").unwrap(), Some(Some(u64::MAX)));

    table.shared().gate.close(GATE_ENDED);
    let refused = table.try_write(&batch(b"a", b"4"));
    assert!(
        matches!(refused, Err(LiveError::Closed { .. })),
        "{refused:?}"
    );
}

/// A table of one partition with 150,000 writes in its memory.
fn filled(read_before: bool) -> (SimDisk, LiveTable, Model) {
    let (disk, table) = create(LiveDraft::hashed().partitions(1).unlogged());
    if read_before {
        assert_eq!(table.get(b"absent").unwrap(), None);
    }
    let mut model = Model::new();
    for number in 0..150_000u64 {
        let key = (number % 140_000).to_be_bytes();
        let write = || {
            table
                .try_write(&batch(&key, &number.to_be_bytes()))
                .unwrap()
        };
        // Another thread may look at the partition, and be stopped while it does.
        let written = (0..1000).find_map(|_| write());
        let _commit = written.expect("memory for all of it");
        model.insert(key.to_vec(), number.to_be_bytes().to_vec());
    }
    (disk, table, model)
}

fn view(table: &LiveTable) -> Arc<PartView> {
    Arc::clone(&table.shared().parts.at(0).lock().view)
}

#[test]
fn batches_merge_the_buffers_that_they_fill_if_the_table_is_read() {
    let (_disk, table, mut model) = filled(true);
    assert!(view(&table).minis.len() > 1 && view(&table).due_buffers().is_none());
    let count = |value: &[u8]| Some(CowOperation::Update(value.to_vec().into()));
    let (_commit, seen) = table
        .modify(&[0; 8], |value| (count(b"x"), value.is_some()))
        .unwrap();
    assert!(seen);
    model.insert(vec![0; 8], b"x".to_vec());
    let found: Model = super::collect(table.entries()).into_iter().collect();
    assert_eq!(found, model);
}

#[test]
fn buffers_are_merged_at_the_first_read() {
    let (_disk, table, model) = filled(false);
    assert!(view(&table).due_buffers().is_some());
    assert_eq!(table.get(b"absent").unwrap(), None);
    // In the background.
    while view(&table).due_buffers().is_some() {
        std::thread::yield_now();
    }
    let found: Model = super::collect(table.entries()).into_iter().collect();
    assert_eq!(found, model);
}
