//! Replicated partitions that an entry of their log cuts in two: whenever it ends, there is the
//! partition as before, or both halves, and entries are applied once in each.

use std::collections::BTreeMap;
use std::sync::Arc;

use forebay_engine::live::{
    AppliedPlace, DecidedCut, DecidedEntry, LiveDraft, LiveError, LiveTable, Replication,
};
use forebay_engine::{Bound, PartitionId, Store};
use forebay_io::replace_file;
use forebay_io::sim::SimDisk;
use forebay_run::Order;
use forebay_run::operation::DeltaKind;

use crate::common::{name, store_on};
use crate::faults::at_every_call;
use crate::life::{budget, collect, open_on};

const LEFT: PartitionId = PartitionId(0);
const RIGHT: PartitionId = PartitionId(77);
/// The entry that cuts the partition; those before it add to one of ten keys each.
const CUT: u64 = 21;

fn entry(index: u64, proposals: u32) -> DecidedEntry {
    DecidedEntry {
        place: AppliedPlace {
            term: 1,
            index,
            stamp_ms: 1_000 + index,
            members: Arc::from(&[1, 2, 3][..]),
            done: 0,
        },
        proposals,
    }
}

fn founded() -> AppliedPlace {
    AppliedPlace {
        members: Arc::from(&[4, 5, 6][..]),
        stamp_ms: 0,
        ..entry(1, 0).place
    }
}

fn draft(order: Order) -> LiveDraft {
    let draft = match order {
        Order::Hashed => LiveDraft::hashed().partitions(1),
        Order::Ordered => LiveDraft::ordered(Vec::new()),
    };
    let draft = draft.delta(DeltaKind::Append);
    draft.replicated(Replication::Leader)
}

fn cut_at(order: Order) -> DecidedCut {
    DecidedCut {
        at: match order {
            Order::Hashed => Bound::Slot(8000),
            Order::Ordered => Bound::Key(b"k5".to_vec()),
        },
        right: RIGHT,
        right_place: founded(),
    }
}

fn key(number: u64) -> Vec<u8> {
    format!("k{}", number % 10).into_bytes()
}

fn append(table: &LiveTable, id: PartitionId, index: u64, key: &[u8]) -> Result<(), LiveError> {
    let write = table.entry(id, &entry(index, 1), 0)?;
    write.delta(key, b"x")?.wait()?;
    write.finish()
}

/// Applies what comes before the cut, up to that entry.
fn apply_before(table: &LiveTable, last: u64) -> Result<(), LiveError> {
    for index in table.applied(LEFT)?.index + 1..=last {
        append(table, LEFT, index, &key(index))?;
    }
    Ok(())
}

/// Applies all up to the cut, and that.
fn apply_cut(table: &LiveTable, order: Order) -> Result<(), LiveError> {
    if table.applied(LEFT)?.index >= CUT {
        return Ok(());
    }
    apply_before(table, CUT - 1)?;
    let is_cut = table.split_by(LEFT, &entry(CUT, 0), &cut_at(order))?;
    assert!(is_cut);
    Ok(())
}

/// A table with entries in runs; what it had in memory is gone.
fn base(order: Order) -> SimDisk {
    let disk = SimDisk::new();
    let table = store_on(&disk, 1).create_live(&name("t"), draft(order), &budget());
    let table = table.unwrap();
    apply_before(&table, 6).unwrap();
    table.flush().unwrap();
    apply_before(&table, 12).unwrap();
    table.flush().unwrap();
    apply_before(&table, 15).unwrap();
    disk.after_kill()
}

/// One more entry for each half, to a key that it has.
fn go_on(table: &LiveTable) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut wanted: BTreeMap<Vec<u8>, Vec<u8>> = (0..10)
        .map(|number| (key(number), b"xx".to_vec()))
        .collect();
    for (half, index) in [(LEFT, CUT + 1), (RIGHT, 2)] {
        assert_eq!(table.applied(half).unwrap().position(), (index - 1, 0));
        let of_half = wanted
            .keys()
            .find(|key| table.partition_of(key) == Some(half));
        let of_half = of_half.unwrap().clone();
        append(table, half, index, &of_half).unwrap();
        wanted.insert(of_half, b"xxx".to_vec());
    }
    wanted
}

fn all(table: &LiveTable) -> BTreeMap<Vec<u8>, Vec<u8>> {
    collect(table.entries())
}

