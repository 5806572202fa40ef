//! Partitions that are cut by an entry of their log: what is there after a crash at any moment.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use forebay_engine::live::{Budget, Durability, LiveDraft, PartitionContent};
use forebay_engine::replica_log::EntryPlace;
use forebay_engine::{Bound, PartitionId, PartitionRange, Store};
use forebay_host::{
    Carrier, GroupState, PartitionState, StateError, StateParts, cut_place, place_of,
};
use forebay_io::sim::{Fault, HandClock, SeededRandom, SimDisk};
use forebay_replica::{
    Committed, Content, FOUNDED, GroupId, LogEntry, Membership, PeerId, Place, Proposal, RequestId,
    SnapshotFacts, SplitEntry, Start,
};

use super::super::halves::TableHalves;
use super::super::load_shelf::LoadShelf;
use super::super::note::NotedPeer;
use super::super::opening::{HeldTable, TableOpener};
use super::nodes::{GROUP, SetKey, table_name};

const WHOLE: PartitionId = PartitionId(0);
const RIGHT: PartitionId = PartitionId(1);
const RIGHT_GROUP: GroupId = GroupId(70);
/// The entry that cuts, behind those that write.
const CUT_AT: u64 = 22;

#[derive(Debug)]
struct NoCarrier;

impl Carrier for NoCarrier {
    fn bring(&self, _: GroupId, _: PeerId, _: Place) -> Result<PartitionContent, String> {
        Err("nobody is there".to_owned())
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
        log_kept_bytes: 64 << 20,
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
    let noted = NotedPeer {
        partition: WHOLE,
        group: GROUP,
        peer,
    };
    held.note.change(|note| note.with(noted)).unwrap();
    held
}

fn state(held: &HeldTable) -> PartitionState {
    let halves = TableHalves {
        log: Arc::clone(&held.engine_log),
        note: Arc::clone(&held.note),
    };
    let parts = StateParts {
        commands: Arc::new(SetKey(0)),
        carrier: Arc::new(NoCarrier),
        loads: Arc::<LoadShelf>::default(),
    };
    let state = PartitionState::new(held.table.clone(), WHOLE, GROUP, parts);
    state.cut_for(PeerId(1), Arc::new(halves))
}

fn key(index: u64) -> Vec<u8> {
    format!("k{index:02}").into_bytes()
}

fn split(peers: &[(u64, u64)]) -> SplitEntry {
    let peers = peers.iter();
    SplitEntry {
        at: cut_place(&Bound::Key(key(10))),
        partition: RIGHT.0,
        group: RIGHT_GROUP,
        planned_in: 9,
        peers: peers
            .map(|(left, new)| (PeerId(*left), PeerId(*new)))
            .collect(),
    }
}

/// Entry 2 sets the first key, and so on; one cuts, and the one behind it sets the first key again.
fn entry(index: u64) -> Committed {
    let set = |key: &[u8], value: &[u8]| Content::Batch {
        stamp_ms: 10 * index,
        proposals: vec![Proposal {
            request: RequestId(0),
            operations: Bytes::from([&[1, key.len() as u8], key, value].concat()),
        }],
    };
    let content = match index {
        CUT_AT => Content::Split(split(&[(1, 11), (2, 12), (3, 13)])),
        0..CUT_AT => set(&key(index - 2), b"value"),
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
            stamp_ms: 10 * index.min(CUT_AT - 1),
        },
        is_awaited: false,
    }
}

fn apply_all(held: &HeldTable, through: u64) -> Result<(), StateError> {
    let (state, applied) = (state(held), held.table.applied(WHOLE).unwrap());
    for index in applied.index + 1..=through {
        state.apply(&entry(index))?;
    }
    Ok(())
}

