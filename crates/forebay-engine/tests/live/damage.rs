//! Files with changed bytes: a read returns the right value or an error.

use std::path::PathBuf;

use forebay_engine::live::Durability;
use forebay_io::Disk;
use forebay_io::sim::Rng;
use forebay_run::Order;

use crate::live::history::{History, Map};
use crate::live::life::{Life, collect, keys, op, open_on, options};
use crate::live::{for_seeds, one_of};

/// Returns a table with runs, and a log of some later writes.
fn base(durability: Durability) -> Life {
    let mut life = Life::new(options(Order::Ordered, None, Some(durability)));
    let mut rng = Rng(3);
    for _ in 0..30 {
        life.write(op(&mut rng, None), false).unwrap();
    }
    life.flush().unwrap();
    for _ in 0..12 {
        life.write(op(&mut rng, None), true).unwrap();
    }
    life
}

fn files(life: &Life, ending: &str) -> Vec<PathBuf> {
    let files = life.disk.files().into_iter();
    files
        .filter(|path| path.to_string_lossy().ends_with(ending))
        .collect()
}

#[test]
fn every_flipped_byte_of_a_log_is_detected() {
    for durability in [Durability::Sync, Durability::Os] {
        let life = base(durability);
        let logs = files(&life, ".log");
        let [log] = &logs[..] else { panic!("{logs:?}") };
        let whole = life.history.now();
        // Synced bytes are known to have existed.
        let without_last = (durability == Durability::Os).then(|| {
            let disk = life.disk.after_kill();
            let length = disk.read(log).unwrap().len();
            disk.tamper(log, |bytes| bytes.truncate(length - 1));
            collect(open_on(&disk).unwrap().entries())
        });
        let (mut refused, mut cut) = (0, 0);
        for at in 0..life.disk.read(log).unwrap().len() {
            let disk = life.disk.after_kill();
            disk.tamper(log, |bytes| bytes[at] ^= 1 << (at % 8));
            let words = format!("{durability}: byte {at}");
            match open_on(&disk).map(|table| collect(table.entries())) {
                Ok(found) if Some(&found) == without_last.as_ref() => cut += 1,
                Ok(found) => {
                    let padding = life.disk.read(log).unwrap()[at] == 0 && at % 512 > 500;
                    assert!(found == *whole && padding, "{words}: not detected");
                }
                Err(error) => {
                    let text = error.to_string();
                    assert!(text.contains(&*log.to_string_lossy()), "{words}: {text}");
                    refused += 1;
                }
            }
        }
        assert!(
            refused > 200 && (cut > 12) == without_last.is_some(),
            "{durability}: {refused} refused, {cut} cut"
        );
    }
}

#[test]
fn every_flipped_byte_of_a_manifest_is_refused() {
    let life = base(Durability::Sync);
    let manifests: Vec<PathBuf> = life.disk.files().into_iter().collect();
    let is_manifest = |path: &&PathBuf| {
        let bytes = life.disk.read(path).unwrap();
        bytes
            .windows(18)
            .any(|window| window == b"\"forebay_live\": 1,")
            || path.ends_with("live")
    };
    let manifest = manifests
        .iter()
        .find(is_manifest)
        .unwrap_or_else(|| panic!("{manifests:?}"));
    for at in 0..life.disk.read(manifest).unwrap().len() {
        let disk = life.disk.after_kill();
        disk.tamper(manifest, |bytes| bytes[at] ^= 1 << (at % 8));
        let error = open_on(&disk)
            .expect_err(&format!("byte {at}: not detected"))
            .to_string();
        assert!(error.contains(&*manifest.to_string_lossy()), "{error}");
    }
}

/// Reads everything; each result must be right.
fn read_all(history: &History, disk: &forebay_io::sim::SimDisk, words: &str) -> bool {
    let Ok(table) = open_on(disk) else {
        return false;
    };
    let mut sound = true;
    for key in keys() {
        match table.get(&key) {
            Ok(value) => assert_eq!(value.as_ref(), history.now().get(&key), "{words}: {key:?}"),
            Err(_) => sound = false,
        }
    }
    let mut found = Map::new();
    let mut scan = table.entries();
    loop {
        match scan.advance() {
            Ok(true) => found.insert(scan.key().to_vec(), scan.value().to_vec()),
            Ok(false) => break,
            Err(_) => return false,
        };
    }
    assert!(found == *history.now(), "{words}");
    sound
}

#[test]
fn flipped_bits_of_runs_never_give_a_wrong_value() {
    let life = base(Durability::Sync);
    let runs = [files(&life, ".run"), files(&life, ".ext")].concat();
    assert!(runs.len() >= 3);
    assert!(read_all(&life.history, &life.disk.after_kill(), "before"));
    for_seeds(150, |seed| {
        let mut rng = Rng(seed);
        let file = &runs[rng.below(runs.len() as u64) as usize];
        let disk = life.disk.after_kill();
        let length = disk.read(file).unwrap().len() as u64;
        let (at, bit) = (
            rng.below(length) as usize,
            one_of(&mut rng, &[1, 2, 4, 8, 16, 32, 64, 128]),
        );
        disk.tamper(file, |bytes| bytes[at] ^= bit);
        let words = format!("{}, byte {at}, bits {bit}", file.display());
        read_all(&life.history, &disk, &words);
    });
}
