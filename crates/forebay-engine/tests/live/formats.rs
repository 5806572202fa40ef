//! Tables of an earlier program: this one opens them, and they keep working.
//!
//! `images/live-format-2` was made by the last program that wrote live manifests of format 2:
//!
//! ```text
//! counts  hashed, two partitions, adds i64: 20 keys in runs, of 10 of them one delta more in the log
//! notes   ordered, two partitions, appends: runs, an ingested one, and ranges of keys deleted in
//!         both; deltas and a deleted range in the log
//! part    ordered, three partitions, the middle one of which was given up
//! ```

use std::path::Path;

use forebay_engine::live::{Durability, LiveError, LiveTable, PartitionContent};
use forebay_engine::{PartitionId, PartitionRange, Store, seal, unseal};
use forebay_io::sim::SimDisk;
use forebay_io::{Disk, OsDisk, replace_file};
use forebay_run::Order;
use serde_json::Value;

use crate::common::{name, root, store_on};
use crate::live::faults::at_every_call;
use crate::live::history::Map;
use crate::live::life::{Life, budget, collect, options};

const TABLES: [&str; 3] = ["counts", "notes", "part"];

/// The image on a disk of its own.
fn image() -> SimDisk {
    let disk = SimDisk::new();
    let from = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/images/live-format-2");
    copy(&disk, Path::new(from), root());
    disk
}

fn copy(to: &SimDisk, from: &Path, target: &Path) {
    let source = OsDisk::default();
    let Ok(names) = source.list(from) else {
        return replace_file(to, target, &source.read(from).unwrap()).unwrap();
    };
    to.create_dir_all(target).unwrap();
    for name in names {
        copy(to, &from.join(&name), &target.join(&name));
    }
    // After a power cut, a log exists only if its directory is durable in the directory above.
    to.sync_dir(target).unwrap();
    to.sync_dir(target.parent().unwrap()).unwrap();
}

fn manifest_of(disk: &dyn Disk, table: &str) -> Value {
    let path = root().join("tables").join(table).join("live");
    let bytes = disk.read(&path).unwrap();
    let found = (1..9).find_map(|known| unseal(&bytes, "forebay_live", known).ok());
    found.unwrap().0
}

fn format_of(disk: &dyn Disk, table: &str) -> u64 {
    manifest_of(disk, table)["forebay_live"].as_u64().unwrap()
}

fn expected(table: &str) -> Map {
    let texts = |records: &[(&str, &str)]| {
        let pair =
            |(key, value): &(&str, &str)| (key.as_bytes().to_vec(), value.as_bytes().to_vec());
        records.iter().map(pair).collect()
    };
    match table {
        "counts" => {
            let sum = |number: i64| if number < 10 { number + 100 } else { number };
            let record = |n| (format!("k{n}").into_bytes(), sum(n).to_le_bytes().to_vec());
            (0..20).map(record).collect()
        }
        "notes" => texts(&[
            ("alpha", "1234"),
            ("charlie", "new"),
            ("november", "1"),
            ("zebra", "last"),
        ]),
        _ => texts(&[("a", "1"), ("b", "2"), ("q", "1")]),
    }
}

fn open(store: &Store, table: &str, words: &str) -> LiveTable {
    let opened = store.live_table(&name(table), &budget());
    opened.unwrap_or_else(|error| panic!("{words}, {table}: {error}"))
}

fn write_and_flush(table: &LiveTable, model: &mut Map) {
    let key = model.keys().next().unwrap().clone();
    table.update(&key, b"12345678").unwrap().wait().unwrap();
    model.insert(key, b"12345678".to_vec());
    table.flush().unwrap();
}

