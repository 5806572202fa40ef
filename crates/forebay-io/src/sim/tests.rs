//! Tests the properties of the simulated disk that other tests rely on.

use std::collections::BTreeSet;

use super::*;

fn path() -> &'static Path {
    Path::new("/d/f")
}

fn disk() -> SimDisk {
    let disk = SimDisk::new();
    disk.create_dir_all(Path::new("/d")).unwrap();
    disk
}

/// Returns the contents that power cuts leave of the file.
fn outcomes(disk: &SimDisk) -> BTreeSet<Vec<u8>> {
    let cuts = (0..300).map(|seed| disk.after_power_cut(seed));
    cuts.map(|disk| disk.read(path()).unwrap()).collect()
}

/// Creates three durable sectors of ones, and after them three of twos, one write each.
fn half_synced() -> (SimDisk, Arc<dyn LogFile>) {
    let disk = disk();
    let file = disk.create_log(path()).unwrap();
    disk.sync_dir(Path::new("/d")).unwrap();
    file.write_all_at(&[1; 1536], 0).unwrap();
    file.sync().unwrap();
    for sector in 3..6 {
        file.write_all_at(&[2; 512], sector * 512).unwrap();
    }
    (disk, file)
}

#[test]
fn synced_bytes_survive_and_others_are_lost_torn_or_reordered() {
    let (disk, _file) = half_synced();
    let found = outcomes(&disk);
    assert!(found.iter().all(|bytes| bytes[..1536] == [1; 1536]));
    let has = |wanted: &dyn Fn(&[u8]) -> bool| found.iter().any(|bytes| wanted(bytes));
    assert!(has(&|bytes| bytes.len() == 1536), "all lost");
    assert!(has(&|bytes| bytes[1536..] == [2; 1536]), "all kept");
    assert!(has(&|bytes| bytes.len() % 512 != 0), "torn");
    assert!(has(&|bytes| bytes[1536..] == [0; 1536]), "zeros");
    let late_only = |bytes: &[u8]| bytes.len() == 3072 && bytes[1536] == 0 && bytes[2560] == 2;
    assert!(has(&late_only), "a later write without an earlier one");
    assert_eq!(disk.read(path()).unwrap().len(), 3072);
}

#[test]
fn a_failed_sync_is_not_repaired_by_another() {
    let (disk, file) = half_synced();
    disk.plan(0, Fault::Error);
    assert!(file.sync().is_err());
    file.write_all_at(&[3; 10], 3072).unwrap();
    file.sync().unwrap();
    let found = outcomes(&disk);
    assert!(found.iter().all(|bytes| bytes[3072..] == [3; 10]));
    assert!(found.iter().any(|bytes| bytes[1536..3072] == [0; 1536]));
    assert!(found.iter().any(|bytes| bytes[1536..3072] == [2; 1536]));
}

#[test]
fn a_write_that_fails_is_done_in_part() {
    for fault in [Fault::Error, Fault::Full, Fault::Dead] {
        let disk = disk();
        let file = disk.create_log(path()).unwrap();
        disk.plan(0, fault);
        assert!(file.write_all_at(&[1; 10], 0).is_err());
        assert_eq!(disk.after_kill().read(path()).unwrap(), [1; 5]);
        // Later writes do nothing, or all.
        let later = file.write_all_at(&[1; 10], 0);
        assert_eq!(later.is_ok(), fault == Fault::Error);
        let expected = if later.is_ok() { 10 } else { 5 };
        assert_eq!(disk.after_kill().read(path()).unwrap().len(), expected);
    }
}

#[test]
fn writes_succeed_again_once_there_is_space() {
    let disk = disk();
    let file = disk.create_log(path()).unwrap();
    disk.plan(0, Fault::Full);
    let error = file.write_all_at(&[1; 10], 0).unwrap_err();
    assert!(super::super::is_out_of_space(&error));
    assert!(disk.create(Path::new("/d/g")).is_err());
    disk.make_room();
    file.write_all_at(&[1; 10], 0).unwrap();
    disk.create(Path::new("/d/g")).unwrap();
}

#[test]
fn a_full_disk_accepts_writes_that_need_no_space() {
    let disk = disk();
    let file = disk.create_log(path()).unwrap();
    file.write_all_at(&[1; 10], 0).unwrap();
    drop(disk.lock(Path::new("/d/lock"), "me").unwrap());
    disk.fill_up();
    // The rest of a block, other names, a lock whose file exists.
    file.write_all_at(&[2; 4096], 0).unwrap();
    assert!(file.write_all_at(&[3], 4096).is_err());
    let other = Path::new("/d/other");
    disk.link(path(), other).unwrap();
    assert!(disk.link(path(), other).is_err(), "the name is taken");
    disk.remove(path()).unwrap();
    disk.rename(other, path()).unwrap();
    assert_eq!(disk.read(path()).unwrap(), [2; 4096]);
    disk.lock(Path::new("/d/lock"), "me").unwrap().unwrap();
    assert!(disk.lock(Path::new("/d/new"), "me").is_err());
}

#[test]
fn names_survive_in_the_order_of_their_changes() {
    let disk = disk();
    let names = ["/d/a", "/d/b", "/d/c"];
    for name in names {
        disk.create(Path::new(name)).unwrap();
    }
    let found: BTreeSet<Vec<PathBuf>> = (0..100)
        .map(|seed| disk.after_power_cut(seed).files())
        .collect();
    let expected: BTreeSet<Vec<PathBuf>> = (0..=3)
        .map(|count| names[..count].iter().map(PathBuf::from).collect())
        .collect();
    assert_eq!(found, expected);
    disk.sync_dir(Path::new("/d")).unwrap();
    assert_eq!(disk.after_power_cut(5).files().len(), 3);
}
