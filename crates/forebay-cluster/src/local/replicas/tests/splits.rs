//! Tests of splits by a log entry: all parts exist after a crash at any moment.

use std::path::Path;
use std::sync::Arc;

use forebay_engine::live::{Batch, Budget, Durability, LiveDraft, PartitionContent};
use forebay_engine::replica_log::EntryPlace;
use forebay_engine::{Bound, PartitionId, PartitionRange, Store};
use forebay_host::{
    CopyFetcher, Effect, GroupState, PartitionState, StateError, StateParts, encode_split_point,
    place_of,
};
use forebay_io::sim::{Fault, HandClock, SeededRandom, SimDisk};
use forebay_replica::{
    ChildGroup, Committed, Content, FOUNDED, GroupId, LogEntry, Membership, PeerId, Place,
    Proposal, RequestId, SnapshotFacts, SplitEntry, Start,
};

use super::super::load_runs::LoadRuns;
use super::super::opening::{HeldTable, TableOpener};
use super::super::peers::TableChildren;
use super::super::peers_file::SavedPeer;
use super::nodes::{GROUP, table_name};

const WHOLE: PartitionId = PartitionId(0);
const CHILDREN: [(PartitionId, GroupId); 2] =
    [(PartitionId(1), GroupId(70)), (PartitionId(2), GroupId(71))];
/// The index of the split entry, which follows the entries that write.
const SPLIT_AT: u64 = 22;

#[derive(Debug)]
struct NoCopyFetcher;

impl CopyFetcher for NoCopyFetcher {
    fn fetch_copy(&self, _: GroupId, _: PeerId, _: Place) -> Result<PartitionContent, String> {
        Err("no peer is available".to_owned())
    }
}

fn opener(disk: &SimDisk) -> TableOpener {
    let (clock, random) = (HandClock::at(1), SeededRandom::new(5));
    let disk = Arc::new(disk.clone());
    let cache = Store::open_or_create(disk, Arc::new(clock), Arc::new(random), Path::new("/s"));
    TableOpener {
        cache: cache.unwrap(),
        budget: Budget::by_hand(1 << 20),
        boot_id: 1,
        log_retention_bytes: 64 << 20,
    }
}

/// A founder of three, with an empty partition.
fn founded(disk: &SimDisk) -> HeldTable {
    let draft = LiveDraft::ordered(Vec::new()).durability(Durability::Sync);
    let held = opener(disk).make(&table_name(), &draft.options).unwrap();
    let peer = PeerId(1);
    let start = Start::founder(GROUP, peer, &[1, 2, 3].map(PeerId), 0);
    let range: PartitionRange = draft.partitions[0].clone();
    let content = PartitionContent {
        epoch: 1,
        applied: Some(place_of(&start.applied)),
        ..PartitionContent::empty(range)
    };
    held.table.adopt(content).unwrap();
    let behind = EntryPlace { term: 1, index: 1 };
    let promise = start.promise.to_bytes();
    held.engine_log.begin(GROUP, behind, &promise).unwrap();
    let noted = SavedPeer {
        partition: WHOLE,
        group: GROUP,
        peer,
    };
    held.note.change(|note| note.with(noted)).unwrap();
    held
}

fn state(held: &HeldTable) -> PartitionState {
    let children = TableChildren {
        log: Arc::clone(&held.engine_log),
        note: Arc::clone(&held.note),
    };
    let parts = StateParts {
        copy_fetcher: Arc::new(NoCopyFetcher),
        loads: Arc::<LoadRuns>::default(),
    };
    let state = PartitionState::new(held.table.clone(), WHOLE, GROUP, parts);
    state.split_for(PeerId(1), Arc::new(children))
}

fn key(index: u64) -> Vec<u8> {
    format!("k{index:02}").into_bytes()
}

/// Returns a split into three. `peers`: the voters, each with its peer of the first child. The peer
/// of the second child has a number higher by ten.
fn split(peers: &[(u64, u64)]) -> SplitEntry {
    let child = |number: u32| ChildGroup {
        from: encode_split_point(&Bound::Key(key(10 + 5 * u64::from(number)))),
        partition: CHILDREN[number as usize].0.0,
        group: CHILDREN[number as usize].1,
        peers: peers
            .iter()
            .map(|(_, peer)| PeerId(peer + 10 * u64::from(number)))
            .collect(),
    };
    SplitEntry {
        planned_in: 9,
        voters: peers.iter().map(|(voter, _)| PeerId(*voter)).collect(),
        children: vec![child(0), child(1)],
    }
}

/// Returns an entry. Entry 2 sets the first key, and so on; one entry splits, and the next one sets
/// the first key again.
fn entry(index: u64) -> Committed {
    let set = |key: &[u8], value: &[u8]| {
        let mut batch = Batch::new();
        batch.update(key, value);
        Content::Batch {
            stamp_ms: 10 * index,
            proposals: vec![Proposal {
                request: RequestId(0),
                effect: Effect::Operations(batch).encode(),
            }],
        }
    };
    let content = match index {
        SPLIT_AT => Content::Split(split(&[(1, 11), (2, 12), (3, 13)])),
        0..SPLIT_AT => set(&key(index - 2), b"value"),
        _ => set(&key(0), b"later"),
    };
    committed(index, content)
}

fn committed(index: u64, content: Content) -> Committed {
    let place = Place { term: 2, index };
    Committed {
        entry: LogEntry { place, content },
        facts: SnapshotFacts {
            place,
            membership: Arc::new(Membership::founders(&[1, 2, 3].map(PeerId))),
            stamp_ms: 10 * index.min(SPLIT_AT - 1),
        },
        is_awaited: false,
    }
}

