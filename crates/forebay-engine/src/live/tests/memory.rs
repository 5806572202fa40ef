//! Resources of tables: memory within the budget, threads only while there is work.

use std::sync::Arc;
use std::time::Duration;

use forebay_io::sim::{Rng, SimDisk};
use forebay_io::{Clock, SystemClock};

use super::{Model, create, create_on, key, store_on, write_some};
use crate::live::partition::shared::LiveShared;
use crate::live::{Budget, Durability, LiveDraft, LiveTable};
use crate::name::TableName;

/// The memory of buffers and of sorted runs, of the generation that takes writes and of the others.
fn taken(shared: &LiveShared) -> usize {
    let parts = shared.parts.lock_all();
    let of_part = |part: &crate::live::partition::part::LivePart| {
        let minis = part.view.all_minis().map(|mini| mini.memory_bytes());
        part.memtable.memory_bytes() + minis.sum::<usize>()
    };
    parts.iter().map(|part| of_part(part)).sum()
}

fn counted(table: &LiveTable) -> usize {
    let stats = table.stats();
    stats.memtable_bytes + stats.frozen_bytes
}

#[test]
fn the_budget_counts_the_memory_of_buffers_and_runs() {
    let (_disk, table) = create(LiveDraft::hashed().partitions(3));
    let (mut model, mut rng) = (Model::new(), Rng(7));
    for round in 0..200 {
        write_some(&table, &mut model, &mut rng, 40);
        match round % 10 {
            3 => drop(table.snapshot()),
            6 => table
                .update(&key(round), &vec![1; 700_000])
                .unwrap()
                .wait()
                .unwrap(),
            9 => table.flush().unwrap(),
            _ => {}
        }
        assert_eq!(counted(&table), taken(table.shared()), "round {round}");
    }
    table.flush().unwrap();
    assert_eq!(counted(&table), 0);
}

#[test]
fn many_tables_together_keep_to_the_budget() {
    let (disk, budget) = (SimDisk::new(), Budget::new(4 << 20));
    let store = store_on(Arc::new(disk), 1);
    let tables: Vec<LiveTable> = (0..60)
        .map(|number| {
            let name = TableName::new(&format!("t{number}")).unwrap();
            let draft = LiveDraft::hashed().partitions(8).unlogged();
            store.create_live(&name, draft, &budget).unwrap()
        })
        .collect();
    let mut rng = Rng(3);
    for _ in 0..60_000 {
        let table = &tables[rng.below(60) as usize];
        let key = rng.next_u64().to_le_bytes();
        table.update(&key, &[0; 100]).unwrap().wait().unwrap();
        assert!(budget.write_pressure() <= 1.05, "{budget:?}");
    }
    let taken: usize = tables.iter().map(|table| taken(table.shared())).sum();
    assert!(taken <= budget.used_bytes(), "{taken}");
    drop(tables);
    assert_eq!(budget.used_bytes(), 0);
}

#[test]
fn threads_end_without_work_and_start_again() {
    let disk = SimDisk::new();
    let draft = LiveDraft::hashed().durability(Durability::EveryMs(1));
    let table = create_on(&disk, draft, &Budget::new(64 << 20));
    let runs = || table.shared().progress.lock().running.contains(&true);
    assert!(!runs());
    for _ in 0..2 {
        table.update(b"a", b"1").unwrap().wait().unwrap();
        // Done by the thread, which runs from now on.
        table.flush().unwrap();
        let clock = SystemClock;
        let begun = clock.monotonic();
        while runs() && clock.monotonic() - begun < Duration::from_secs(60) {
            clock.sleep(Duration::from_millis(50));
        }
        assert!(!runs());
    }
}
