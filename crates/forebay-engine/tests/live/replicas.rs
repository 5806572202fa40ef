//! Replicas of partitions. The same entries, applied to tables that are flushed, merged, killed and
//! opened at different times, result in the same state. The log of a replicated table is a list in
//! this test, which survives everything.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use forebay_engine::live::{
    AppliedPlace, Batch, Budget, DecidedEntry, Durability, Expiry, LiveDraft, LiveError, LiveTable,
    PartitionContent, PartitionCopy, Replication, Stored,
};
use forebay_engine::{PartitionId, Store};
use forebay_io::sim::{Fault, HandClock, Rng, SimDisk};
use forebay_io::{Disk, replace_file};
use forebay_run::Order;
use forebay_run::operation::{DeltaKind, Operation};
use forebay_run::scan::Direction;
use forebay_run::times::Times;

use crate::common::{name, random, root};
use crate::live::faults::{FAULTS, at_every_call};
use crate::live::history::{Op, add};
use crate::live::life::{KINDS, collect, keys, op, options};
use crate::live::{for_seeds, one_of};

const STEPS: u64 = 120;
const LIFETIME_MS: u64 = 50;

/// One command.
#[derive(Debug, Clone)]
pub enum Command {
    Nothing,
    /// Operations and their expiry times.
    Batch(Vec<(Op, u64)>),
    /// Reverses an existing value and keeps its expiry; sets it if there is none.
    Reverse(Vec<u8>, Vec<u8>),
    DeleteAll,
}

#[derive(Debug, Clone)]
pub struct LogEntry {
    pub stamp_ms: u64,
    pub commands: Vec<Command>,
}

/// The entries of each partition's group.
pub type Logs = BTreeMap<PartitionId, Vec<LogEntry>>;

/// Values and their expiry times.
type TimedValues = BTreeMap<Vec<u8>, (Vec<u8>, u64)>;

pub fn decided(log: &[LogEntry], index: u64) -> DecidedEntry {
    let entry = &log[index as usize - 1];
    DecidedEntry {
        place: AppliedPlace {
            term: 1 + index / 10,
            index,
            stamp_ms: entry.stamp_ms,
            members: Arc::from((index / 7).to_le_bytes()),
            done: 0,
            loaded: 0,
        },
        proposals: entry.commands.len() as u32,
    }
}

fn batch_of(ops: &[(Op, u64)]) -> Batch {
    let mut batch = Batch::new();
    for (op, until_ms) in ops {
        batch.push(op.key(), op.operation().with_times(Times::until(*until_ms)));
    }
    batch
}

fn reversed(found: Option<&Stored>, absent: &[u8]) -> (Vec<u8>, u64) {
    match found {
        Some(stored) => (
            stored.value.iter().rev().copied().collect(),
            stored.expires_ms,
        ),
        None => (absent.to_vec(), u64::MAX),
    }
}

/// Runs a command on a table, as a server without logs does.
fn run_command(table: &LiveTable, command: &Command) -> Result<(), LiveError> {
    match command {
        Command::Nothing => Ok(()),
        Command::Batch(ops) => table.write(&batch_of(ops))?.wait(),
        Command::Reverse(key, absent) => {
            let (commit, ()) = table.transact(&[key], |found| {
                let (value, until_ms) = reversed(found[0].as_ref(), absent);
                let mut batch = Batch::new();
                let times = Times::until(until_ms);
                batch.push(key, Operation::Update(&value).with_times(times));
                (batch, ())
            })?;
            commit.wait()
        }
        Command::DeleteAll => table.delete_all()?.wait(),
    }
}

/// Applies the next proposal of a partition, or the next entry without one. `false`: all are
/// applied.
pub fn apply_next(table: &LiveTable, id: PartitionId, log: &[LogEntry]) -> Result<bool, LiveError> {
    let applied = table.applied(id)?;
    let index = applied.index + 1;
    if index > log.len() as u64 {
        return Ok(false);
    }
    let entry = decided(log, index);
    if entry.proposals == 0 {
        table.pass(id, &entry)?;
        return Ok(true);
    }
    let write = table.entry(id, &entry, applied.done)?;
    let command = &log[index as usize - 1].commands[applied.done as usize];
    run_command(&write, command)?;
    write.finish()?;
    Ok(true)
}