/// Both halves are there with all that they are to have, and the right one is a founder that has
/// promised nothing.
fn check_halves(held: &HeldTable, at: u64) {
    let ids: Vec<PartitionId> = held
        .table
        .partitions()
        .iter()
        .map(|range| range.id)
        .collect();
    assert_eq!(ids, [WHOLE, RIGHT], "death {at}");
    for index in 0..20 {
        let (key, last) = (key(index), held.table.applied(WHOLE).unwrap().index);
        let value: &[u8] = match (index, last > CUT_AT) {
            (0, true) => b"later",
            _ => b"value",
        };
        assert_eq!(held.table.get(&key).unwrap().as_deref(), Some(value));
        let half = if index < 10 { WHOLE } else { RIGHT };
        assert_eq!(held.table.partition_of(&key), Some(half));
    }
    let peers = held.note.get().peers;
    let right = NotedPeer {
        partition: RIGHT,
        group: RIGHT_GROUP,
        peer: PeerId(11),
    };
    assert!(peers.contains(&right), "death {at}: {peers:?}");
    assert!(held.note.get().is_ahead(right, 8) && !held.note.get().is_ahead(right, 9));
    let applied = held.table.applied(RIGHT).unwrap();
    assert_eq!((applied.term, applied.index), (1, 1));
    assert_eq!(applied.stamp_ms, 10 * (CUT_AT - 1), "time does not fall");
}

#[test]
fn a_crash_at_any_moment_of_a_cut_leaves_the_whole_or_both_halves() {
    let (mut whole, mut halves) = (0, 0);
    for at in 0.. {
        let disk = SimDisk::new();
        let held = founded(&disk);
        apply_all(&held, CUT_AT - 1).unwrap();
        let begun = disk.calls();
        disk.plan(at, Fault::Dead);
        let cut = apply_all(&held, CUT_AT);
        if disk.calls() - begun <= at {
            cut.unwrap();
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
                "death {at}: the half is not there"
            );
            assert!(!held.starts.contains_key(&RIGHT_GROUP));
        } else {
            halves += 1;
            let start = &held.starts[&RIGHT_GROUP];
            assert_eq!((start.applied.place, start.promise.vote), (FOUNDED, None));
            let founders = Membership::founders(&[11, 12, 13].map(PeerId));
            assert_eq!(*start.applied.membership, founders);
        }
        apply_all(&held, CUT_AT + 1).unwrap();
        check_halves(&held, at);
        held.close().unwrap();
        drop(held);
        let held = opener(&left).open(&table_name()).unwrap();
        check_halves(&held, at);
    }
    assert!(whole > 10 && halves > 0, "{whole} and {halves}");
}

#[test]
fn a_cut_waits_for_room() {
    let disk = SimDisk::new();
    let held = founded(&disk);
    apply_all(&held, CUT_AT - 1).unwrap();
    disk.fill_up();
    let waits = apply_all(&held, CUT_AT);
    assert!(matches!(waits, Err(StateError::Later(_))), "{waits:?}");
    assert_eq!(held.table.partitions().len(), 1);
    disk.make_room();
    apply_all(&held, CUT_AT + 1).unwrap();
    check_halves(&held, 0);
}

#[test]
fn a_cut_that_is_for_other_members_or_was_done_does_nothing() {
    let disk = SimDisk::new();
    let held = founded(&disk);
    apply_all(&held, CUT_AT - 1).unwrap();
    let state = state(&held);
    let others = [
        split(&[(1, 11), (2, 12)]),
        split(&[(1, 11), (2, 12), (4, 13)]),
    ];
    for (index, other) in (CUT_AT..).zip(others) {
        state
            .apply(&committed(index, Content::Split(other)))
            .unwrap();
        assert_eq!(held.table.applied(WHOLE).unwrap().index, index);
        assert_eq!(held.table.partitions().len(), 1);
        assert_eq!(held.note.get().peers.len(), 1);
    }
    let right = split(&[(1, 11), (2, 12), (3, 13)]);
    for index in [CUT_AT + 2, CUT_AT + 3] {
        let again = Content::Split(right.clone());
        state.apply(&committed(index, again)).unwrap();
        assert_eq!(held.table.applied(WHOLE).unwrap().index, index);
        assert_eq!(held.table.partitions().len(), 2);
        assert_eq!(held.note.get().peers.len(), 2);
    }
}
