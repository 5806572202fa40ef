//! A writing process, killed with SIGKILL at any moment, on the machine's own disk: the test runs
//! itself as that process.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use forebay_engine::StoreError;
use forebay_engine::live::{Budget, Durability, LiveDraft, LiveError, LiveTable};
use forebay_io::sim::Rng;
use forebay_io::{Clock, SystemClock};
use forebay_run::Order;
use forebay_run::operation::DeltaKind;

use crate::common::name;
use crate::live::threads::store_in;

/// Set in the process to be killed: the path of its store.
const STORE: &str = "FOREBAY_TEST_KILL_STORE";
const KEYS: u64 = 500;

fn key(number: u64) -> Vec<u8> {
    format!("key:{}", number % KEYS).into_bytes()
}

fn open(store: &Path) -> LiveTable {
    // So little memory that flushes and merges run all the time.
    let open = || store_in(store).live_table(&name("t"), &Budget::new(0));
    for _ in 0..100 {
        match open() {
            Ok(table) => return table,
            // A process that another test starts now inherits this one's files until it runs its
            // program.
            Err(LiveError::Store(StoreError::InUse { .. })) => {
                SystemClock.sleep(Duration::from_millis(20));
            }
            Err(error) => panic!("{error}"),
        }
    }
    open().unwrap()
}

/// Appends rising numbers to keys in turn, and prints each acknowledged one.
fn write_until_killed(store: &Path) -> ! {
    let table = open(store);
    let mut out = std::io::stdout().lock();
    let first = next_number(&table);
    for number in first.. {
        let delta = [&number.to_le_bytes()[..], &[7; 100]].concat();
        table.delta(&key(number), &delta).unwrap().wait().unwrap();
        writeln!(out, "{number}").unwrap();
    }
    unreachable!("numbers do not end");
}

/// Checks that all numbers up to some number are in their keys and in order, and no others; returns
/// the next one.
fn next_number(table: &LiveTable) -> u64 {
    let mut counts = vec![0; KEYS as usize];
    let mut scan = table.entries();
    while scan.advance().unwrap() {
        let text = std::str::from_utf8(scan.key()).unwrap();
        let at: u64 = text.strip_prefix("key:").unwrap().parse().unwrap();
        for (turn, record) in scan.value().chunks(108).enumerate() {
            let number = u64::from_le_bytes(record[..8].try_into().unwrap());
            assert_eq!(number, turn as u64 * KEYS + at, "{text}");
            assert_eq!(record[8..], [7; 100], "{text}");
            counts[at as usize] += 1;
        }
    }
    let next: u64 = counts.iter().sum();
    for (at, count) in counts.into_iter().enumerate() {
        let expected = next / KEYS + u64::from((at as u64) < next % KEYS);
        assert_eq!(count, expected, "key {at}, with {next} numbers in all");
    }
    next
}

fn killed_again_and_again(test: &str, options: LiveDraft, rounds: u64, numbers: u64) {
    if let Some(store) = std::env::var_os(STORE) {
        write_until_killed(Path::new(&store));
    }
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store");
    drop(
        store_in(&store)
            .create_live(&name("t"), options, &Budget::new(0))
            .unwrap(),
    );
    let mut rng = Rng(rounds);
    let mut acknowledged = 0;
    for round in 0..rounds {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([test, "--exact", "--nocapture", "--test-threads=1"])
            .env(STORE, &store)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let until = acknowledged + 1 + rng.below(numbers);
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        for line in lines.map_while(Result::ok) {
            if let Ok(number) = line.parse::<u64>() {
                acknowledged = number + 1;
                if number >= until {
                    // SIGKILL.
                    child.kill().unwrap();
                }
            }
        }
        child.wait().unwrap();
        assert!(acknowledged > until, "round {round}: it ended by itself");
        let next = next_number(&open(&store));
        assert!(
            next >= acknowledged,
            "round {round}: {next} of {acknowledged}"
        );
        acknowledged = next;
    }
}

#[test]
fn nothing_acknowledged_is_lost_by_kills_when_synced() {
    let options = LiveDraft::hashed().delta(DeltaKind::Append);
    let test = "live::kill::nothing_acknowledged_is_lost_by_kills_when_synced";
    killed_again_and_again(test, options, 5, 1500);
}

#[test]
fn nothing_acknowledged_is_lost_by_kills_when_left_to_the_system() {
    let options = LiveDraft::ordered(vec![b"key:3".to_vec()]).delta(DeltaKind::Append);
    let options = options.factor(2).durability(Durability::Os);
    assert_eq!(options.options.order, Order::Ordered);
    let test = "live::kill::nothing_acknowledged_is_lost_by_kills_when_left_to_the_system";
    killed_again_and_again(test, options, 6, 12_000);
}
