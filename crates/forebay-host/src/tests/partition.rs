//! Tests of an engine partition as the state of a replica.

use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use forebay_engine::TableName;
use forebay_engine::live::{Batch, Budget, LiveDraft, LiveTable, PartitionContent, Replication};
use forebay_io::{Disk, OsDisk, replace_file};
use forebay_replica::{
    Committed, Content, GroupId, LogEntry, PeerId, Place, Proposal, RequestId, SnapshotFacts,
};
use forebay_run::RunWriter;
use forebay_run::operation::Operation;

use super::fakes::FakeLoads;
use crate::effects::{Answer, Effect};
use crate::environment::{GroupState, StateError};
use crate::partition_state::{CopyFetcher, PartitionState, StateParts};

const GROUP: GroupId = GroupId(1);

/// A fetcher that returns copies made before, by the numbers of their peers.
#[derive(Debug)]
struct PreparedCopies(Vec<PartitionContent>);

impl CopyFetcher for PreparedCopies {
    fn fetch_copy(&self, _: GroupId, from: PeerId, _: Place) -> Result<PartitionContent, String> {
        Ok(self.0[from.0 as usize].clone())
    }
}

fn table(dir: &tempfile::TempDir) -> LiveTable {
    let store = forebay_engine::open(dir.path()).unwrap();
    let draft = LiveDraft::hashed().partitions(1);
    let draft = draft.replicated(Replication::Leader);
    let name = TableName::new("t").unwrap();
    store
        .create_live(&name, draft, &Budget::new(4 << 20))
        .unwrap()
}

fn state(table: &LiveTable, copies: Vec<PartitionContent>) -> PartitionState {
    state_with(table, copies, Arc::default())
}

fn state_with(
    table: &LiveTable,
    copies: Vec<PartitionContent>,
    loads: Arc<FakeLoads>,
) -> PartitionState {
    let id = table.partitions()[0].id;
    let parts = StateParts {
        copy_fetcher: Arc::new(PreparedCopies(copies)),
        loads,
    };
    PartitionState::new(table.clone(), id, GROUP, parts)
}

/// Returns a copy whose files are among the other table's.
fn copied_to(source: &PartitionState, to: &LiveTable) -> PartitionContent {
    let copy = source.copy().unwrap();
    let mut content = copy.content().clone();
    for run in &mut content.runs {
        let new = to.new_run();
        let bytes = OsDisk::default().read(&copy.run_file(&run.id)).unwrap();
        replace_file(&OsDisk::default(), &new.path, &bytes).unwrap();
        run.id = new.id;
    }
    content
}

/// Returns an entry whose proposals set these keys.
fn entry(index: u64, keys: &[&str]) -> Committed {
    entry_of(index, keys.iter().map(|key| set(key)))
}

/// Returns a proposal that sets a key; nothing if it has no name.
fn set(key: &str) -> Effect {
    if key.is_empty() {
        return Effect::AdvanceTime;
    }
    let mut batch = Batch::new();
    batch.update(key.as_bytes(), b"set");
    Effect::Operations(batch)
}

fn entry_of(index: u64, proposals: impl IntoIterator<Item = Effect>) -> Committed {
    entry_with(index, proposals.into_iter().map(|effect| effect.encode()))
}

fn entry_with(index: u64, proposals: impl IntoIterator<Item = Bytes>) -> Committed {
    let place = Place { term: 1, index };
    let proposals = proposals.into_iter().map(|effect| Proposal {
        request: RequestId(0),
        effect,
    });
    let content = Content::Batch {
        stamp_ms: 10 * index,
        proposals: proposals.collect(),
    };
    Committed {
        entry: LogEntry { place, content },
        facts: SnapshotFacts {
            place,
            stamp_ms: 10 * index,
            ..SnapshotFacts::default()
        },
        is_awaited: true,
    }
}

