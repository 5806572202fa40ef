use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use forebay_engine::{
    Bound, Holding, Manifest, ManifestDraft, OpenPartitions, Partition, PartitionId, PushOptions,
    RunRef, Store, Table, TableName, ValueKind,
};
use forebay_io::sim::{Fault, SeededRandom, SimDisk};
use forebay_io::{Disk, SystemClock};
use forebay_run::hash::{KeyHasher, SLOTS};
use forebay_run::operation::Operation;
use forebay_run::row::{Column, Kind, Schema};
use forebay_run::{Compression, Order, RunOptions, RunWriter};
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::runtime::Runtime;

use super::fetch_version::{Fetcher, Prepared};
use super::origin::RANGE_BYTES;
use super::origin::{DirectoryOrigin, Origin, Origins};
use super::{PullError, PullRate};
use crate::objects::start_runtime;

const PARTITIONS: usize = 4;
static NOT_STOPPED: AtomicBool = AtomicBool::new(false);

fn root() -> &'static Path {
    Path::new("/store")
}

fn name(table: &str) -> TableName {
    TableName::new(table).unwrap()
}

fn store_on(disk: &SimDisk, seed: u64) -> Store {
    let random = Arc::new(SeededRandom::new(seed));
    Store::open_or_create(
        Arc::new(disk.clone()),
        Arc::new(SystemClock),
        random,
        root(),
    )
    .unwrap()
}

/// Pushes a version of `rows` rows of this many bytes, and lets it serve.
fn push(store: &Store, table: &str, rows: usize, value_bytes: usize) -> u64 {
    let push = store
        .begin_push(&name(table), PushOptions::default())
        .unwrap();
    let prefix = name(table).wire_prefix();
    let hasher = KeyHasher::new(&prefix);
    let slot = |at: usize| (at * SLOTS as usize / PARTITIONS) as u16;
    let mut keys: Vec<(u64, String)> = (0..rows)
        .map(|row| format!("key-{row:05}"))
        .map(|key| (hasher.hash64(key.as_bytes()), key))
        .collect();
    keys.sort_unstable();
    let value = |key: &str| format!("{}:{key}", push.version()).repeat(value_bytes / 10 + 1);
    let mut partitions = Vec::new();
    for at in 0..PARTITIONS {
        let run = push.new_run(at);
        let options = RunOptions::new(Order::Hashed, Compression::None, &prefix);
        let mut writer = RunWriter::create(store.disk(), &run.path, options).unwrap();
        let end = if at + 1 < PARTITIONS {
            slot(at + 1)
        } else {
            u16::MAX
        };
        for (hash, key) in &keys {
            if (slot(at)..end).contains(&hasher.slot(key.as_bytes())) {
                let value = value(key);
                let operation = Operation::Update(value.as_bytes());
                writer.push(*hash, key.as_bytes(), operation).unwrap();
            }
        }
        let run = RunRef {
            id: run.id,
            summary: writer.finish().unwrap(),
            operations: None,
        };
        partitions.push((Bound::Slot(slot(at)), vec![run]));
    }
    let draft = ManifestDraft {
        order: Order::Hashed,
        value: ValueKind::Bytes {
            column: "v".to_owned(),
        },
        schema: Schema::new(vec![Column::new("v", Kind::Binary, false)]),
        key: "{k}".to_owned(),
        delta: None,
        ttl: None,
        onto: None,
        partitions: Partition::side_by_side(partitions),
        stats: Vec::new(),
        source: "a test".to_owned(),
    };
    let manifest = push.manifest(draft).unwrap();
    let version = push.commit(manifest).unwrap();
    store.table(&name(table)).unwrap().swap(version).unwrap();
    version
}

#[derive(Debug, Default)]
struct Ids(Mutex<BTreeSet<u32>>);

impl Ids {
    fn set(&self, ids: impl IntoIterator<Item = u32>) {
        *self.0.lock() = ids.into_iter().collect();
    }
}

impl Holding for Ids {
    fn held(&self, _: &Manifest) -> OpenPartitions {
        OpenPartitions::Only(self.0.lock().iter().copied().map(PartitionId).collect())
    }
}

/// The fault of an origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flaw {
    None,
    Refuses,
    Cuts,
    Damages,
    /// Dies after five whole ranges.
    Dies,
}