pub fn apply_all(table: &LiveTable, logs: &Logs) {
    for (id, log) in logs {
        while apply_next(table, *id, log).unwrap() {}
    }
}

/// Returns the state after all entries are applied, by the partitions' times.
pub fn expected(table: &LiveTable, logs: &Logs) -> BTreeMap<Vec<u8>, (Vec<u8>, u64)> {
    let options = table.options();
    let mut all = TimedValues::new();
    for log in logs.values() {
        let mut state = TimedValues::new();
        for entry in log {
            for command in &entry.commands {
                command.apply(&mut state, entry.stamp_ms, options.delta, options.expiry);
            }
        }
        let now_ms = log.last().map_or(0, |entry| entry.stamp_ms);
        all.extend(
            state
                .into_iter()
                .filter(|(_, (_, until_ms))| now_ms < *until_ms),
        );
    }
    all
}

impl Command {
    fn apply(&self, state: &mut TimedValues, now_ms: u64, kind: Option<DeltaKind>, expiry: Expiry) {
        match self {
            Command::Nothing => {}
            Command::DeleteAll => state.clear(),
            Command::Reverse(key, absent) => {
                let alive = state.get(key).filter(|(_, until_ms)| now_ms < *until_ms);
                let found = alive
                    .cloned()
                    .map(|(value, expires_ms)| Stored { value, expires_ms });
                let (value, until_ms) = reversed(found.as_ref(), absent);
                state.insert(key.clone(), (value, lasts(until_ms, now_ms, expiry)));
            }
            Command::Batch(ops) => {
                for (op, until_ms) in ops {
                    let until_ms = lasts(*until_ms, now_ms, expiry);
                    apply_op(state, op, (now_ms, until_ms), kind);
                }
            }
        }
    }
}

fn lasts(until_ms: u64, now_ms: u64, expiry: Expiry) -> u64 {
    match expiry {
        Expiry::AfterMs(ms) if until_ms == u64::MAX => now_ms + ms,
        _ => until_ms,
    }
}

fn apply_op(
    state: &mut TimedValues,
    op: &Op,
    (now_ms, until_ms): (u64, u64),
    kind: Option<DeltaKind>,
) {
    let alive = state.get(op.key()).filter(|(_, until)| now_ms < *until);
    let value = match (op.clone(), alive) {
        (Op::Insert(..), Some(_)) => return,
        (Op::Delete(key), _) => {
            state.remove(&key);
            return;
        }
        (Op::Delta(_, delta), Some((value, _))) => add(kind.unwrap(), value, &delta),
        (Op::Insert(_, value) | Op::Update(_, value) | Op::Delta(_, value), _) => value,
    };
    state.insert(op.key().to_vec(), (value, until_ms));
}

/// No threads, so that a seed repeats the whole test.
fn by_hand() -> Arc<Budget> {
    Budget::by_hand(16 << 20)
}

/// A table on a machine whose clock shows any time.
struct Node {
    disk: SimDisk,
    clock: Arc<HandClock>,
    table: LiveTable,
}

fn store(disk: &SimDisk, clock: &Arc<HandClock>, seed: u64) -> Store {
    let (disk, clock) = (Arc::new(disk.clone()), Arc::clone(clock));
    Store::open_or_create(disk, clock, random(seed), root()).unwrap()
}

impl Node {
    fn new(draft: &LiveDraft, seed: u64) -> Self {
        let (disk, clock) = (SimDisk::new(), Arc::new(HandClock::of_dates(1_000_000)));
        let store = store(&disk, &clock, seed);
        let table = store.create_live(&name("t"), draft.clone(), &by_hand());
        let table = table.unwrap();
        Self { disk, clock, table }
    }

