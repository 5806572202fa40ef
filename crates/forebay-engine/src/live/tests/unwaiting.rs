//! Writers that must not wait.

use forebay_run::operation::CowOperation;

use super::{Model, create};
use crate::live::shared::{GATE_ENDED, GATE_PAUSED};
use crate::live::{Batch, LiveError, LiveOptions};

fn batch(key: &[u8], value: &[u8]) -> Batch {
    let mut batch = Batch::new();
    batch.update(key, value);
    batch
}

#[test]
fn they_are_told_where_they_would_have_to() {
    let (_disk, table) = create(LiveOptions::hashed());
    let first = table.try_write(&batch(b"a", b"1")).unwrap().unwrap();
    let ticket = first.ticket();
    table.commit(ticket).wait().unwrap();
    assert!(first.is_durable());

    table.shared().gate.close(GATE_PAUSED);
    assert!(table.try_write(&batch(b"a", b"2")).unwrap().is_none());
    let transacted = table.try_transact(&[b"a"], |_| -> (Batch, ()) { panic!("called") });
    assert!(transacted.unwrap().is_none());
    assert_eq!(table.get(b"a").unwrap().as_deref(), Some(&b"1"[..]));

    table.shared().gate.open(GATE_PAUSED);
    let read = |values: &[Option<Vec<u8>>]| (batch(b"a", b"3"), values[0].clone());
    let (commit, before) = table.try_transact(&[b"a"], read).unwrap().unwrap();
    assert_eq!(before.as_deref(), Some(&b"1"[..]));
    assert!(commit.ticket() > ticket);
    commit.wait().unwrap();
    assert_eq!(table.get(b"a").unwrap().as_deref(), Some(&b"3"[..]));

    table.shared().gate.close(GATE_ENDED);
    let refused = table.try_write(&batch(b"a", b"4"));
    assert!(
        matches!(refused, Err(LiveError::Closed { .. })),
        "{refused:?}"
    );
}

#[test]
fn batches_merge_the_buffers_that_they_fill() {
    let (_disk, table) = create(LiveOptions::hashed().partitions(1).unlogged());
    let mut model = Model::new();
    for number in 0..150_000u64 {
        let key = (number % 140_000).to_be_bytes();
        let written = table.try_write(&batch(&key, &number.to_be_bytes()));
        let _commit = written.unwrap().expect("memory for all of it");
        model.insert(key.to_vec(), number.to_be_bytes().to_vec());
    }
    let view = table.shared().parts[0].lock().view.clone();
    assert!(view.minis.len() > 1 && view.due_buffers().is_none());
    let count = |value: &[u8]| Some(CowOperation::Update(value.to_vec().into()));
    let (_commit, seen) = table
        .modify(&[0; 8], |value| (count(b"x"), value.is_some()))
        .unwrap();
    assert!(seen);
    model.insert(vec![0; 8], b"x".to_vec());
    let found: Model = super::collect(table.entries()).into_iter().collect();
    assert_eq!(found, model);
}