fn apply_all(held: &HeldTable, through: u64) -> Result<(), StateError> {
    let (state, applied) = (state(held), held.table.applied(WHOLE).unwrap());
    for index in applied.index + 1..=through {
        state.apply(&entry(index), true)?;
    }
    Ok(())
}

/// Checks that all parts exist with all of their data, and that the children are founders that have
/// promised nothing.
fn check_parts(held: &HeldTable, at: u64) {
    let ids: Vec<PartitionId> = held
        .table
        .partitions()
        .iter()
        .map(|range| range.id)
        .collect();
    assert_eq!(ids, [WHOLE, CHILDREN[0].0, CHILDREN[1].0], "death {at}");
    for index in 0..20 {
        let (key, last) = (key(index), held.table.applied(WHOLE).unwrap().index);
        let value: &[u8] = match (index, last > SPLIT_AT) {
            (0, true) => b"later",
            _ => b"value",
        };
        assert_eq!(held.table.get(&key).unwrap().as_deref(), Some(value));
        let part = ids[(index / 5).saturating_sub(1) as usize];
        assert_eq!(held.table.partition_of(&key), Some(part));
    }
    let note = held.note.get();
    for (number, (partition, group)) in CHILDREN.into_iter().enumerate() {
        let peer = PeerId(11 + 10 * number as u64);
        let noted = SavedPeer {
            partition,
            group,
            peer,
        };
        assert!(note.peers.contains(&noted), "death {at}: {note:?}");
        assert!(note.is_ahead(noted, 8) && !note.is_ahead(noted, 9));
        let applied = held.table.applied(partition).unwrap();
        assert_eq!((applied.term, applied.index), (1, 1));
        assert_eq!(
            applied.stamp_ms,
            10 * (SPLIT_AT - 1),
            "the stamp does not decrease"
        );
    }
}

#[test]
fn a_crash_at_any_moment_of_a_split_leaves_the_parent_or_all_children() {
    let (mut whole, mut parts) = (0, 0);
    for at in 0.. {
        let disk = SimDisk::new();
        let held = founded(&disk);
        apply_all(&held, SPLIT_AT - 1).unwrap();
        let begun = disk.calls();
        disk.plan(at, Fault::Dead);
        let split = apply_all(&held, SPLIT_AT);
        if disk.calls() - begun <= at {
            split.unwrap();
            break;
        }
        let left = match at % 2 {
            0 => disk.after_kill(),
            _ => disk.after_power_cut(at),
        };
        drop(held);
        let held = opener(&left).open(&table_name()).unwrap();
        if held.table.partitions().len() == 1 {
            whole += 1;
            assert_eq!(
                held.note.get().peers.len(),
                1,
                "death {at}: the children do not exist"
            );
            let mut groups = CHILDREN.iter().map(|(_, group)| group);
            assert!(!groups.any(|group| held.starts.contains_key(group)));
        } else {
            parts += 1;
            for (number, (_, group)) in CHILDREN.iter().enumerate() {
                let start = &held.starts[group];
                assert_eq!((start.applied.place, start.promise.vote), (FOUNDED, None));
                let founders = [11, 12, 13].map(|peer| PeerId(peer + 10 * number as u64));
                let founders = Membership::founders(&founders);
                assert_eq!(*start.applied.membership, founders);
            }
        }
        apply_all(&held, SPLIT_AT + 1).unwrap();
        check_parts(&held, at);
        held.close().unwrap();
        drop(held);
        let held = opener(&left).open(&table_name()).unwrap();
        check_parts(&held, at);
    }
    assert!(whole > 10 && parts > 0, "{whole} and {parts}");
}

#[test]
fn a_split_waits_for_disk_space() {
    let disk = SimDisk::new();
    let held = founded(&disk);
    apply_all(&held, SPLIT_AT - 1).unwrap();
    disk.fill_up();
    let waits = apply_all(&held, SPLIT_AT);
    assert!(matches!(waits, Err(StateError::Later(_))), "{waits:?}");
    assert_eq!(held.table.partitions().len(), 1);
    disk.make_room();
    apply_all(&held, SPLIT_AT + 1).unwrap();
    check_parts(&held, 0);
}

#[test]
fn a_split_for_other_members_or_a_repeated_split_does_nothing() {
    let disk = SimDisk::new();
    let held = founded(&disk);
    apply_all(&held, SPLIT_AT - 1).unwrap();
    let state = state(&held);
    let others = [
        split(&[(1, 11), (2, 12)]),
        split(&[(1, 11), (2, 12), (4, 13)]),
    ];
    for (index, other) in (SPLIT_AT..).zip(others) {
        state
            .apply(&committed(index, Content::Split(other)), true)
            .unwrap();
        assert_eq!(held.table.applied(WHOLE).unwrap().index, index);
        assert_eq!(held.table.partitions().len(), 1);
        assert_eq!(held.note.get().peers.len(), 1);
    }
    let due = split(&[(1, 11), (2, 12), (3, 13)]);
    for index in [SPLIT_AT + 2, SPLIT_AT + 3] {
        let again = Content::Split(due.clone());
        state.apply(&committed(index, again), true).unwrap();
        assert_eq!(held.table.applied(WHOLE).unwrap().index, index);
        assert_eq!(held.table.partitions().len(), 3);
        assert_eq!(held.note.get().peers.len(), 3);
    }
}