#[derive(Debug)]
struct Flawed {
    inner: DirectoryOrigin,
    name: &'static str,
    flaw: Flaw,
    asked: AtomicU64,
    /// The requests for whole ranges among those.
    whole: AtomicU64,
}

impl Flawed {
    fn new(name: &'static str, disk: &SimDisk, flaw: Flaw) -> Arc<Self> {
        Arc::new(Self {
            inner: DirectoryOrigin::new(Arc::new(disk.clone()), root().to_path_buf()),
            name,
            flaw,
            asked: AtomicU64::new(0),
            whole: AtomicU64::new(0),
        })
    }

    fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }
}

impl Origin for Flawed {
    fn name(&self) -> String {
        self.name.to_owned()
    }

    fn get(&self, name: &str) -> io::Result<Bytes> {
        self.inner.get(name)
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        self.inner.list(dir)
    }

    fn fetch<'a>(&'a self, name: &'a str, range: Range<u64>) -> BoxFuture<'a, io::Result<Bytes>> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let is_whole = u64::from(range.end - range.start == RANGE_BYTES);
        let before = self.whole.fetch_add(is_whole, Ordering::Relaxed);
        let dead = self.flaw == Flaw::Refuses || (self.flaw == Flaw::Dies && before >= 5);
        async move {
            if dead {
                return Err(io::Error::other("it is dead"));
            }
            let bytes = self.inner.fetch(name, range).await?;
            match self.flaw {
                Flaw::Cuts => Ok(bytes.slice(1..)),
                Flaw::Damages => {
                    let mut bytes = bytes.to_vec();
                    let middle = bytes.len() / 2;
                    bytes[middle] ^= 1;
                    Ok(bytes.into())
                }
                _ => Ok(bytes),
            }
        }
        .boxed()
    }
}

struct TestOrigin {
    disk: SimDisk,
    runtime: Arc<Runtime>,
}

impl TestOrigin {
    fn new() -> (Self, Store) {
        let disk = SimDisk::new();
        let store = store_on(&disk, 1);
        let runtime = start_runtime().unwrap();
        (Self { disk, runtime }, store)
    }

    fn origin(&self, flaw: Flaw) -> Arc<Flawed> {
        Flawed::new("the store", &self.disk, flaw)
    }

    fn origins(&self) -> Origins<'static> {
        Origins::of(self.origin(Flaw::None))
    }

    /// Creates a local store that has these partitions, with a fetcher of versions.
    fn here(&self, disk: &SimDisk, ids: &[u32]) -> (Fetcher, Arc<Ids>) {
        let held = Arc::new(Ids::default());
        held.set(ids.iter().copied());
        let store = store_on(disk, 2).holding(held.clone());
        let fetcher = Fetcher::with(Arc::clone(&self.runtime), store, PullRate::default());
        (fetcher, held)
    }
}

fn prepare(fetcher: &Fetcher, table: &str, version: u64, origins: &Origins<'_>) -> Prepared {
    let prepared = fetcher.prepare(&name(table), version, origins, &NOT_STOPPED);
    prepared.unwrap()
}

fn assert_sound(table: &Table, version: u64, runs: usize) {
    let report = table.verify(version, &mut |_| {}).unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    assert_eq!(report.runs, runs);
}

