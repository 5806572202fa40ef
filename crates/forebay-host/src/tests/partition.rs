//! Tests of an engine partition as the state of a replica.

use std::sync::Arc;

use bytes::Bytes;
use forebay_engine::TableName;
use forebay_engine::live::{Budget, LiveDraft, LiveTable, PartitionContent, Replication};
use forebay_io::{Disk, OsDisk, replace_file};
use forebay_replica::{
    Committed, Content, GroupId, LogEntry, PeerId, Place, Proposal, RequestId, SnapshotFacts,
};
use forebay_run::RunWriter;
use forebay_run::operation::Operation;
use parking_lot::Mutex;

use super::fakes::FakeLoads;
use crate::environment::{GroupState, StateError};
use crate::loads::load_proposal;
use crate::partition_state::{Commands, CopyFetcher, PartitionState, StateParts};

const GROUP: GroupId = GroupId(1);

/// Writes the operations as a key's value; refuses once if the test asks for it.
#[derive(Debug, Default)]
struct SetOnce {
    refuses: Mutex<Option<Bytes>>,
}

impl Commands for SetOnce {
    fn run(&self, table: &LiveTable, _: u64, operations: &[u8]) -> Result<Bytes, StateError> {
        if self
            .refuses
            .lock()
            .take_if(|refused| *refused == operations)
            .is_some()
        {
            return Err(StateError::Later("no space left".to_owned()));
        }
        table.update(operations, b"set").unwrap().wait().unwrap();
        Ok(Bytes::copy_from_slice(operations))
    }
}

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

fn state(
    table: &LiveTable,
    commands: Arc<SetOnce>,
    copies: Vec<PartitionContent>,
) -> PartitionState {
    state_with(table, commands, copies, Arc::default())
}

fn state_with(
    table: &LiveTable,
    commands: Arc<SetOnce>,
    copies: Vec<PartitionContent>,
    loads: Arc<FakeLoads>,
) -> PartitionState {
    let id = table.partitions()[0].id;
    let parts = StateParts {
        commands,
        copy_fetcher: Arc::new(PreparedCopies(copies)),
        loads,
    };
    PartitionState::new(table.clone(), id, GROUP, parts)
}

/// Returns a copy whose files are among the other table's.
fn carried(source: &PartitionState, to: &LiveTable) -> PartitionContent {
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

fn entry(index: u64, keys: &[&'static str]) -> Committed {
    let keys = keys.iter();
    entry_of(index, keys.map(|key| Bytes::from_static(key.as_bytes())))
}

fn entry_of(index: u64, proposals: impl IntoIterator<Item = Bytes>) -> Committed {
    let place = Place { term: 1, index };
    let proposals = proposals.into_iter().map(|operations| Proposal {
        request: RequestId(0),
        operations,
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
fn an_entry_that_waited_for_room_answers_all_of_its_proposals() {
    let dir = tempfile::tempdir().unwrap();
    let (table, commands) = (table(&dir), Arc::new(SetOnce::default()));
    let state = state(&table, Arc::clone(&commands), Vec::new());
    *commands.refuses.lock() = Some(Bytes::from_static(b"b"));
    let waits = state.apply(&entry(1, &["a", "b", "c"]));
    assert_eq!(waits, Err(StateError::Later("no space left".to_owned())));
    let answers = state.apply(&entry(1, &["a", "b", "c"])).unwrap();
    assert_eq!(answers, ["a", "b", "c"]);
    assert_eq!(
        state.apply(&entry(1, &["a"])).unwrap(),
        [""; 0],
        "it is done"
    );
    assert_eq!(state.apply(&entry(2, &["", "d"])).unwrap(), ["", "d"]);
    assert_eq!(table.get(b"d").unwrap(), Some(b"set".to_vec()));
}

#[test]
fn a_copy_that_was_made_within_an_entry_goes_on_there() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [from, to] = [0, 1].map(|at| table(&dirs[at]));
    let commands = Arc::new(SetOnce::default());
    let source = state(&from, Arc::clone(&commands), Vec::new());
    source.apply(&entry(1, &["a"])).unwrap();
    *commands.refuses.lock() = Some(Bytes::from_static(b"c"));
    source.apply(&entry(2, &["b", "c"])).unwrap_err();
    let content = carried(&source, &to);
    assert_eq!(content.applied.as_ref().unwrap().done, 1);
    let target = state(&to, commands, vec![content]);
    let at = Place { term: 1, index: 1 };
    let facts = target.fetch_copy(PeerId(0), at).unwrap();
    assert_eq!(facts.place, at);
    target.install(&facts).unwrap();
    target.install(&facts).unwrap();
    assert_eq!(to.get(b"b").unwrap(), Some(b"set".to_vec()));
    target.apply(&entry(2, &["b", "c"])).unwrap();
    assert_eq!(to.get(b"c").unwrap(), Some(b"set".to_vec()));
    assert_eq!(target.kept_through(), 1);
    target.keep().unwrap();
    assert_eq!(target.kept_through(), 2);
}

#[test]
fn a_copy_that_comes_while_another_is_put_in_place_takes_nothing_from_it() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [from, to] = [0, 1].map(|at| table(&dirs[at]));
    let commands = Arc::new(SetOnce::default());
    let source = state(&from, Arc::clone(&commands), Vec::new());
    source.apply(&entry(1, &["a"])).unwrap();
    let first = carried(&source, &to);
    source.apply(&entry(2, &["b"])).unwrap();
    let second = carried(&source, &to);
    let target = state(&to, commands, vec![first, second]);
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
    assert_eq!(files(), 1, "those of the copy of no use are gone");
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
fn a_load_waits_for_its_run_and_is_added_once_between_what_is_around_it() {
    let dir = tempfile::tempdir().unwrap();
    let (table, loads) = (table(&dir), Arc::<FakeLoads>::default());
    let state = state_with(&table, Arc::default(), Vec::new(), Arc::clone(&loads));
    let value = |key: &[u8]| table.get(key).unwrap().unwrap_or_default();
    state.apply(&entry(1, &["a", "b"])).unwrap();
    let load = entry_of(2, [load_proposal(7), Bytes::from_static(b"b")]);
    assert!(matches!(state.apply(&load), Err(StateError::Later(_))));
    assert_eq!(value(b"a"), b"set");
    loads.put(7, loaded_run(&table, &[b"a", b"b"]));
    assert_eq!(state.apply(&load).unwrap(), ["", "b"]);
    assert_eq!(
        (value(b"a"), value(b"b")),
        (b"load".to_vec(), b"set".to_vec())
    );
    assert!(loads.0.lock().is_empty());
    // Another leader proposes it again, with a run on this node or without one.
    state.apply(&entry(3, &["a"])).unwrap();
    state.apply(&entry_of(4, [load_proposal(7)])).unwrap();
    loads.put(7, loaded_run(&table, &[b"a"]));
    state.apply(&entry_of(5, [load_proposal(7)])).unwrap();
    assert_eq!(value(b"a"), b"set");
    let damaged = state.apply(&entry_of(6, [load_proposal(8).slice(..5)]));
    assert!(matches!(damaged, Err(StateError::Never(_))), "{damaged:?}");
}
