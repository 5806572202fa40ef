//! Applies entries to a live table, and reads the results.

use forebay_engine::live::{Batch, DecidedEntry, LiveError, LiveTable, Stored};
use forebay_io::sim::SimDisk;
use forebay_run::operation::{CowOperation, Operation};
use forebay_run::scan::Direction;
use forebay_run::times::Times;

use super::model::{Answer, EXPIRING, Op, State};
use super::real::{FIRST, OpenStore, RealCopy, RealStore, StoreBug, of_table, place_of};
use super::store::Trouble;
use crate::events::Committed;

/// The number of keys that clients use from 0 on, and of keys that expire.
const KEYS: u8 = 6;
const EXPIRING_KEYS: u8 = 2;

impl RealStore {
    pub(super) fn apply_entry(&mut self, committed: &Committed) -> Result<Vec<Answer>, Trouble> {
        let bug = self.bug;
        let (disk, rng) = (self.disk.clone(), &mut self.rng);
        let open = self.open.as_mut();
        let open = open.ok_or_else(|| Trouble::Broken("the store is not open".to_owned()))?;
        let effects = committed.effects();
        let applied = open.table.applied(FIRST).map_err(of_table)?;
        let mut decided = DecidedEntry {
            place: place_of(&committed.facts),
            proposals: effects.len() as u32,
        };
        let mut done = applied.done;
        if bug == Some(StoreBug::PlacesApart) {
            decided.place.index = applied.index + 1;
            decided.place.term = decided.place.term.max(applied.term);
            done = done.min(decided.proposals.saturating_sub(1));
        } else if applied.index >= decided.place.index {
            return Ok(Vec::new());
        }
        if effects.is_empty() {
            let passed = open.table.pass(FIRST, &decided).map_err(of_table);
            return passed.map(|()| Vec::new());
        }
        let mut answers = Vec::new();
        for (number, (stamp_ms, bytes)) in (0..).zip(effects).skip(done as usize) {
            let answer = apply_one(&open.table, &decided, number, stamp_ms, bytes);
            answers.push(answer.map_err(of_table)?);
            if number + 1 < decided.proposals {
                midway(open, &disk, rng.below(4))?;
            }
        }
        Ok(answers)
    }
}

/// Flushes or makes a copy, as other threads may while an entry is applied.
fn midway(open: &mut OpenStore, disk: &SimDisk, draw: u64) -> Result<(), Trouble> {
    let done = match draw {
        0 => open.table.flush(),
        1 => open.table.copy_of(FIRST).map(|copy| {
            let disk = disk.clone();
            open.early = Some(RealCopy { copy, disk });
        }),
        _ => Ok(()),
    };
    match done.map_err(of_table) {
        Err(Trouble::NoRoom) => Ok(()),
        done => done,
    }
}

fn apply_one(
    table: &LiveTable,
    decided: &DecidedEntry,
    number: u32,
    stamp_ms: u64,
    operation: &[u8],
) -> Result<Answer, LiveError> {
    let handle = table.entry(FIRST, decided, number)?;
    let (key, op) = Op::decode(operation);
    let answer = run(&handle, &[key], op, stamp_ms)?;
    handle.finish()?;
    Ok(answer)
}

/// Uses blind writes if nothing depends on the current value.
fn run(table: &LiveTable, key: &[u8], op: Op, stamp_ms: u64) -> Result<Answer, LiveError> {
    let done = Ok(Answer::Done(true));
    match op {
        Op::Get => Ok(Answer::Value(table.get(key)?.map(|value| number(&value)))),
        Op::Set(value) => table.update(key, &value.to_le_bytes()).and(done),
        Op::Delete => table.delete(key).and(done),
        Op::Increase(delta) => table.delta(key, &delta.to_le_bytes()).and(done),
        Op::SetFor(value, ms) => {
            let (value, times) = (value.to_le_bytes(), Times::until(stamp_ms + ms));
            let mut batch = Batch::new();
            batch.push(key, Operation::Update(&value).with_times(times));
            table.write(&batch).and(done)
        }
        Op::Add(_) => {
            let decide = |held: Vec<Option<Stored>>| {
                let held = held.first().and_then(Option::as_ref);
                let (sum, answer) = op.apply(held.map(|stored| number(&stored.value)));
                let mut batch = Batch::new();
                batch.update(key, &sum.unwrap_or(0).to_le_bytes());
                (batch, answer)
            };
            Ok(table.transact(&[key], decide)?.1)
        }
        Op::SetIfAbsent(new) | Op::CompareAndSet(_, new) => {
            let decide = |value: Option<&[u8]>| {
                let (_, answer) = op.apply(value.map(number));
                let new = new.to_le_bytes().to_vec().into();
                let does = answer == Answer::Done(true);
                (does.then_some(CowOperation::Update(new)), answer)
            };
            Ok(table.modify(key, decide)?.1)
        }
    }
}

pub(super) fn number(bytes: &[u8]) -> i64 {
    bytes.try_into().map_or(i64::MIN, i64::from_le_bytes)
}

/// Returns the content of the clients' keys, and checks that a scan of all records finds the same.
pub(super) fn content(table: &LiveTable, walks: bool) -> Result<State, Trouble> {
    let keys = (0..KEYS).chain(EXPIRING..EXPIRING + EXPIRING_KEYS);
    let mut found = Vec::new();
    for key in keys {
        let value = table.get(&[key]).map_err(of_table)?;
        let expires_ms = table.expires_ms(&[key]).map_err(of_table)?;
        let expires_ms = expires_ms.filter(|at| *at < u64::MAX);
        found.extend(value.map(|value| (key, (number(&value), expires_ms))));
    }
    if walks {
        let mut walk = table.snapshot().scan(Direction::Forward);
        let mut walked = Vec::new();
        while walk.advance().map_err(of_table)? {
            walked.push((walk.key().to_vec(), number(walk.value())));
        }
        walked.sort();
        let got = found.iter().map(|(key, (value, _))| (vec![*key], *value));
        if !got.eq(walked.iter().cloned()) {
            let problem = format!("a scan finds {walked:?}, but reads find {found:?}");
            return Err(Trouble::Broken(problem));
        }
    }
    Ok(found.into_iter().collect())
}