#[test]
fn held_partitions_are_fetched_and_verified_and_others_later() {
    let (there, store) = TestOrigin::new();
    push(&store, "t", 200, 100);
    let manifest = store.table(&name("t")).unwrap().manifest(1).unwrap();
    let bytes = |at: usize| manifest.partitions[at].runs[0].summary.file_bytes;
    let (fetcher, held) = there.here(&SimDisk::new(), &[1, 3]);
    let missing_bytes = || fetcher.missing_bytes(&manifest);
    assert_eq!(missing_bytes(), bytes(1) + bytes(3));
    let first = prepare(&fetcher, "t", 1, &there.origins());
    assert_eq!(
        (first.version(), first.came_bytes()),
        (1, bytes(1) + bytes(3))
    );
    let proof = &first.proof().partitions;
    let found: Vec<_> = proof
        .iter()
        .map(|part| (part.id.0, part.rows, part.content))
        .collect();
    let expected = |at: usize| {
        let totals = manifest.partitions[at].totals;
        (at as u32, totals.rows, totals.content)
    };
    assert_eq!(found, [expected(1), expected(3)]);
    assert_eq!(missing_bytes(), 0);
    let again = prepare(&fetcher, "t", 1, &there.origins());
    assert_eq!((again.came_bytes(), again.proof()), (0, first.proof()));
    held.set([0, 3]);
    assert_eq!(missing_bytes(), bytes(0));
    let wider = prepare(&fetcher, "t", 1, &there.origins());
    assert_eq!(wider.came_bytes(), bytes(0));
    assert_eq!(wider.proof().partitions[1], first.proof().partitions[1]);
    held.set([]);
    let nothing = prepare(&fetcher, "t", 1, &there.origins());
    assert!(nothing.proof().partitions.is_empty());
    let state = &fetcher.state().tables[&name("t")];
    assert_eq!((state.doing, state.done_bytes), (None, bytes(0)));
}

#[test]
fn peers_are_asked_first_and_faulty_ones_are_skipped() {
    use Flaw::{Cuts, Damages, None, Refuses};
    let (there, store) = TestOrigin::new();
    push(&store, "t", 200, 100);
    for flaws in [
        [None, None],
        [Refuses, None],
        [Cuts, None],
        [Damages, None],
        [Damages, Damages],
    ] {
        let [first, second] = flaws;
        let a = Flawed::new("a", &there.disk, first);
        let b = Flawed::new("b", &there.disk, second);
        let last = there.origin(None);
        let peers = |_: &forebay_engine::VersionFile| -> Vec<Arc<dyn Origin>> {
            vec![a.clone(), b.clone()]
        };
        let origins = Origins::of(last.clone()).after(&peers);
        let (fetcher, _) = there.here(&SimDisk::new(), &[0, 1, 2, 3]);
        let prepared = prepare(&fetcher, "t", 1, &origins);
        assert_eq!(prepared.proof().partitions.len(), PARTITIONS);
        assert_sound(&fetcher.local().table(&name("t")).unwrap(), 1, PARTITIONS);
        let asked = [a.asked(), b.asked(), last.asked()];
        let files = PARTITIONS as u64;
        let expected = match flaws {
            [None, None] => [files, 0, 0],
            // Each origin was asked for what the previous one did not send intact.
            [Damages, Damages] => [files; 3],
            _ => [files, files, 0],
        };
        assert_eq!(asked, expected, "{flaws:?}");
    }
    // If the store itself is damaged, the error says so, and nothing becomes a version.
    let (fetcher, _) = there.here(&SimDisk::new(), &[0]);
    let origins = Origins::of(there.origin(Damages));
    let failed = fetcher
        .prepare(&name("t"), 1, &origins, &NOT_STOPPED)
        .unwrap_err();
    assert!(
        matches!(failed, PullError::Unsound { version: 1, .. }),
        "{failed}"
    );
    assert!(fetcher.local().table(&name("t")).is_err());
    prepare(&fetcher, "t", 1, &there.origins());
}

#[test]
fn local_versions_are_prepared_while_the_store_is_unreachable() {
    let (there, store) = TestOrigin::new();
    for _ in 0..2 {
        push(&store, "t", 50, 10);
    }
    let (fetcher, held) = there.here(&SimDisk::new(), &[1]);
    let first = prepare(&fetcher, "t", 1, &there.origins());
    let nowhere = DirectoryOrigin::new(Arc::new(SimDisk::new()), root().to_path_buf());
    // The origin answers that there is no such version.
    let dropped = Origins::of(Arc::new(nowhere));
    let refused = fetcher
        .prepare(&name("t"), 1, &dropped, &NOT_STOPPED)
        .unwrap_err();
    assert!(matches!(refused, PullError::Request { .. }), "{refused}");
    let away = || Origins::of(Arc::new(UnreachableOrigin));
    let again = prepare(&fetcher, "t", 1, &away());
    assert_eq!(again.proof(), first.proof());
    let here = |version| fetcher.prepare_here(&name("t"), version).unwrap();
    assert_eq!(here(1).unwrap().proof(), first.proof());
    assert!(here(2).is_none());
    held.set([1, 2]);
    assert!(here(1).is_none());
    for version in [1, 2] {
        let refused = fetcher.prepare(&name("t"), version, &away(), &NOT_STOPPED);
        assert!(
            matches!(refused, Err(PullError::Request { .. })),
            "{refused:?}"
        );
    }
}