    fn open(disk: SimDisk, seed: u64) -> Self {
        let clock = Arc::new(HandClock::of_dates(5));
        let table = store(&disk, &clock, seed).live_table(&name("t"), &by_hand());
        let table = table.unwrap();
        Self { disk, clock, table }
    }

    /// Closes and reopens the table: entries that the runs did not have are applied again.
    fn restart(&mut self, rng: &mut Rng) {
        let disk = match rng.below(2) {
            0 => self.disk.after_kill(),
            _ => self.disk.after_power_cut(rng.next_u64()),
        };
        *self = Self::open(disk, rng.next_u64());
    }

    fn check(&self, expected: &TimedValues, words: &str) {
        let found = collect(self.table.entries());
        let wanted = expected
            .iter()
            .map(|(key, (value, _))| (key.clone(), value.clone()));
        assert!(found == wanted.collect(), "{words}");
        let backward = collect(self.table.snapshot().scan(Direction::Backward));
        assert!(found == backward, "{words}");
        for key in keys() {
            let until_ms = expected.get(&key).map(|(_, until_ms)| *until_ms);
            assert_eq!(
                self.table.expires_ms(&key).unwrap(),
                until_ms,
                "{words}: {key:?}"
            );
            assert_eq!(
                self.table.get(&key).unwrap().as_ref(),
                found.get(&key),
                "{words}"
            );
        }
    }
}

fn command(rng: &mut Rng, table: &LiveTable, id: PartitionId, now_ms: u64) -> Command {
    let kind = table.options().delta;
    let until_ms = |rng: &mut Rng| match rng.below(3) {
        0 => (now_ms + rng.below(60)).saturating_sub(5),
        _ => u64::MAX,
    };
    let is_here = |key: &[u8]| table.partition_of(key) == Some(id);
    match rng.below(12) {
        0 => Command::Nothing,
        1 if rng.below(4) == 0 => Command::DeleteAll,
        1..=3 => {
            let keys = keys();
            let key = one_of(
                rng,
                &keys.iter().filter(|key| is_here(key)).collect::<Vec<_>>(),
            );
            let absent = crate::live::life::value(rng, kind);
            Command::Reverse(key.clone(), absent)
        }
        _ => {
            let ops = (0..1 + rng.below(5)).map(|_| (op(rng, kind), until_ms(rng)));
            let ops = ops.collect::<Vec<_>>().into_iter();
            Command::Batch(ops.filter(|(op, _)| is_here(op.key())).collect())
        }
    }
}

fn entry(rng: &mut Rng, table: &LiveTable, id: PartitionId, log: &[LogEntry]) -> LogEntry {
    let before_ms = log.last().map_or(1_000, |entry| entry.stamp_ms);
    let stamp_ms = before_ms + one_of(rng, &[0, 0, 1, 3, 20, 70]);
    let commands = (0..rng.below(5))
        .map(|_| command(rng, table, id, stamp_ms))
        .collect();
    LogEntry { stamp_ms, commands }
}

fn draft(rng: &mut Rng) -> LiveDraft {
    let order = one_of(rng, &[Order::Hashed, Order::Ordered]);
    let draft = options(order, one_of(rng, &KINDS), Some(Durability::Sync));
    let expiry = one_of(rng, &[Expiry::PerRecord, Expiry::AfterMs(LIFETIME_MS)]);
    draft.expiry(expiry).replicated(Replication::Leader)
}

/// Writes a copy's files for another table.
pub fn fetch(
    copy: &PartitionCopy,
    from: &SimDisk,
    to: &LiveTable,
    on: &dyn Disk,
) -> io::Result<PartitionContent> {
    let mut content = copy.content().clone();
    for run in &mut content.runs {
        let new = to.new_run();
        let long = copy.long_values_file(&run.id);
        if from.exists(&long)? {
            replace_file(on, &new.path.with_extension("ext"), &from.read(&long)?)?;
        }
        replace_file(on, &new.path, &from.read(&copy.run_file(&run.id))?)?;
        run.id = new.id;
    }
    Ok(content)
}

