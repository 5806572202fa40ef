//! Reopening, files that are added and removed, memory limits, failures.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use forebay_io::sim::{Fault, HandClock, Rng, SeededRandom, SimDisk};
use forebay_io::{Clock, Disk};
use forebay_run::operation::DeltaKind;

use super::{Model, both_orders, check, create, create_on, name, open, store_on, write_some};
use crate::error::StoreError;
use crate::live::{Budget, LiveDraft, LiveError};
use crate::publishing::push::PushOptions;
use crate::tables::store::Store;

fn run_files(disk: &SimDisk) -> usize {
    let files = disk.files();
    files
        .iter()
        .filter(|path| path.to_string_lossy().contains("/runs/"))
        .count()
}

#[test]
fn a_table_opened_again_is_as_it_was() {
    for options in both_orders() {
        let (disk, table) = create(options.delta(DeltaKind::Append));
        let mut model = Model::new();
        let mut rng = Rng(5);
        let mut table = Some(table);
        for round in 0..6 {
            let open_table = table.take().unwrap();
            write_some(&open_table, &mut model, &mut rng, 400);
            if round % 3 == 1 {
                open_table.flush().unwrap();
                write_some(&open_table, &mut model, &mut rng, 100);
            }
            drop(open_table);
            let again = open(&disk).unwrap();
            check(&again, &model);
            table = Some(again);
        }
    }
}

#[test]
fn an_unlogged_table_keeps_flushed_records() {
    let (disk, table) = create(LiveDraft::hashed().unlogged());
    let mut model = Model::new();
    write_some(&table, &mut model, &mut Rng(5), 400);
    table.flush().unwrap();
    table.update(b"key-lost", b"v").unwrap().wait().unwrap();
    drop(table);
    check(&open(&disk).unwrap(), &model);
}

#[test]
fn a_log_of_writes_that_take_no_memory_has_a_bounded_length() {
    let disk = SimDisk::new();
    let table = create_on(&disk, LiveDraft::hashed(), &Budget::new(1 << 20));
    let most = 4 * 3 * (1 << 20) / 8;
    // The same key, again and again.
    while table.stats().flushed_bytes == 0 {
        let _ = table.update(b"k", &[1; 1000]).unwrap();
        assert!(table.stats().log_bytes < 64 * most, "{:?}", table.stats());
    }
    table.flush().unwrap();
    assert_eq!(table.get(b"k").unwrap().unwrap(), [1; 1000]);
}

#[test]
fn small_memory_makes_many_runs_which_are_merged_and_removed() {
    for options in both_orders() {
        let disk = SimDisk::new();
        let budget = Budget::new(1 << 20);
        let table = create_on(&disk, options.unlogged(), &budget);
        let value = vec![b'v'; 200];
        for round in 0..10u64 {
            for number in 0..8000 {
                let key = format!("key-{number}");
                table
                    .update(key.as_bytes(), &value)
                    .unwrap()
                    .wait()
                    .unwrap();
            }
            table
                .update(b"round", &round.to_be_bytes())
                .unwrap()
                .wait()
                .unwrap();
        }
        let stats = table.stats();
        assert!(stats.flushed_bytes > 4 << 20, "{stats:?}");
        // Indexes of runs are not kept from growing, but counted.
        assert!(budget.write_pressure() <= 1.05, "{budget:?}");
        table.compact().unwrap();
        let stats = table.stats();
        assert!(stats.merges > 0);
        assert_eq!(stats.run_records, 8001);
        let partitions = table.partitions().len();
        assert!(run_files(&disk) <= partitions, "{:?}", disk.files());
        assert_eq!(
            table.get(b"round").unwrap(),
            Some(9u64.to_be_bytes().to_vec())
        );
        drop(table);
        assert_eq!(budget.used_bytes(), 0);
    }
}

#[test]
fn files_that_no_manifest_names_are_removed_when_the_table_is_opened() {
    let (disk, table) = create(LiveDraft::hashed());
    table.update(b"k", b"v").unwrap().wait().unwrap();
    table.flush().unwrap();
    let stray = table.new_run();
    drop(table);
    let before = disk.files();
    let dir: &dyn forebay_io::Disk = &disk;
    dir.create(&stray.path).unwrap();
    let table = open(&disk).unwrap();
    assert!(!disk.files().contains(&stray.path));
    assert!(
        before
            .iter()
            .filter(|path| path.to_string_lossy().contains("/runs/"))
            .all(|path| disk.files().contains(path))
    );
    assert_eq!(table.get(b"k").unwrap().as_deref(), Some(&b"v"[..]));
}

