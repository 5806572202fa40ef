//! Replicated partitions that an entry of their log splits. After any crash there is the partition
//! as before, or all children, and entries are applied once in each.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use forebay_engine::live::{
    AppliedPlace, Budget, DecidedEntry, LiveDraft, LiveError, LiveTable, Replication, SplitChild,
};
use forebay_engine::{Bound, PartitionId, Store};
use forebay_io::sim::{HandClock, Rng, SimDisk};
use forebay_run::Order;
use forebay_run::operation::DeltaKind;

use crate::common::{name, random, root, store_on};
use crate::live::faults::at_every_call;
use crate::live::life::{budget, collect, open_on};
use crate::live::replicas::fetch;
use crate::live::{for_seeds, one_of};

const LEFT: PartitionId = PartitionId(0);
const RIGHT: PartitionId = PartitionId(77);
const LAST: PartitionId = PartitionId(78);
/// The entry that splits the partition; those before it add to one of ten keys each.
const SPLIT: u64 = 21;

fn entry(index: u64, proposals: u32) -> DecidedEntry {
    DecidedEntry {
        place: AppliedPlace {
            term: 1,
            index,
            stamp_ms: 1_000 + index,
            members: Arc::from(&[1, 2, 3][..]),
            done: 0,
            loaded: 0,
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

fn right_child(order: Order) -> SplitChild {
    SplitChild {
        from: match order {
            Order::Hashed => Bound::Slot(8000),
            Order::Ordered => Bound::Key(b"k5".to_vec()),
        },
        id: RIGHT,
        place: Some(founded()),
    }
}

/// Returns another child after that one.
fn last_child(order: Order) -> SplitChild {
    SplitChild {
        from: match order {
            Order::Hashed => Bound::Slot(12_000),
            Order::Ordered => Bound::Key(b"k8".to_vec()),
        },
        id: LAST,
        place: Some(founded()),
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

/// Applies the entries before the split, up to that entry.
fn apply_before(table: &LiveTable, last: u64) -> Result<(), LiveError> {
    for index in table.applied(LEFT)?.index + 1..=last {
        append(table, LEFT, index, &key(index))?;
    }
    Ok(())
}

/// Applies all entries up to the split, and the split.
fn apply_one_split(table: &LiveTable, order: Order) -> Result<(), LiveError> {
    apply_split(table, &[right_child(order)])
}

fn apply_split(table: &LiveTable, children: &[SplitChild]) -> Result<(), LiveError> {
    if table.applied(LEFT)?.index >= SPLIT {
        return Ok(());
    }
    apply_before(table, SPLIT - 1)?;
    let is_split = table.split_by(LEFT, &entry(SPLIT, 0), children)?;
    assert!(is_split);
    Ok(())
}

/// Returns a table with entries in runs; those that it had in memory are lost.
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

/// Applies one more entry to each child, to a key that it has.
fn append_to_each(table: &LiveTable) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut wanted: BTreeMap<Vec<u8>, Vec<u8>> = (0..10)
        .map(|number| (key(number), b"xx".to_vec()))
        .collect();
    for (child, index) in [(LEFT, SPLIT + 1), (RIGHT, 2), (LAST, 2)] {
        assert_eq!(table.applied(child).unwrap().position(), (index - 1, 0));
        let of_child = wanted
            .keys()
            .find(|key| table.partition_of(key) == Some(child));
        let of_child = of_child.unwrap().clone();
        append(table, child, index, &of_child).unwrap();
        wanted.insert(of_child, b"xxx".to_vec());
    }
    wanted
}

fn all(table: &LiveTable) -> BTreeMap<Vec<u8>, Vec<u8>> {
    collect(table.entries())
}

/// No threads: the test runs background work step by step.
#[test]
fn a_split_that_was_prepared_finds_all_in_runs_and_no_merge() {
    let clock = Arc::new(HandClock::at(1_000_000));
    let disk = Arc::new(SimDisk::new());
    let store = Store::open_or_create(disk, Arc::clone(&clock) as _, random(1), root()).unwrap();
    let budget = Budget::by_hand(16 << 20);
    let table = store.create_live(&name("t"), draft(Order::Ordered), &budget);
    let table = table.unwrap();
    // Runs for which a merge is due, and entries in memory.
    let mut last = 0;
    while !table.stats().is_merge_due {
        last += 1;
        apply_before(&table, last).unwrap();
        table.flush().unwrap();
    }
    apply_before(&table, last + 1).unwrap();
    assert!(table.stats().memory_records > 0);
    let number = table.prepare_split(LEFT).unwrap();
    assert!(!table.is_ready_to_split(number), "it is not written yet");
    assert!(table.step().unwrap());
    assert!(table.is_ready_to_split(number));
    let stats = table.stats();
    assert_eq!((stats.memory_records, stats.merges), (0, 0));
    assert!(!table.step().unwrap(), "no merge begins now");
    let split = right_child(Order::Ordered);
    assert!(table.split_by(LEFT, &entry(last + 2, 0), &[split]).unwrap());
    clock.advance(Duration::from_secs(2));
    assert!(table.step().unwrap(), "a second later it does");
}

#[test]
fn an_entry_splits_a_partition_into_three_or_it_is_applied_again() {
    for order in [Order::Ordered, Order::Hashed] {
        let split = |store: &Store| {
            let table = store.live_table(&name("t"), &budget());
            let children = [right_child(order), last_child(order)];
            let split = table.and_then(|table| apply_split(&table, &children));
            split.map_err(|error| error.to_string())
        };
        at_every_call(&base(order), split, |store, done, words| {
            let table = store.live_table(&name("t"), &budget());
            let table = table.unwrap_or_else(|error| panic!("{words}: {error}"));
            let in_runs = |id| table.content(id).and_then(|content| content.applied);
            let left = in_runs(LEFT).unwrap();
            let right = in_runs(RIGHT);
            assert!(right.is_some() || !done, "{words}: the call had succeeded");
            assert_eq!(right.is_some(), left.index == SPLIT, "{words}");
            let failed = |error| panic!("{words}: {error}");
            let children = [right_child(order), last_child(order)];
            apply_split(&table, &children).unwrap_or_else(failed);
            let right = in_runs(RIGHT).unwrap();
            let time = AppliedPlace {
                stamp_ms: 1_000 + SPLIT,
                ..founded()
            };
            assert_eq!(right, time, "{words}");
            assert_eq!(in_runs(LAST).unwrap(), time, "{words}");
            let wanted = append_to_each(&table);
            assert_eq!(all(&table), wanted, "{words}");
            table.compact().unwrap();
            assert_eq!(table.stats().split_runs, 0, "{words}");
            assert_eq!(all(&table), wanted, "{words}");
            assert!(table.verify(&mut |_| ()).unwrap().1.is_empty(), "{words}");
        });
    }
}

#[test]
fn a_split_keeps_the_memory_of_other_partitions() {
    const OTHER: PartitionId = PartitionId(1);
    let disk = SimDisk::new();
    let draft = LiveDraft::hashed().partitions(2).delta(DeltaKind::Append);
    let draft = draft.replicated(Replication::Leader);
    let table = store_on(&disk, 1).create_live(&name("t"), draft, &budget());
    let table = table.unwrap();
    let keys_of = |id| {
        let keys = (0..100).map(key_of_hundred);
        keys.filter(|key| table.partition_of(key) == Some(id))
            .collect::<Vec<_>>()
    };
    let (mine, others) = (keys_of(LEFT), keys_of(OTHER));
    let append_all = |table: &LiveTable, id, keys: &[Vec<u8>]| {
        for key in keys {
            let next = table.applied(id).unwrap().index + 1;
            append(table, id, next, key).unwrap();
        }
    };
    append_all(&table, OTHER, &others);
    table.flush().unwrap();
    let in_runs = table.applied(OTHER).unwrap().index;
    append_all(&table, LEFT, &mine);
    append_all(&table, OTHER, &others);
    let memory_bytes = table.stats().memtable_bytes;
    let split = SplitChild {
        from: Bound::Slot(4000),
        ..right_child(Order::Hashed)
    };
    let at = table.applied(LEFT).unwrap().index + 1;
    assert!(table.split_by(LEFT, &entry(at, 0), &[split]).unwrap());
    let stats = table.stats();
    assert!(stats.memtable_bytes > 0 && stats.memtable_bytes < memory_bytes);
    assert_eq!(stats.frozen_bytes, 0);
    // Again, by entries that it has in memory since.
    let child = keys_of(LEFT);
    append_all(&table, LEFT, &child);
    let copy = table.copy_of(LEFT).unwrap();
    assert_eq!(
        copy.content().applied.as_ref().unwrap().index,
        at + child.len() as u64
    );
    drop((copy, table));
    let again = open_on(&disk.after_kill()).unwrap();
    assert_eq!(again.applied(OTHER).unwrap().index, in_runs);
    append_all(&again, OTHER, &others);
    let times = |keys: &[Vec<u8>], times| {
        keys.iter()
            .map(move |key| (key.clone(), vec![b'x'; times]))
            .collect::<Vec<_>>()
    };
    let mut wanted: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    wanted.extend(times(&mine, 1));
    wanted.extend(times(&child, 2));
    wanted.extend(times(&others, 2));
    assert_eq!(all(&again), wanted);
    again.flush().unwrap();
    assert_eq!(again.stats().memtable_bytes, 0);
    assert!(again.verify(&mut |_| ()).unwrap().1.is_empty());
}

fn key_of_hundred(number: u64) -> Vec<u8> {
    format!("n{number}").into_bytes()
}

#[test]
fn a_split_point_outside_the_partition_only_moves_its_place() {
    let table = open_on(&base(Order::Ordered)).unwrap();
    apply_one_split(&table, Order::Ordered).unwrap();
    let split = right_child(Order::Ordered);
    assert!(!table.can_split(LEFT, [&split.from].into_iter()).unwrap());
    let split = [split];
    assert!(!table.split_by(LEFT, &entry(SPLIT + 1, 0), &split).unwrap());
    assert_eq!(table.applied(LEFT).unwrap().index, SPLIT + 1);
    assert_eq!(table.partitions().len(), 2);
    // Neither out of its order, nor with a used id.
    let from = Bound::Key(b"k2".to_vec());
    let [split] = split;
    let again = [SplitChild { from, ..split }];
    assert!(table.split_by(LEFT, &entry(SPLIT + 3, 0), &again).is_err());
    assert!(table.split_by(LEFT, &entry(SPLIT + 2, 0), &again).is_err());
    assert_eq!(table.applied(LEFT).unwrap().index, SPLIT + 1);
}

#[test]
fn the_left_child_refuses_a_write_to_a_key_of_the_right_child() {
    let table = open_on(&base(Order::Ordered)).unwrap();
    apply_one_split(&table, Order::Ordered).unwrap();
    let write = table.entry(LEFT, &entry(SPLIT + 1, 1), 0).unwrap();
    assert!(write.is_of_entry(b"k1") && !write.is_of_entry(b"k7"));
    assert!(write.delta(b"k7", b"y").is_err());
    write.finish().unwrap();
    assert_eq!(table.get(b"k7").unwrap().as_deref(), Some(&b"xx"[..]));
}

#[test]
fn a_copy_of_the_left_child_replaces_the_whole_partition() {
    let (from, to) = (base(Order::Ordered), base(Order::Ordered));
    let (whole, follower) = (open_on(&from).unwrap(), open_on(&to).unwrap());
    apply_before(&whole, SPLIT - 1).unwrap();
    let of_whole = whole.copy_of(LEFT).unwrap();
    apply_one_split(&whole, Order::Ordered).unwrap();
    let of_child = whole.copy_of(LEFT).unwrap();
    let fetch = |copy| fetch(copy, &from, &follower, &to).unwrap();
    follower.install(fetch(&of_child)).unwrap();
    assert_eq!(
        follower.partitions()[0].bounds,
        whole.partitions()[0].bounds
    );
    assert_eq!(follower.partition_of(b"k7"), None);
    assert!(follower.get(b"k7").is_err());
    let left: BTreeMap<Vec<u8>, Vec<u8>> =
        (0..5).map(|number| (key(number), b"xx".to_vec())).collect();
    assert_eq!(all(&follower), left);
    append(&follower, LEFT, SPLIT + 1, b"k1").unwrap();
    follower.flush().unwrap();
    // A copy from before the split undoes nothing.
    let refused = follower.install(fetch(&of_whole)).unwrap_err().to_string();
    assert!(refused.contains("it goes"), "{refused}");
    drop(follower);
    let again = open_on(&to.after_kill()).unwrap();
    assert_eq!(again.applied(LEFT).unwrap().index, SPLIT + 1);
    assert_eq!(again.get(b"k1").unwrap().as_deref(), Some(&b"xxx"[..]));
    assert_eq!(again.partition_of(b"k7"), None);
}

#[test]
fn installing_a_child_replaces_the_whole_partition_or_changes_nothing() {
    for order in [Order::Ordered, Order::Hashed] {
        let from = base(order);
        let whole = open_on(&from).unwrap();
        apply_one_split(&whole, order).unwrap();
        let child = whole.copy_of(LEFT).unwrap();
        let left: BTreeMap<Vec<u8>, Vec<u8>> = all(&whole)
            .into_iter()
            .filter(|(key, _)| whole.partition_of(key) == Some(LEFT))
            .collect();
        let install = |store: &Store| {
            let table = store.live_table(&name("t"), &budget());
            let table = table.map_err(|error| error.to_string())?;
            let content = fetch(&child, &from, &table, &**store.disk());
            let content = content.map_err(|error| error.to_string())?;
            let installed = table.install(content);
            installed.map_err(|error| error.to_string())
        };
        at_every_call(&base(order), install, |store, done, words| {
            let table = store.live_table(&name("t"), &budget());
            let table = table.unwrap_or_else(|error| panic!("{words}: {error}"));
            let content = table.content(LEFT).unwrap();
            let is_new = content.range == child.content().range;
            assert!(is_new || !done, "{words}: the call had succeeded");
            let at = content.applied.unwrap().index;
            assert_eq!(at, if is_new { SPLIT } else { 12 }, "{words}");
            match is_new {
                true => assert_eq!(all(&table), left, "{words}"),
                // The entry is applied instead of the copy.
                false => apply_one_split(&table, order).unwrap(),
            }
            assert_eq!(table.content(RIGHT).is_some(), !is_new, "{words}");
            assert!(table.verify(&mut |_| ()).unwrap().1.is_empty(), "{words}");
        });
    }
}

/// The entries of both children's logs, and the position of the split in the left one's.
struct Logs {
    order: Order,
    split: u64,
    /// The key of each entry, from entry 1 of the left child's log, and 2 of the right child's.
    left: Vec<Vec<u8>>,
    right: Vec<Vec<u8>>,
}

impl Logs {
    fn new(rng: &mut Rng, order: Order, is_left: impl Fn(&[u8]) -> bool) -> Self {
        let keys: Vec<Vec<u8>> = (0..10).map(key).collect();
        let (left, right): (Vec<_>, Vec<_>) = keys.iter().cloned().partition(|key| is_left(key));
        let split = 2 + rng.below(30);
        let some = |count: u64, of: &[Vec<u8>], rng: &mut Rng| {
            let keys = (0..count).map(|_| of[rng.below(of.len() as u64) as usize].clone());
            keys.collect::<Vec<_>>()
        };
        let mut entries = some(split, &keys, rng);
        entries.extend(some(20, &left, rng));
        Self {
            order,
            split,
            left: entries,
            right: some(20, &right, rng),
        }
    }

    /// Applies the next entry of a child; `false` if there is none.
    fn apply_next(&self, table: &LiveTable, child: PartitionId) -> bool {
        let Ok(applied) = table.applied(child) else {
            return false;
        };
        let index = applied.index + 1;
        if child == LEFT && index == self.split {
            let children = [right_child(self.order)];
            assert!(table.split_by(LEFT, &entry(index, 0), &children).unwrap());
            return true;
        }
        let (log, first) = if child == LEFT {
            (&self.left, 1)
        } else {
            (&self.right, 2)
        };
        let Some(key) = log.get((index - first) as usize) else {
            return false;
        };
        let write = table.entry(child, &entry(index, 1), 0).unwrap();
        let written = format!("{child}-{index};").into_bytes();
        write.delta(key, &written).unwrap().wait().unwrap();
        write.finish().unwrap();
        true
    }

    fn expected(&self) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let mut all: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        let left = (1..).zip(&self.left).map(|entry| (LEFT, entry));
        let left = left.filter(|(_, (index, _))| *index != self.split);
        let right = (2..).zip(&self.right).map(|entry| (RIGHT, entry));
        for (child, (index, key)) in left.chain(right) {
            let written = format!("{child}-{index};");
            all.entry(key.clone())
                .or_default()
                .extend(written.as_bytes());
        }
        all
    }
}

/// A replica's disk and table.
type Node = (SimDisk, LiveTable);

/// Copies a child to the other node, if that has no more of it.
fn copy_over(rng: &mut Rng, nodes: &[Node; 2], child: PartitionId) {
    let [from, to] = one_of(rng, &[[0, 1], [1, 0]]).map(|place| &nodes[place]);
    // While the other node has one partition, it cannot install the right child.
    let is_split = to.1.partitions()[0].bounds.upper.is_some();
    let is_ready = child == LEFT || is_split;
    if let Ok(copy) = from.1.copy_of(child)
        && is_ready
    {
        let content = fetch(&copy, &from.0, &to.1, &to.0).unwrap();
        let fetched = content.applied.as_ref().map(AppliedPlace::position);
        let here = to.1.applied(child).ok().map(|here| here.position());
        let installed = to.1.install(content);
        assert_eq!(installed.is_ok(), fetched >= here, "{installed:?}");
    }
}

fn split_among_others(seed: u64) {
    let rng = &mut Rng(seed);
    let order = one_of(rng, &[Order::Ordered, Order::Hashed]);
    let mut nodes = [1, 2].map(|node| {
        let disk = SimDisk::new();
        let made = store_on(&disk, node).create_live(&name("t"), draft(order), &budget());
        (disk, made.unwrap())
    });
    let hasher = nodes[0].1.hasher().clone();
    let split = right_child(order).from;
    let is_left = |key: &[u8]| match &split {
        Bound::Slot(slot) => hasher.slot(key) < *slot,
        Bound::Key(at) => key < &at[..],
    };
    let logs = Logs::new(rng, order, is_left);
    for _ in 0..150 {
        let child = one_of(rng, &[LEFT, RIGHT]);
        let (disk, table) = &mut nodes[rng.below(2) as usize];
        match rng.below(16) {
            0 => table.flush().unwrap(),
            1 => table.compact().unwrap(),
            2 => {
                *disk = disk.after_kill();
                *table = open_on(disk).unwrap();
            }
            3 => copy_over(rng, &nodes, child),
            _ => drop(logs.apply_next(table, child)),
        }
    }
    for (_, table) in &nodes {
        while logs.apply_next(table, LEFT) || logs.apply_next(table, RIGHT) {}
    }
    for _ in 0..8 {
        copy_over(rng, &nodes, RIGHT);
    }
    let wanted = logs.expected();
    for (disk, table) in nodes {
        table.flush().unwrap();
        drop(table);
        let table = open_on(&disk.after_kill()).unwrap();
        let here = table.partitions().len();
        let mut wanted = wanted.clone();
        wanted.retain(|key, _| here == 2 || is_left(key));
        assert_eq!(all(&table), wanted, "seed {seed}");
    }
}

#[test]
fn replicas_that_split_at_different_moments_have_the_same_children() {
    for_seeds(60, split_among_others);
}