#[test]
fn tables_of_format_2_are_opened_and_keep_working() {
    let disk = image();
    let store = store_on(&disk, 5);
    for name_of in TABLES {
        let mut model = expected(name_of);
        let before = manifest_of(&disk, name_of);
        let info = store.live_info(&name(name_of)).unwrap();
        assert_eq!(format_of(&disk, name_of), 2, "a look changes nothing");
        let table = open(&store, name_of, "first");
        assert_eq!(collect(table.entries()), model);
        let converted = manifest_of(&disk, name_of);
        assert_eq!(converted["forebay_live"], 3);
        for field in ["table_id", "options", "log_from"] {
            assert_eq!(converted[field], before[field]);
        }
        for (content, range) in info.partitions.iter().zip(table.partitions()) {
            assert_eq!((content.epoch, &content.applied), (1, &None));
            assert_eq!(content.range, range);
            let now = table.content(range.id).unwrap();
            assert_eq!((now.epoch, now.applied), (1, None));
        }
        write_and_flush(&table, &mut model);
        drop(table);
        let table = open(&store, name_of, "again");
        table.compact().unwrap();
        assert_eq!(collect(table.entries()), model);
        assert!(table.verify(&mut |_| ()).unwrap().1.is_empty());
    }
    let part = open(&store, "part", "at the end");
    assert!(matches!(part.get(b"h"), Err(LiveError::NotHere { .. })));
    let range = PartitionRange {
        id: PartitionId(1),
        bounds: forebay_engine::Bounds {
            lower: forebay_engine::Bound::Key(b"g".to_vec()),
            upper: Some(forebay_engine::Bound::Key(b"p".to_vec())),
        },
    };
    part.adopt(PartitionContent::empty(range)).unwrap();
    assert_eq!(part.get(b"h").unwrap(), None);
}

/// If the opening of a table of format 2 fails at any call, the table has format 2 or 3 afterwards,
/// with all its content.
#[test]
fn a_table_is_converted_in_one_step() {
    let base = image();
    for table in TABLES {
        let model = expected(table);
        let open_it = |store: &Store| {
            let opened = store.live_table(&name(table), &budget());
            opened.map(|_| ()).map_err(|error| error.to_string())
        };
        at_every_call(&base, open_it, |store, done, words| {
            let format = format_of(&**store.disk(), table);
            let passes = words.contains("Full") || words.contains("NoFiles");
            assert!(format == 3 || !done || passes, "{words}: it was opened");
            assert!(format == 2 || format == 3, "{words}");
            let mut model = model.clone();
            let opened = open(store, table, words);
            assert_eq!(collect(opened.entries()), model, "{words}");
            assert_eq!(format_of(&**store.disk(), table), 3, "{words}");
            write_and_flush(&opened, &mut model);
            assert_eq!(collect(opened.entries()), model, "{words}");
        });
    }
}

#[test]
fn without_space_a_table_is_opened_in_its_old_format_and_converted_later() {
    let disk = image();
    let store = store_on(&disk, 5);
    // Its log has to be flushed to runs, because a replay needs room for its note.
    drop(open(&store, "part", "to have it in runs"));
    let path = root().join("tables/part/live");
    let mut old = manifest_of(&disk, "part");
    old["forebay_live"] = 2.into();
    for partition in old["partitions"].as_array_mut().unwrap() {
        let partition = partition.as_object_mut().unwrap();
        partition.remove("epoch");
    }
    replace_file(&disk, &path, &seal(&old).unwrap().0).unwrap();
    disk.fill_up();
    let table = open(&store, "part", "full");
    assert_eq!(format_of(&disk, "part"), 2);
    let mut model = expected("part");
    assert_eq!(collect(table.entries()), model);
    disk.make_room();
    write_and_flush(&table, &mut model);
    assert_eq!(format_of(&disk, "part"), 3);
    drop(table);
    assert_eq!(collect(open(&store, "part", "again").entries()), model);
}

#[test]
fn an_unknown_format_is_refused_by_name() {
    let life = Life::new(options(Order::Ordered, None, Some(Durability::Sync)));
    let disk = life.disk.after_kill();
    let path = root().join("tables/t/live");
    let mut newer = manifest_of(&disk, "t");
    assert_eq!(newer["forebay_live"], 3);
    newer["forebay_live"] = 4.into();
    newer["unheard_of"] = true.into();
    replace_file(&disk, &path, &seal(&newer).unwrap().0).unwrap();
    let refused = store_on(&disk, 5).live_table(&name("t"), &budget());
    let words = refused.unwrap_err().to_string();
    let wanted = "it is of format 4, this program reads format 3: use a newer forebay";
    assert!(words.contains(wanted), "{words}");
    assert!(words.contains("tables/t/live"), "{words}");
    assert!(!words.contains("damaged"), "{words}");
    let kept = manifest_of(&disk, "t");
    assert_eq!(kept, newer);
}