#[test]
fn a_table_is_open_once_and_of_one_mode() {
    let (disk, table) = create(LiveDraft::hashed());
    let store = store_on(Arc::new(disk.clone()), 9);
    let budget = Budget::new(1 << 20);
    let in_use = store.live_table(&name(), &budget).unwrap_err();
    assert!(
        matches!(in_use, LiveError::Store(StoreError::InUse { .. })),
        "{in_use}"
    );
    assert!(matches!(
        store.drop_table(&name()),
        Err(StoreError::InUse { .. })
    ));
    drop(table);
    let exists = store
        .create_live(&name(), LiveDraft::hashed(), &budget)
        .unwrap_err();
    assert!(matches!(exists, LiveError::Exists { .. }), "{exists}");
    assert!(store.begin_push(&name(), PushOptions::default()).is_err());
    assert!(matches!(
        store.table(&name()),
        Err(StoreError::IsLive { .. })
    ));
    assert_eq!(store.live_tables().unwrap(), [name()]);
    store.drop_table(&name()).unwrap();
    assert!(store.live_tables().unwrap().is_empty());
    let gone = store.live_table(&name(), &budget).unwrap_err();
    assert!(matches!(gone, LiveError::NoTable { .. }), "{gone}");
    let again = store
        .create_live(&name(), LiveDraft::ordered(Vec::new()), &budget)
        .unwrap();
    assert_eq!(again.get(b"k").unwrap(), None);
}

#[test]
fn a_table_with_a_lost_manifest_is_not_created_again() {
    for draft in [LiveDraft::hashed(), LiveDraft::hashed().unlogged()] {
        let (disk, table) = create(draft.clone());
        table.update(b"k", b"v").unwrap().wait().unwrap();
        table.flush().unwrap();
        drop(table);
        let store = store_on(Arc::new(disk.clone()), 9);
        let manifest = Path::new("/s/tables/t/live");
        let kept = disk.read(manifest).unwrap();
        disk.remove(manifest).unwrap();
        let (before, budget) = (disk.files(), Budget::new(1 << 20));
        let refused = [
            store
                .create_live(&name(), draft.clone(), &budget)
                .unwrap_err()
                .to_string(),
            store
                .begin_push(&name(), PushOptions::default())
                .unwrap_err()
                .to_string(),
            store.next_version(&name(), None).unwrap_err().to_string(),
        ];
        for words in refused {
            assert!(
                words.contains("/s/tables/t/live") && words.contains("forebay drop t"),
                "{words}"
            );
        }
        let of_data = |files: Vec<PathBuf>| -> Vec<PathBuf> {
            files
                .into_iter()
                .filter(|path| !path.to_string_lossy().ends_with("lock"))
                .collect()
        };
        assert_eq!(of_data(disk.files()), of_data(before));
        forebay_io::replace_file(&disk, manifest, &kept).unwrap();
        assert_eq!(
            open(&disk).unwrap().get(b"k").unwrap().as_deref(),
            Some(&b"v"[..])
        );
        disk.remove(manifest).unwrap();
        store.drop_table(&name()).unwrap();
        assert_eq!(run_files(&disk), 0);
        store.create_live(&name(), draft, &budget).unwrap();
    }
}

#[test]
fn without_space_reads_continue_and_writes_resume_with_space() {
    let (disk, table) = create(LiveDraft::hashed().unlogged());
    table.update(b"k", b"1").unwrap().wait().unwrap();
    disk.plan(0, Fault::Full);
    let error = table.flush().unwrap_err();
    assert!(matches!(&error, LiveError::Full { .. }), "{error}");
    assert_eq!(table.get(b"k").unwrap().as_deref(), Some(&b"1"[..]));
    table.update(b"k", b"2").unwrap().wait().unwrap();
    assert!(table.stats().flush_problem.is_some());
    disk.make_room();
    table.flush().unwrap();
    assert_eq!(table.stats().flush_problem, None);
    assert_eq!(table.get(b"k").unwrap().as_deref(), Some(&b"2"[..]));
}