#[test]
fn an_entry_cuts_a_partition_in_two_or_it_is_applied_again() {
    for order in [Order::Ordered, Order::Hashed] {
        let cut = |store: &Store| {
            let table = store.live_table(&name("t"), &budget());
            let cut = table.and_then(|table| apply_cut(&table, order));
            cut.map_err(|error| error.to_string())
        };
        at_every_call(&base(order), cut, |store, done, words| {
            let table = store.live_table(&name("t"), &budget());
            let table = table.unwrap_or_else(|error| panic!("{words}: {error}"));
            let in_runs = |id| table.content(id).and_then(|content| content.applied);
            let left = in_runs(LEFT).unwrap();
            let right = in_runs(RIGHT);
            assert!(right.is_some() || !done, "{words}: it had said that it cut");
            assert_eq!(right.is_some(), left.index == CUT, "{words}");
            let failed = |error| panic!("{words}: {error}");
            apply_cut(&table, order).unwrap_or_else(failed);
            let right = in_runs(RIGHT).unwrap();
            let time = AppliedPlace {
                stamp_ms: 1_000 + CUT,
                ..founded()
            };
            assert_eq!(right, time, "{words}");
            let wanted = go_on(&table);
            assert_eq!(all(&table), wanted, "{words}");
            table.compact().unwrap();
            assert_eq!(table.stats().cut_runs, 0, "{words}");
            assert_eq!(all(&table), wanted, "{words}");
            assert!(table.verify(&mut |_| ()).unwrap().1.is_empty(), "{words}");
        });
    }
}

#[test]
fn a_cut_elsewhere_moves_the_place_alone() {
    let table = open_on(&base(Order::Ordered)).unwrap();
    apply_cut(&table, Order::Ordered).unwrap();
    let cut = cut_at(Order::Ordered);
    assert!(!table.cuts(LEFT, &cut.at).unwrap());
    assert!(!table.split_by(LEFT, &entry(CUT + 1, 0), &cut).unwrap());
    assert_eq!(table.applied(LEFT).unwrap().index, CUT + 1);
    assert_eq!(table.partitions().len(), 2);
    // Neither out of its order, nor with an id that was given before.
    let at = Bound::Key(b"k2".to_vec());
    let again = DecidedCut { at, ..cut };
    assert!(table.split_by(LEFT, &entry(CUT + 3, 0), &again).is_err());
    assert!(table.split_by(LEFT, &entry(CUT + 2, 0), &again).is_err());
    assert_eq!(table.applied(LEFT).unwrap().index, CUT + 1);
}

#[test]
fn a_key_of_the_right_half_takes_no_proposal_of_the_left() {
    let table = open_on(&base(Order::Ordered)).unwrap();
    apply_cut(&table, Order::Ordered).unwrap();
    let write = table.entry(LEFT, &entry(CUT + 1, 1), 0).unwrap();
    assert!(write.is_of_entry(b"k1") && !write.is_of_entry(b"k7"));
    assert!(write.delta(b"k7", b"y").is_err());
    write.finish().unwrap();
    assert_eq!(table.get(b"k7").unwrap().as_deref(), Some(&b"xx"[..]));
}

#[test]
fn a_copy_of_the_left_half_takes_the_place_of_the_whole() {
    let (from, to) = (base(Order::Ordered), base(Order::Ordered));
    let (whole, behind) = (open_on(&from).unwrap(), open_on(&to).unwrap());
    apply_before(&whole, CUT - 1).unwrap();
    let of_whole = whole.copy_of(LEFT).unwrap();
    apply_cut(&whole, Order::Ordered).unwrap();
    let of_half = whole.copy_of(LEFT).unwrap();
    let bring = |copy: &forebay_engine::live::PartitionCopy| {
        let mut content = copy.content().clone();
        for run in &mut content.runs {
            let new = behind.new_run();
            let bytes = forebay_io::Disk::read(&from, &copy.run_file(&run.id)).unwrap();
            replace_file(&to, &new.path, &bytes).unwrap();
            run.id = new.id;
        }
        content
    };
    behind.install(bring(&of_half)).unwrap();
    assert_eq!(behind.partitions()[0].bounds, whole.partitions()[0].bounds);
    assert_eq!(behind.partition_of(b"k7"), None);
    assert!(behind.get(b"k7").is_err());
    let left: BTreeMap<Vec<u8>, Vec<u8>> =
        (0..5).map(|number| (key(number), b"xx".to_vec())).collect();
    assert_eq!(all(&behind), left);
    append(&behind, LEFT, CUT + 1, b"k1").unwrap();
    behind.flush().unwrap();
    // What was copied before the cut takes nothing back.
    let refused = behind.install(bring(&of_whole)).unwrap_err().to_string();
    assert!(refused.contains("it goes"), "{refused}");
    drop(behind);
    let again = open_on(&to.after_kill()).unwrap();
    assert_eq!(again.applied(LEFT).unwrap().index, CUT + 1);
    assert_eq!(again.get(b"k1").unwrap().as_deref(), Some(&b"xxx"[..]));
    assert_eq!(again.partition_of(b"k7"), None);
}