/// An origin that does not answer.
#[derive(Debug)]
struct UnreachableOrigin;

impl Origin for UnreachableOrigin {
    fn name(&self) -> String {
        "away".to_owned()
    }

    fn get(&self, _: &str) -> io::Result<Bytes> {
        Err(io::Error::other("no answer"))
    }

    fn list(&self, _: &str) -> io::Result<Vec<String>> {
        Err(io::Error::other("no answer"))
    }

    fn fetch<'a>(&'a self, _: &'a str, _: Range<u64>) -> BoxFuture<'a, io::Result<Bytes>> {
        async { Err(io::Error::other("no answer")) }.boxed()
    }
}

#[test]
fn a_file_is_continued_from_another_origin() {
    let (there, store) = TestOrigin::new();
    push(&store, "t", 1, 24 << 20);
    let here = SimDisk::new();
    let (fetcher, _) = there.here(&here, &[0, 1, 2, 3]);
    let manifest = store.table(&name("t")).unwrap().manifest(1).unwrap();
    let whole = fetcher.missing_bytes(&manifest);
    let dying = Origins::of(there.origin(Flaw::Dies));
    let failed = fetcher
        .prepare(&name("t"), 1, &dying, &NOT_STOPPED)
        .unwrap_err();
    assert!(failed.to_string().ends_with("it is dead"), "{failed}");
    let left = fetcher.missing_bytes(&manifest);
    assert!(left + RANGE_BYTES <= whole, "{left} of {whole}");
    // Also after the process died.
    let (fetcher, _) = there.here(&here.after_kill(), &[0, 1, 2, 3]);
    assert_eq!(fetcher.missing_bytes(&manifest), left);
    let other = there.origin(Flaw::None);
    prepare(&fetcher, "t", 1, &Origins::of(other.clone()));
    assert!(other.whole.load(Ordering::Relaxed) < whole / RANGE_BYTES);
    assert_sound(&fetcher.local().table(&name("t")).unwrap(), 1, PARTITIONS);
}

/// An origin that sends nothing before it is opened.
#[derive(Debug)]
struct Gate(Arc<Flawed>, tokio::sync::Semaphore);

impl Origin for Gate {
    fn name(&self) -> String {
        self.0.name()
    }

    fn get(&self, name: &str) -> io::Result<Bytes> {
        self.0.get(name)
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        self.0.list(dir)
    }

    fn fetch<'a>(&'a self, name: &'a str, range: Range<u64>) -> BoxFuture<'a, io::Result<Bytes>> {
        async move {
            let _open = self.1.acquire().await.map_err(io::Error::other)?;
            self.0.fetch(name, range).await
        }
        .boxed()
    }
}

#[test]
fn tables_are_prepared_side_by_side_and_pinned() {
    let (there, store) = TestOrigin::new();
    for table in ["t", "u"] {
        for _ in 0..3 {
            push(&store, table, 50, 10);
        }
    }
    let (fetcher, _) = there.here(&SimDisk::new(), &[0, 1, 2, 3]);
    let gate = Arc::new(Gate(
        there.origin(Flaw::None),
        tokio::sync::Semaphore::new(0),
    ));
    let gated = Origins::of(gate.clone());
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| prepare(&fetcher, "t", 3, &gated));
        // It is fetched although the other one waits.
        for version in [3, 2, 1] {
            prepare(&fetcher, "u", version, &there.origins());
        }
        gate.1.add_permits(1);
        slow.join().unwrap();
    });
    let u = fetcher.local().table(&name("u")).unwrap();
    u.swap(3).unwrap();
    let first = prepare(&fetcher, "u", 1, &there.origins());
    assert_eq!(u.retain(0).unwrap(), [2]);
    assert_sound(&u, 1, PARTITIONS);
    drop(first);
    assert_eq!(u.retain(0).unwrap(), [1]);
    let stop = AtomicBool::new(true);
    let stopped = fetcher.prepare(&name("u"), 1, &there.origins(), &stop);
    assert!(matches!(stopped, Err(PullError::Superseded)));
}