#[test]
fn an_entry_that_waited_answers_all_of_its_proposals() {
    let dir = tempfile::tempdir().unwrap();
    let (table, loads) = (table(&dir), Arc::<FakeLoads>::default());
    let state = state_with(&table, Vec::new(), Arc::clone(&loads));
    let waiting = || entry_of(1, [set("a"), Effect::Load(1), set("c")]);
    let waits = state.apply(&waiting(), true);
    assert!(matches!(waits, Err(StateError::Later(_))), "{waits:?}");
    loads.put(1, loaded_run(&table, &[b"b"]));
    assert_eq!(
        state.apply(&waiting(), true).unwrap(),
        vec![Answer::Done; 3]
    );
    assert_eq!(
        state.apply(&entry(1, &["a"]), true).unwrap(),
        [],
        "the proposal was applied"
    );
    assert_eq!(
        state.apply(&entry(2, &["", "d"]), true).unwrap(),
        vec![Answer::Done; 2]
    );
    assert_eq!(table.get(b"d").unwrap(), Some(b"set".to_vec()));
}

#[test]
fn ranges_are_removed_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    let store = forebay_engine::open(dir.path()).unwrap();
    let draft = LiveDraft::ordered(Vec::new()).replicated(Replication::Leader);
    let name = TableName::new("t").unwrap();
    let table = store
        .create_live(&name, draft, &Budget::new(4 << 20))
        .unwrap();
    let state = state(&table, Vec::new());
    state.apply(&entry(1, &["a", "b", "c", "d"]), true).unwrap();
    let range = |start: &str, end: &str, is_counted| Effect::RemoveRange {
        start: Bound::Excluded(start.as_bytes().to_vec()),
        end: Bound::Included(end.as_bytes().to_vec()),
        is_counted,
    };
    let removal = entry_of(2, [range("a", "c", true), range("c", "d", false)]);
    assert_eq!(
        state.apply(&removal, true).unwrap(),
        [Answer::Count(2), Answer::Done]
    );
    let present = |key: &[u8]| table.get(key).unwrap().is_some();
    assert!(present(b"a") && !present(b"b") && !present(b"c") && !present(b"d"));
    state
        .apply(&entry_of(3, [Effect::RemoveAll]), true)
        .unwrap();
    assert!(!present(b"a"));
}

#[test]
fn keys_of_another_partition_are_refused_and_damaged_effects_end_the_replica() {
    let dir = tempfile::tempdir().unwrap();
    let store = forebay_engine::open(dir.path()).unwrap();
    let draft = LiveDraft::hashed().partitions(2);
    let draft = draft.replicated(Replication::Leader);
    let name = TableName::new("t").unwrap();
    let table = store
        .create_live(&name, draft, &Budget::new(4 << 20))
        .unwrap();
    let state = state(&table, Vec::new());
    let id = table.partitions()[0].id;
    let is_of_first = |key: &&str| table.partition_of(key.as_bytes()) == Some(id);
    let keys = ["a", "b", "c", "d", "e", "f", "g", "h"].into_iter();
    let (first, other): (Vec<&str>, Vec<&str>) = keys.partition(is_of_first);
    let mut both = Batch::new();
    both.update(first[0].as_bytes(), b"set");
    both.update(other[0].as_bytes(), b"set");
    let answers = state.apply(
        &entry_of(1, [Effect::Operations(both), set(first[0])]),
        true,
    );
    assert_eq!(answers.unwrap(), [Answer::OtherPartition, Answer::Done]);
    assert_eq!(table.get(other[0].as_bytes()).unwrap(), None);
    let newer = state.apply(&entry_with(2, [Bytes::from_static(b"\x7f")]), true);
    assert!(matches!(newer, Err(StateError::Later(_))), "{newer:?}");
}

#[test]
fn a_copy_made_within_an_entry_continues_within_it() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [from, to] = [0, 1].map(|at| table(&dirs[at]));
    let source = state(&from, Vec::new());
    source.apply(&entry(1, &["a"]), true).unwrap();
    let with_load = || entry_of(2, [set("b"), Effect::Load(1)]);
    source.apply(&with_load(), true).unwrap_err();
    let content = copied_to(&source, &to);
    assert_eq!(content.applied.as_ref().unwrap().done, 1);
    let target = state(&to, vec![content]);
    let at = Place { term: 1, index: 1 };
    let facts = target.fetch_copy(PeerId(0), at).unwrap();
    assert_eq!(facts.place, at);
    target.install(&facts).unwrap();
    target.install(&facts).unwrap();
    assert_eq!(to.get(b"b").unwrap(), Some(b"set".to_vec()));
    target.apply(&entry(2, &["b", "c"]), true).unwrap();
    assert_eq!(to.get(b"c").unwrap(), Some(b"set".to_vec()));
    assert_eq!(target.kept_through(), 1);
    target.keep().unwrap();
    assert_eq!(target.kept_through(), 2);
}

