//! Merges hold their rate for records of any length, by a clock that only waiting moves.

use std::path::Path;
use std::sync::Arc;

use forebay_io::sim::{HandClock, SeededRandom, SimDisk};
use forebay_io::{Clock, Disk};

use super::{both_orders, name};
use crate::live::{Budget, Durability, LiveDraft, LiveTable};
use crate::tables::store::Store;

const RATE_BYTES: u64 = 1 << 20;

fn limited(mut draft: LiveDraft, clock: &Arc<HandClock>) -> (SimDisk, LiveTable) {
    let disk = SimDisk::new();
    // Merges run only on demand.
    draft = draft.durability(Durability::Os).factor(32);
    draft.options.merge_bytes_per_second = Some(RATE_BYTES);
    let random = Arc::new(SeededRandom::new(1));
    let (disk_too, clock) = (Arc::new(disk.clone()), Arc::clone(clock));
    let store = Store::open_or_create(disk_too, clock, random, Path::new("/s")).unwrap();
    let table = store.create_live(&name(), draft, &Budget::new(256 << 20));
    (disk, table.unwrap())
}

/// The length of all files of runs.
fn file_bytes(disk: &SimDisk) -> u64 {
    let files = disk.files().into_iter();
    let runs = files.filter(|path| path.to_string_lossy().contains("/runs/"));
    runs.map(|path| disk.read(&path).unwrap().len() as u64)
        .sum()
}

#[test]
fn merges_hold_their_rate_for_records_of_any_length() {
    for (value_bytes, records) in [(10, 120_000), (100, 30_000), (3000, 1500), (1 << 20, 9)] {
        for draft in both_orders() {
            let clock = Arc::new(HandClock::default());
            let (disk, table) = limited(draft, &clock);
            for number in 0..records {
                let value = vec![number as u8; value_bytes];
                let key = format!("key-{}", number * 7919 % records);
                let _ = table.update(key.as_bytes(), &value).unwrap();
                if number % (records / 3) == records / 4 {
                    table.flush().unwrap();
                }
            }
            table.flush().unwrap();
            let words = format!("records of {value_bytes} bytes");
            assert_eq!(table.stats().flushed_bytes, file_bytes(&disk), "{words}");
            let began = clock.monotonic();
            table.compact().unwrap();
            let took = (clock.monotonic() - began).as_secs_f64();
            let merged = table.stats().merged_bytes;
            assert_eq!(merged, file_bytes(&disk), "{words}");
            let wanted = merged as f64 / RATE_BYTES as f64;
            assert!(wanted > 1.5, "{words}: {merged} bytes");
            let off = (took - wanted).abs() / wanted;
            assert!(off < 0.1, "{words}: {merged} bytes in {took} s");
        }
    }
}