/// Copies a partition to the other node, which keeps its own if that is further.
fn copy_over(rng: &mut Rng, nodes: &[Node; 2], id: PartitionId) {
    let way = one_of(rng, &[[0, 1], [1, 0]]);
    let [from, to] = way.map(|place| &nodes[place]);
    let copy = from.table.copy_of(id).unwrap();
    if rng.below(2) == 0 {
        from.table.compact().unwrap();
    }
    let content = fetch(&copy, &from.disk, &to.table, &to.disk).unwrap();
    let position = content.applied.as_ref().unwrap().position();
    let is_back = position < to.table.applied(id).unwrap().position();
    if rng.below(4) == 0 {
        to.table.release(id).unwrap();
        to.table.install(content).unwrap();
        return;
    }
    let installed = to.table.install(content);
    assert_eq!(installed.is_err(), is_back);
}

fn live_alike(seed: u64) {
    let rng = &mut Rng(seed);
    let draft = draft(rng);
    let mut nodes = [1, 2].map(|number| Node::new(&draft, seed + number));
    let ids: Vec<PartitionId> = draft.partitions.iter().map(|range| range.id).collect();
    let mut logs: Logs = ids.iter().map(|id| (*id, Vec::new())).collect();
    for step in 0..STEPS {
        let words = format!("seed {seed}, step {step}");
        let id = one_of(rng, &ids);
        let log = logs.get_mut(&id).unwrap();
        log.push(entry(rng, &nodes[0].table, id, log));
        let node = &mut nodes[rng.below(2) as usize];
        node.clock.set(rng.below(1 << 40));
        for _ in 0..rng.below(20) {
            let id = one_of(rng, &ids);
            apply_next(&node.table, id, &logs[&id]).unwrap();
        }
        match rng.below(8) {
            0 => node.table.flush().unwrap(),
            1 => node.table.compact().unwrap(),
            2 => node.restart(rng),
            3 => node.clock.advance(Duration::from_secs(rng.below(1000))),
            5 => copy_over(rng, &nodes, id),
            6 => drop(node.table.step().unwrap()),
            4 => {
                let expected = expected(&node.table, &logs);
                for node in &nodes {
                    apply_all(&node.table, &logs);
                    node.check(&expected, &words);
                }
                let at = |id: &PartitionId| nodes.each_ref().map(|node| node.table.applied(*id));
                for at in ids.iter().map(at) {
                    let [a, b] = at.map(Result::unwrap);
                    assert_eq!(a, b, "{words}");
                }
            }
            _ => {}
        }
    }
}

#[test]
fn the_same_entries_make_the_same_state() {
    for_seeds(24, live_alike);
}

/// If the fetch or installation of a copy fails at any call, the partition is the old or the new
/// one afterwards. No files of the other stay.
#[test]
fn a_copy_is_installed_or_changes_nothing() {
    let draft = LiveDraft::ordered(vec![b"k5".to_vec()]).delta(DeltaKind::Append);
    let draft = draft.factor(2).replicated(Replication::Leader);
    let (id, logs) = (PartitionId(0), deltas());
    let leader = Node::new(&draft, 7);
    apply_all(&leader.table, &logs);
    let expected = expected(&leader.table, &logs);
    let copy = leader.table.copy_of(id).unwrap();
    let further = copy.content().applied.clone().unwrap();
    let follower = Node::new(&draft, 8);
    for number in 0..9 {
        apply_next(&follower.table, id, &logs[&id]).unwrap();
        if number % 3 == 2 {
            follower.table.flush().unwrap();
        }
    }
    let base = follower.disk.after_kill();
    let install = |store: &Store| {
        let table = store.live_table(&name("t"), &by_hand());
        let table = table.map_err(|error| error.to_string())?;
        apply_next(&table, id, &logs[&id]).map_err(|error| error.to_string())?;
        let disk = &**store.disk();
        let content =
            fetch(&copy, &leader.disk, &table, disk).map_err(|error| error.to_string())?;
        table.install(content).map_err(|error| error.to_string())
    };
    at_every_call(&base, install, |store, done, words| {
        let table = store.live_table(&name("t"), &by_hand());
        let table = table.unwrap_or_else(|error| panic!("{words}: {error}"));
        let at = table.applied(id).unwrap();
        let is_new = at == further;
        assert!(is_new || !done, "{words}: the call had succeeded");
        assert!(is_new || at.position() < further.position(), "{words}");
        apply_all(&table, &logs);
        table.compact().unwrap();
        let names = store.disk().list(&root().join("tables/t/runs")).unwrap();
        let named = table.content(id).unwrap().runs.len();
        assert_eq!(names.len(), named, "{words}: {names:?}");
        let wanted = expected
            .iter()
            .map(|(key, (value, _))| (key.clone(), value.clone()));
        assert!(collect(table.entries()) == wanted.collect(), "{words}");
        assert!(table.verify(&mut |_| ()).unwrap().1.is_empty(), "{words}");
    });
}

