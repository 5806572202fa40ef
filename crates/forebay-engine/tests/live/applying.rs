//! Entries that are applied while other threads flush, copy and merge the table. After any end,
//! entries that were not in runs are applied again, and none twice.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use forebay_engine::PartitionId;
use forebay_engine::live::{Durability, Expiry, LiveTable, Replication};
use forebay_io::sim::{Rng, SimDisk};
use forebay_run::Order;
use forebay_run::operation::DeltaKind;

use crate::common::{name, store_on};
use crate::live::for_seeds;
use crate::live::history::Op;
use crate::live::life::{budget, collect, open_on, options};
use crate::live::replicas::{Command, LogEntry, Logs, apply_all, apply_next, expected};

const ENTRIES: u64 = 600;
const FIRST: PartitionId = PartitionId(0);

/// Returns entries with counters of the first partition, and sometimes a proposal that writes
/// nothing.
fn log(rng: &mut Rng) -> Vec<LogEntry> {
    let add = |rng: &mut Rng| {
        let key = format!("k1{}", rng.below(9)).into_bytes();
        (Op::Delta(key, 1i64.to_le_bytes().to_vec()), u64::MAX)
    };
    let command = |rng: &mut Rng| match rng.below(6) {
        0 => Command::Nothing,
        _ => Command::Batch((0..1 + rng.below(4)).map(|_| add(rng)).collect()),
    };
    let entry = |index| LogEntry {
        stamp_ms: 1_000 + index,
        commands: (0..rng.below(4)).map(|_| command(rng)).collect(),
    };
    (0..ENTRIES).map(entry).collect()
}

fn check(disk: &SimDisk, logs: &Logs, words: &str) {
    let table = open_on(disk).unwrap_or_else(|error| panic!("{words}: {error}"));
    apply_all(&table, logs);
    let wanted = expected(&table, logs).into_iter();
    let wanted: BTreeMap<_, _> = wanted.map(|(key, (value, _))| (key, value)).collect();
    assert!(collect(table.entries()) == wanted, "{words}");
}

fn disturb(table: &LiveTable, rng: &mut Rng) {
    match rng.below(3) {
        0 => table.flush().unwrap(),
        1 => drop(table.copy_of(FIRST).unwrap()),
        _ => table.compact().unwrap(),
    }
}

fn apply_among_others(seed: u64) {
    let rng = &mut Rng(seed);
    let draft = options(
        Order::Ordered,
        Some(DeltaKind::AddI64),
        Some(Durability::Os),
    );
    let draft = draft
        .expiry(Expiry::PerRecord)
        .replicated(Replication::Leader);
    let disk = SimDisk::new();
    let table = store_on(&disk, 7).create_live(&name("t"), draft, &budget());
    let table = table.unwrap();
    let logs: Logs = BTreeMap::from([(FIRST, log(rng))]);
    let applied = AtomicBool::new(false);
    let found = std::thread::scope(|scope| {
        scope.spawn(|| {
            while apply_next(&table, FIRST, &logs[&FIRST]).unwrap() {}
            applied.store(true, Ordering::Release);
        });
        let mut found = Vec::new();
        // Runs once even if all entries are applied before the first look.
        loop {
            disturb(&table, rng);
            found.push(disk.after_kill());
            if applied.load(Ordering::Acquire) {
                return found;
            }
        }
    });
    let some = found.len().div_ceil(8);
    for (number, disk) in found.iter().enumerate().step_by(some) {
        check(disk, &logs, &format!("seed {seed}, end {number}"));
    }
    check(
        &disk.after_kill(),
        &logs,
        &format!("seed {seed}, the last end"),
    );
}

#[test]
fn entries_flushed_while_others_are_applied_are_in_runs_once() {
    for_seeds(8, apply_among_others);
}
