//! The counters of reads and writes of each partition.

use super::{create, key};
use crate::live::{Batch, LiveDraft, LiveTable, PartitionTraffic};

fn sum(table: &LiveTable) -> PartitionTraffic {
    let mut sum = PartitionTraffic::default();
    for (_, one) in table.traffic() {
        sum.reads += one.reads;
        sum.writes += one.writes;
        sum.read_bytes += one.read_bytes;
        sum.written_bytes += one.written_bytes;
    }
    sum
}

#[test]
fn every_key_that_is_read_or_written_counts_in_its_partition() {
    let (_, table) = create(LiveDraft::ordered(vec![b"m".to_vec()]));
    table.update(b"a", &[7; 100]).unwrap().wait().unwrap();
    let mut batch = Batch::new();
    batch.update(b"x", &[7; 50]);
    batch.delete(b"y");
    table.write(&batch).unwrap().wait().unwrap();
    for _ in 0..640 {
        table.try_get(b"a").unwrap();
    }
    table.get_many(&[b"x", b"y", b"a"]).unwrap();
    let [(_, low), (_, high)] = table.traffic()[..] else {
        panic!("two partitions");
    };
    assert_eq!((low.reads, low.writes), (641, 1));
    assert_eq!((low.read_bytes, low.written_bytes), (64_000, 101));
    assert_eq!((high.reads, high.writes), (2, 2));
    assert!((52..80).contains(&high.written_bytes), "{high:?}");
}

#[test]
fn transactions_count_as_writes() {
    let (_, table) = create(LiveDraft::hashed());
    for number in 0..100 {
        let key = key(number);
        let decide = |_: Vec<Option<_>>| {
            let mut batch = Batch::new();
            batch.update(&key, b"v");
            (batch, ())
        };
        let (commit, ()) = table.transact(&[&key], decide).unwrap();
        commit.wait().unwrap();
    }
    let all = sum(&table);
    assert_eq!((all.reads, all.writes), (0, 100));
}
