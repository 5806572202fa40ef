//! Counts in a live table: deltas from several threads, a batch, a transaction, a snapshot.
//!
//!     cargo run --example counters -- STORE

use std::path::Path;
use std::thread;

use forebay::{DeltaKind, Durability, Error, LiveOptions};

/// Counts clicks on pages.
pub fn run(store: &Path) -> Result<(), Error> {
    let store = forebay::open_or_create(store)?;
    let options = LiveOptions::ordered()
        .delta(DeltaKind::AddI64)
        .durability(Durability::EveryMs(100));
    let clicks = store.live_or_create("clicks", options)?;

    // A delta reads nothing, and does not wait for another delta.
    thread::scope(|scope| {
        let count = || (0..100).try_for_each(|n| clicks.delta(format!("page-{}", n % 3), 1));
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(count)).collect();
        let mut threads = threads.into_iter();
        threads.try_for_each(|thread| thread.join().expect("a thread that does not panic"))
    })?;
    for record in clicks.prefix("page-")? {
        let (key, value) = record?;
        let count = value.as_i64().unwrap_or(0);
        println!("{}: {count}", String::from_utf8_lossy(&key));
    }

    // The counts so far, whatever is written later.
    let before = clicks.snapshot();
    let mut batch = clicks.batch();
    batch
        .delta("page-0", 1)?
        .delta("total", 401)?
        .delete("page-2");
    batch.commit()?;
    assert!(before.get("page-2")?.is_some() && clicks.get("page-2")?.is_none());

    // Subtracts up to 50, and returns how much.
    let taken = clicks.transact(&["page-1"], |values, batch| {
        let there = values[0].as_ref().and_then(|value| value.as_i64());
        let taken = there.unwrap_or(0).min(50);
        batch.delta("page-1", -taken)?;
        Ok(taken)
    })?;
    println!("{taken} taken off");
    Ok(())
}

fn main() -> Result<(), Error> {
    let store = std::env::args().nth(1);
    run(Path::new(store.as_deref().unwrap_or("example-store")))
}