#[test]
fn a_fetch_succeeds_after_a_failure_at_any_local_call() {
    let (there, store) = TestOrigin::new();
    push(&store, "t", 60, 20);
    let origins = there.origins();
    let base = SimDisk::new();
    let (fetcher, held) = there.here(&base, &[0]);
    prepare(&fetcher, "t", 1, &origins);
    held.set([0, 1, 3]);
    let whole = base.after_kill();
    let (fetcher, _) = there.here(&whole, &[0, 1, 3]);
    let calls = whole.calls();
    prepare(&fetcher, "t", 1, &origins);
    let calls = whole.calls() - calls;
    for nth in 0..calls {
        for fault in [Fault::Error, Fault::Full, Fault::NoFiles, Fault::Dead] {
            let disk = base.after_kill();
            let (fetcher, _) = there.here(&disk, &[0, 1, 3]);
            disk.plan(nth, fault);
            let done = fetcher.prepare(&name("t"), 1, &origins, &NOT_STOPPED);
            for found in [
                disk.after_kill(),
                disk.after_power_cut(1),
                disk.after_power_cut(2),
            ] {
                let words = format!("call {nth} of {calls}, {fault:?}");
                let (fetcher, _) = there.here(&found, &[0, 1, 3]);
                let table = fetcher.local().table(&name("t")).unwrap();
                if let Ok(done) = &done {
                    let proof = table.proof(1).unwrap().unwrap();
                    assert_eq!(&proof, done.proof(), "{words}");
                    assert_sound(&table, 1, 3);
                }
                let again = prepare(&fetcher, "t", 1, &origins);
                assert_eq!(again.proof().partitions.len(), 3, "{words}");
                assert_sound(&table, 1, 3);
            }
        }
    }
}

#[test]
fn damaged_files_are_repaired_while_another_version_is_fetched() {
    let (there, store) = TestOrigin::new();
    push(&store, "t", 50, 10);
    push(&store, "t", 60, 10);
    let base = SimDisk::new();
    let (fetcher, _) = there.here(&base, &[0, 1, 2, 3]);
    prepare(&fetcher, "t", 1, &there.origins());
    let table = fetcher.local().table(&name("t")).unwrap();
    table.swap(1).unwrap();
    let gate = Arc::new(Gate(
        there.origin(Flaw::None),
        tokio::sync::Semaphore::new(0),
    ));
    let gated = Origins::of(gate.clone());
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| prepare(&fetcher, "t", 2, &gated));
        let is_coming = || {
            let state = fetcher.state();
            state.tables.get(&name("t")).and_then(|pull| pull.doing) == Some("pulling")
        };
        while !is_coming() && !slow.is_finished() {
            std::thread::yield_now();
        }
        let damaged = table.files_of(&table.manifest(1).unwrap());
        base.remove(&damaged[1].path).unwrap();
        let origins = there.origins();
        let repaired = fetcher.repair(&name("t"), false, &origins, &NOT_STOPPED);
        gate.1.add_permits(1);
        assert_eq!(repaired.unwrap(), 1);
        assert_sound(&table, 1, PARTITIONS);
        slow.join().unwrap();
    });
    assert_sound(&table, 2, PARTITIONS);
}

#[test]
fn disproved_files_are_read_again_and_fetched() {
    let (there, store) = TestOrigin::new();
    push(&store, "t", 50, 10);
    let base = SimDisk::new();
    let (fetcher, _) = there.here(&base, &[0, 1, 2, 3]);
    let prepared = prepare(&fetcher, "t", 1, &there.origins());
    let table = fetcher.local().table(&name("t")).unwrap();
    let file = table.files_of(&table.manifest(1).unwrap()).remove(0);
    let mut bytes = base.read(&file.path).unwrap();
    bytes[100] ^= 1;
    base.remove(&file.path).unwrap();
    let mut out = base.create(&file.path).unwrap();
    out.write_all(&bytes).unwrap();
    out.sync().unwrap();
    assert_eq!(prepare(&fetcher, "t", 1, &there.origins()).came_bytes(), 0);
    prepared.disprove().unwrap();
    prepare(&fetcher, "t", 1, &there.origins());
    assert_sound(&table, 1, PARTITIONS);
}