#[test]
fn after_a_device_error_writes_are_refused_and_reads_continue() {
    let (disk, table) = create(LiveDraft::hashed().unlogged());
    table.update(b"k", b"1").unwrap().wait().unwrap();
    // The first call of the flush creates the file; any later one is a write or a sync.
    disk.plan(2, Fault::Error);
    let error = table.flush().unwrap_err();
    assert!(error.is_final(), "{error}");
    let refused = table.update(b"k", b"2").map(|_| ()).unwrap_err();
    assert!(matches!(&refused, LiveError::Failed { .. }), "{refused}");
    assert_eq!(table.get(b"k").unwrap().as_deref(), Some(&b"1"[..]));
    assert!(table.stats().failed.is_some());
}

#[test]
#[cfg_attr(miri, ignore = "maps a real file")]
fn pages_beyond_the_limit_are_released_and_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let store = crate::tables::store::open(dir.path()).unwrap();
    let budget = Budget::with_mapped_limit(16 << 20, Some(0));
    let options = LiveDraft::hashed().unlogged();
    let table = store.create_live(&name(), options, &budget).unwrap();
    let mut model = Model::new();
    write_some(&table, &mut model, &mut Rng(5), 2000);
    table.compact().unwrap();
    check(&table, &model);
    let swept = || table.shared().counts.sweeps.load(Ordering::Relaxed);
    let before = swept();
    while swept() == before {
        std::thread::yield_now();
    }
    check(&table, &model);
}

#[test]
fn verifying_reads_every_run_and_reports_the_damaged_one() {
    let (disk, table) = create(LiveDraft::hashed().partitions(1));
    for number in 0..100u64 {
        table
            .update(&number.to_be_bytes(), b"v")
            .unwrap()
            .wait()
            .unwrap();
    }
    assert_eq!(table.verify(&mut |_| ()).unwrap().0, 0);
    table.flush().unwrap();
    let (runs, problems) = table.verify(&mut |_| ()).unwrap();
    assert!(runs == 1 && problems.is_empty(), "{problems:?}");
    let dir = table.shared().files.runs();
    let name = disk.list(&dir).unwrap().remove(0);
    disk.remove(&dir.join(&name)).unwrap();
    let (runs, problems) = table.verify(&mut |_| ()).unwrap();
    assert_eq!((runs, problems.len()), (1, 1));
    assert!(problems[0].to_string().contains(&name), "{problems:?}");
}

#[test]
fn a_table_without_space_makes_writes_to_others_fail_instead_of_wait() {
    let budget = Budget::new(1 << 20);
    let disks = [SimDisk::new(), SimDisk::new()];
    let [full, fine] =
        [0, 1].map(|at| create_on(&disks[at], LiveDraft::hashed().unlogged(), &budget));
    disks[0].plan(0, Fault::Full);
    let value = vec![b'v'; 40_000];
    let refused = (0u32..).find_map(|number| full.update(&number.to_be_bytes(), &value).err());
    assert!(
        matches!(refused, Some(LiveError::Full { .. })),
        "{refused:?}"
    );
    // All memory is held by the other table.
    let refused = (0u32..).find_map(|number| fine.update(&number.to_be_bytes(), &value).err());
    let refused = refused.unwrap();
    assert!(matches!(&refused, LiveError::Full { .. }), "{refused}");
    disks[0].make_room();
    full.flush().unwrap();
    fine.update(b"k", b"v").unwrap().wait().unwrap();
}

#[test]
fn a_merge_keeps_to_its_rate_at_any_record_size() {
    const RATE_BYTES: u64 = 1 << 20;
    for (count, value_bytes) in [(40_000_u32, 8), (1_000, 3_000)] {
        let clock = Arc::new(HandClock::default());
        let random = Arc::new(SeededRandom::new(1));
        let disk = Arc::new(SimDisk::new());
        let store = Store::open_or_create(disk, clock.clone(), random, Path::new("/s")).unwrap();
        let mut options = LiveDraft::hashed();
        options.options.merge_bytes_per_second = Some(RATE_BYTES);
        let budget = Budget::new(64 << 20);
        let table = store.create_live(&name(), options, &budget).unwrap();
        for run in 0..2 {
            for number in (run..count).step_by(2) {
                let value = vec![b'v'; value_bytes];
                let _unsynced = table.update(&number.to_be_bytes(), &value).unwrap();
            }
            table.flush().unwrap();
        }
        let start = clock.monotonic();
        table.compact().unwrap();
        let took = (clock.monotonic() - start).as_secs_f64();
        let due = table.stats().file_bytes as f64 / RATE_BYTES as f64;
        assert!(took > due - 0.3 && took < due + 0.3, "{took} s of {due} s");
    }
}
