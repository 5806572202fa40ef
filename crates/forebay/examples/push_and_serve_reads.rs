//! Pushes versions of a table while threads read it: a reader sees the old version or the new one,
//! never a mixture.
//!
//!     cargo run --example push_and_serve_reads -- STORE

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use forebay::{Error, Store};

const USERS: u32 = 1000;

/// Every user's score in a version is the version's number.
pub fn run(store: &Path) -> Result<(), Error> {
    let store = forebay::open_or_create(store)?;
    push(&store, 1)?;
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|_| scope.spawn(|| read_until(&store, &done)))
            .collect();
        let pushed = (2..=4).try_for_each(|version| push(&store, version));
        done.store(true, Relaxed);
        for reader in readers {
            let reads = reader.join().expect("a reader that does not panic")?;
            println!("a reader has looked {reads} keys up");
        }
        pushed
    })?;

    let mut scores = store.batch("scores")?;
    let back = scores.rollback()?;
    scores.refresh()?;
    assert_eq!(scores.version(), back.to);
    println!("rolled back to version {}", back.to);
    Ok(())
}

fn push(store: &Store, version: i64) -> Result<(), Error> {
    let scores = (0..USERS).map(move |user| (user.to_string(), version.to_string()));
    let report = store.push("scores").records(scores).run()?;
    println!(
        "version {} has {} rows",
        report.version, report.rows_between.1
    );
    Ok(())
}

fn read_until(store: &Store, done: &AtomicBool) -> Result<u64, Error> {
    let mut scores = store.batch("scores")?;
    let mut reads = 0;
    while !done.load(Relaxed) {
        // Everything read between two calls of refresh is of one version.
        scores.refresh()?;
        let first = scores.get("0")?.and_then(|value| value.into_text());
        let last = scores.get((USERS - 1).to_string())?;
        assert_eq!(first, last.and_then(|value| value.into_text()));
        reads += 2;
    }
    Ok(reads)
}

fn main() -> Result<(), Error> {
    let store = std::env::args().nth(1);
    run(Path::new(store.as_deref().unwrap_or("example-store")))
}