/// Returns entries of several proposals, all of them deltas, so that a lost or repeated one is
/// detected.
fn deltas() -> Logs {
    let key = |number: u64| format!("k{number}").into_bytes();
    let delta = |number: u64| {
        let ops = (0..1 + number % 3).map(|more| {
            let value = format!("{number},").into_bytes();
            (Op::Delta(key((number + more) % 4), value), u64::MAX)
        });
        Command::Batch(ops.collect())
    };
    let log = (0..12u64).map(|index| LogEntry {
        stamp_ms: 1_000 + index,
        commands: (0..index % 4)
            .map(|number| delta(10 * index + number))
            .collect(),
    });
    BTreeMap::from([(PartitionId(0), log.collect())])
}

/// Applies all entries with flushes between them. Failures are noted and skipped.
fn apply_with_flushes(table: &LiveTable, logs: &Logs) {
    let (id, log) = logs.iter().next().unwrap();
    for number in 0.. {
        match apply_next(table, *id, log) {
            Ok(true) => {}
            Ok(false) => break,
            Err(error) if error.is_final() => return,
            Err(error) => panic!("{error}"),
        }
        if number % 4 == 1 {
            let _ = table.flush();
        }
        if number == 13 {
            let _ = table.compact();
        }
    }
    let _ = table.flush();
}

fn fail_at(nth: u64, fault: Fault) -> bool {
    let draft = LiveDraft::ordered(Vec::new())
        .delta(DeltaKind::Append)
        .factor(2);
    let draft = draft.replicated(Replication::Leader);
    let logs = deltas();
    let node = Node::new(&draft, 7);
    let expected = expected(&node.table, &logs);
    let before = node.disk.calls();
    node.disk.plan(nth, fault);
    apply_with_flushes(&node.table, &logs);
    let reached = node.disk.calls() - before > nth;
    let cuts = (0..3).map(|seed| node.disk.after_power_cut(seed));
    for (place, disk) in std::iter::once(node.disk.after_kill())
        .chain(cuts)
        .enumerate()
    {
        let words = format!("call {nth}, {fault:?}, outcome {place}");
        let found = Node::open(disk, 1_000 + nth);
        apply_all(&found.table, &logs);
        found.check(&expected, &words);
        found.table.compact().unwrap();
        let again = Node::open(found.disk.after_kill(), 2_000 + nth);
        let log = &logs[&PartitionId(0)];
        let at = again.table.applied(PartitionId(0)).unwrap();
        assert_eq!(at, decided(log, log.len() as u64).place, "{words}");
        again.check(&expected, &words);
    }
    reached
}

#[test]
fn a_crash_at_any_step_neither_loses_nor_doubles_a_delta() {
    for fault in FAULTS {
        let stride = if fault == Fault::Dead { 1 } else { 7 };
        let mut nth = 0;
        while fail_at(nth, fault) {
            nth += stride;
        }
        assert!(nth > 50, "{nth} calls");
    }
}