#[test]
fn a_copy_fetched_during_an_install_takes_no_file_from_it() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [from, to] = [0, 1].map(|at| table(&dirs[at]));
    let source = state(&from, Vec::new());
    source.apply(&entry(1, &["a"]), true).unwrap();
    let first = copied_to(&source, &to);
    source.apply(&entry(2, &["b"]), true).unwrap();
    let second = copied_to(&source, &to);
    let target = state(&to, vec![first, second]);
    let at = Place { term: 1, index: 1 };
    let facts = target.fetch_copy(PeerId(0), at).unwrap();
    target.fetch_copy(PeerId(1), at).unwrap();
    target.install(&facts).unwrap();
    let values = |key: &[u8]| to.get(key).unwrap().is_some();
    assert!(values(b"a") && !values(b"b"));
    let files = || {
        let runs = dirs[1].path().join("tables/t/runs");
        OsDisk::default().list(&runs).unwrap().len()
    };
    assert!(files() > 1);
    target.drop_copy();
    assert_eq!(files(), 1, "the files of the unused copy are removed");
    assert!(values(b"a"));
}

/// Returns a run that marks keys as loaded.
fn loaded_run(table: &LiveTable, keys: &[&[u8]]) -> forebay_engine::RunId {
    let new = table.new_run();
    let disk: Arc<dyn Disk> = Arc::new(OsDisk::default());
    let options = table.run_options(keys.len() as u64, 100);
    let mut writer = RunWriter::create(&disk, &new.path, options).unwrap();
    let mut hashed: Vec<_> = keys
        .iter()
        .map(|key| (table.hasher().hash64(key), *key))
        .collect();
    hashed.sort();
    for (hash, key) in hashed {
        writer.push(hash, key, Operation::Update(b"load")).unwrap();
    }
    writer.finish().unwrap();
    new.id
}

#[test]
fn a_load_waits_for_its_run_and_is_added_once_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let (table, loads) = (table(&dir), Arc::<FakeLoads>::default());
    let state = state_with(&table, Vec::new(), Arc::clone(&loads));
    let value = |key: &[u8]| table.get(key).unwrap().unwrap_or_default();
    state.apply(&entry(1, &["a", "b"]), true).unwrap();
    let load = entry_of(2, [Effect::Load(7), set("b")]);
    assert!(matches!(
        state.apply(&load, true),
        Err(StateError::Later(_))
    ));
    assert_eq!(value(b"a"), b"set");
    loads.put(7, loaded_run(&table, &[b"a", b"b"]));
    assert_eq!(state.apply(&load, true).unwrap(), vec![Answer::Done; 2]);
    assert_eq!(
        (value(b"a"), value(b"b")),
        (b"load".to_vec(), b"set".to_vec())
    );
    assert!(loads.0.lock().is_empty());
    // Another leader proposes it again, with a run on this node or without one.
    state.apply(&entry(3, &["a"]), true).unwrap();
    state.apply(&entry_of(4, [Effect::Load(7)]), true).unwrap();
    loads.put(7, loaded_run(&table, &[b"a"]));
    state.apply(&entry_of(5, [Effect::Load(7)]), true).unwrap();
    assert_eq!(value(b"a"), b"set");
    let damaged = state.apply(&entry_with(6, [Effect::Load(8).encode().slice(..5)]), true);
    assert!(matches!(damaged, Err(StateError::Never(_))), "{damaged:?}");
}

#[test]
fn an_effect_that_the_table_cannot_store_is_refused_by_every_replica() {
    let dir = tempfile::tempdir().unwrap();
    let table = table(&dir);
    let state = state(&table, Vec::new());
    let mut batch = Batch::new();
    batch.update(b"a", b"set");
    batch.delta(b"b", &[1; 8]);
    let effects = [Effect::Operations(batch), set("c")];
    let answers = state.apply(&entry_of(1, effects), true).unwrap();
    assert!(matches!(answers[0], Answer::Refused(_)), "{answers:?}");
    assert_eq!(answers[1], Answer::Done);
    assert_eq!(table.get(b"a").unwrap(), None, "all of it or nothing");
    assert_eq!(table.applied(table.partitions()[0].id).unwrap().index, 1);
}
