//! Reads return the written records, in every order, compression, page size and on every path.

use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use crate::common::{
    self, COMPRESSIONS, Model, ORDERS, PREFIX, build, model, options, records, sim_disk, sort_hash,
};
use forebay_io::sim::Rng;
use forebay_io::{Disk, OsDisk};
use forebay_run::FoundRecord;
use forebay_run::format::MAX_KEY_BYTES;
use forebay_run::operation::Operation;
use forebay_run::scan::{Cursor, Direction, Position, ScanRange};
use forebay_run::times::Times;
use forebay_run::{Compression, Lookup, Order, Run, RunOptions, RunWriter};

fn value(found: FoundRecord<'_>) -> Vec<u8> {
    found.into_value(|| 0).unwrap().into_owned()
}

fn check_look_ups(run: &Run, order: Order, model: &Model) {
    let absent = [&b"absent"[..], b"", b"key/", b"zzz", &[255; 40]];
    for key in absent {
        assert_eq!(run.get(sort_hash(order, key), key).unwrap(), None);
    }
    for ((hash, key), expected) in model {
        let found = run
            .get(*hash, key)
            .unwrap()
            .expect("a key that was written");
        assert_eq!(&value(found), expected);
        assert!(run.may_hold_key(*hash, key), "the filter excludes a key");
        if let Lookup::Found(found) = run.try_get(*hash, key).unwrap() {
            assert_eq!(&value(found), expected);
        }
    }
    let mut keys: Vec<(u64, &[u8])> = model.keys().map(|(hash, key)| (*hash, &key[..])).collect();
    let missing = sort_hash(order, b"missing");
    keys.insert(keys.len() / 2, (missing, b"missing"));
    let mut answers = 0;
    run.get_many(&keys, |place, found| {
        assert_eq!(place, answers);
        answers += 1;
        let (hash, key) = keys[place];
        let expected = model.get(&(hash, key.to_vec()));
        assert_eq!(found.unwrap().map(value).as_ref(), expected);
    });
    assert_eq!(answers, keys.len());
}

fn collect(mut cursor: impl Cursor) -> Vec<((u64, Vec<u8>), Vec<u8>)> {
    let mut out = Vec::new();
    while cursor.advance().unwrap() {
        let Operation::Update(value) = cursor.operation() else {
            panic!("not an update")
        };
        out.push(((cursor.hash(), cursor.key().to_vec()), value.to_vec()));
    }
    out
}

fn check_scans(run: &Arc<Run>, model: &Model, rng: &mut Rng) {
    let all: Vec<_> = model.clone().into_iter().collect();
    assert_eq!(collect(run.scan(ScanRange::all(), Direction::Forward)), all);
    let places: Vec<_> = model.keys().cloned().collect();
    for _ in 0..20 {
        let mut bound = || {
            let place = places.get(rng.below(places.len() as u64 + 1) as usize);
            let at = place.map(|(hash, key)| Position {
                hash: *hash,
                key: key.clone(),
            });
            match (at, rng.below(4)) {
                (None, _) | (_, 0) => Bound::Unbounded,
                (Some(mut at), 1) => {
                    at.key.push(0);
                    Bound::Included(at)
                }
                (Some(at), 2) => Bound::Included(at),
                (Some(at), _) => Bound::Excluded(at),
            }
        };
        let (from, to) = (bound(), bound());
        let plain = |at: &Bound<Position>| at.as_ref().map(|at| (at.hash, at.key.clone()));
        let (low, high) = (plain(&from), plain(&to));
        let within = |place: &(u64, Vec<u8>)| {
            let above = match &low {
                Bound::Unbounded => true,
                Bound::Included(at) => place >= at,
                Bound::Excluded(at) => place > at,
            };
            let below = match &high {
                Bound::Unbounded => true,
                Bound::Included(at) => place <= at,
                Bound::Excluded(at) => place < at,
            };
            above && below
        };
        let mut expected: Vec<_> = all
            .iter()
            .filter(|(place, _)| within(place))
            .cloned()
            .collect();
        let range = ScanRange { from, to };
        assert_eq!(
            collect(run.scan(range.clone(), Direction::Forward)),
            expected,
            "{range:?}"
        );
        expected.reverse();
        assert_eq!(
            collect(run.scan(range.clone(), Direction::Backward)),
            expected,
            "{range:?}"
        );
    }
}

fn check(disk: &Arc<dyn Disk>, path: &Path, options: RunOptions, model: &Model, rng: &mut Rng) {
    let order = options.order;
    let run = build(disk, path, options, model);
    assert_eq!(run.meta(), b"kept as it is");
    assert!(run.has_filter());
    assert_eq!(run.summary().records, model.len() as u64);
    check_look_ups(&run, order, model);
    check_scans(&run, model, rng);
    assert_eq!(run.verify(&mut |_| ()).unwrap(), *run.summary());
}

#[test]
fn every_kind_of_run_in_memory_and_mapped() {
    let dir = tempfile::tempdir().unwrap();
    let mapped: Arc<dyn Disk> = Arc::new(OsDisk::default());
    let read: Arc<dyn Disk> = Arc::new(OsDisk { without_maps: true });
    let seed = 1;
    for (round, (count, value_bytes)) in [
        (0, 1),
        (1, 10),
        (2, 3000),
        (3, 40),
        (700, 30),
        (900, 600),
        (400, 1900),
        (3000, 4),
    ]
    .into_iter()
    .enumerate()
    {
        let mut rng = Rng(seed + round as u64);
        let records = records(&mut rng, count, value_bytes);
        for order in ORDERS {
            let model = model(order, &records);
            for compression in COMPRESSIONS {
                for page_bytes in [4096, 32768] {
                    println!("round {round}, seed {seed}: {order:?} {compression:?} {page_bytes}");
                    let options = RunOptions {
                        page_bytes,
                        ..options(order, compression)
                    };
                    let name = format!("{round}-{order:?}-{compression:?}-{page_bytes}.run");
                    check(
                        &mapped,
                        &dir.path().join(&name),
                        options.clone(),
                        &model,
                        &mut rng,
                    );
                    let name = format!("read-{name}");
                    check(
                        &read,
                        &dir.path().join(&name),
                        options.clone(),
                        &model,
                        &mut rng,
                    );
                }
            }
        }
    }
}

/// Keys whose hash64 is the same: 64-bit collisions cannot be found, so the hashes are invented.
#[test]
fn colliding_hashes_are_distinguished_by_key_across_pages() {
    let (_, disk) = sim_disk();
    let path = Path::new("/d/x.run");
    let mut writer =
        RunWriter::create(&disk, path, options(Order::Hashed, Compression::None)).unwrap();
    let hash_of = |i: u32| (9u64 << 50) + u64::from(i / 300) * 1_000_000;
    let key_of = |i: u32| format!("{i:06}").into_bytes();
    for i in 0..3000 {
        writer
            .push(hash_of(i), &key_of(i), Operation::Update(&[i as u8; 60]))
            .unwrap();
    }
    writer.finish().unwrap();
    let run = Run::open(&*disk, path).unwrap();
    for i in 0..3000 {
        let found = run
            .get(hash_of(i), &key_of(i))
            .unwrap()
            .expect("a colliding key");
        assert_eq!(value(found), vec![i as u8; 60]);
        assert_eq!(run.get(hash_of(i), b"other").unwrap(), None);
    }
}

#[test]
fn all_operations_survive() {
    let (_, disk) = sim_disk();
    for order in ORDERS {
        let path = format!("/d/{order:?}.run");
        let mut writer =
            RunWriter::create(&disk, Path::new(&path), options(order, Compression::None)).unwrap();
        let large = vec![7u8; 10_000];
        let times = Times {
            written_ms: 5,
            expires_ms: 9,
        };
        let operations = [
            Operation::Update(b"a"),
            Operation::Insert(b""),
            Operation::Delete,
            Operation::Delta(b"12345678"),
            Operation::InsertDelta {
                value: b"value",
                delta: b"delta",
            },
            Operation::InsertDelta {
                value: &large,
                delta: b"delta",
            },
            Operation::Update(b"a").with_times(Times::until(7)),
            Operation::Update(&large).with_times(Times::until(0)),
            Operation::Insert(b"").with_times(Times::until(u64::MAX - 1)),
            Operation::Delta(b"12345678").with_times(times),
            Operation::Delta(b"12345678").with_times(Times {
                expires_ms: u64::MAX,
                ..times
            }),
            Operation::InsertDelta {
                value: b"value",
                delta: b"delta",
            }
            .with_times(times),
        ];
        for (i, operation) in operations.iter().enumerate() {
            writer
                .push(i as u64, &[b'a' + i as u8], *operation)
                .unwrap();
        }
        writer.finish().unwrap();
        let run = Run::open(&*disk, Path::new(&path)).unwrap();
        for (i, operation) in operations.iter().enumerate() {
            let found = run.get(i as u64, &[b'a' + i as u8]).unwrap().unwrap();
            assert_eq!(found.into_operation().borrow(), *operation);
        }
        let run = Arc::new(run);
        let mut scan = run.scan(ScanRange::all(), Direction::Forward);
        for operation in &operations {
            assert!(scan.advance().unwrap());
            assert_eq!(scan.operation(), *operation);
        }
        // The hashes are invented, which a verification would detect.
        if order == Order::Ordered {
            run.verify(&mut |_| ()).unwrap();
        }
    }
}

#[test]
fn the_writer_refuses_records_out_of_order() {
    let (_, disk) = sim_disk();
    let options = options(Order::Ordered, Compression::None);
    let mut writer = RunWriter::create(&disk, Path::new("/d/x.run"), options.clone()).unwrap();
    writer.push(0, b"b", Operation::Update(b"")).unwrap();
    let too_long = [b'z'; MAX_KEY_BYTES + 1];
    for key in [&b"b"[..], b"a", b"", &too_long[..1025], &too_long] {
        let error = writer.push(0, key, Operation::Update(b"")).unwrap_err();
        assert!(error.to_string().contains("/d/x.run"), "{error}");
    }
    writer
        .push(0, &too_long[..1024], Operation::Update(b""))
        .unwrap();
    let again = RunWriter::create(&disk, Path::new("/d/x.run"), options);
    assert!(again.is_err(), "an existing file was overwritten");
}

/// Returns keys of the lengths at which the format changes, and sometimes of others; many share
/// most of their bytes. Some values continue in the next page, or are in the `.ext` file.
fn records_of_long_keys(rng: &mut Rng, longest: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
    let edges = [
        1, 2, 127, 128, 1023, 1024, 1025, 2048, 4095, 4096, 4097, 8191,
    ];
    let mut lengths: Vec<usize> = edges.into_iter().filter(|at| *at <= longest).collect();
    lengths.extend((0..60).map(|_| 1 + rng.below(longest as u64) as usize));
    lengths.extend([longest; 5]);
    let record = |(number, length): (usize, usize)| {
        let mut key = vec![b'k'; length];
        if rng.below(2) == 0 {
            key.fill_with(|| rng.below(256) as u8);
        }
        // The last bytes distinguish it from the others.
        let tail = (number as u32).to_be_bytes();
        let reported = tail.len().min(length);
        key[length - reported..].copy_from_slice(&tail[tail.len() - reported..]);
        let value_bytes = [0, 10, 1500, 2000, 8000, 16_384, 40_000][rng.below(7) as usize];
        (key, vec![number as u8; value_bytes])
    };
    lengths.into_iter().enumerate().map(record).collect()
}

#[test]
fn keys_as_long_as_they_can_be() {
    let (_, disk) = sim_disk();
    for (seed, longest) in [
        (1, 1024),
        (2, 1025),
        (3, 4096),
        (4, 5000),
        (5, MAX_KEY_BYTES),
    ] {
        let mut rng = Rng(seed);
        let records = records_of_long_keys(&mut rng, longest);
        for order in ORDERS {
            let model = model(order, &records);
            for compression in COMPRESSIONS {
                println!("seed {seed}: {order:?} {compression:?}, keys of up to {longest}");
                let options = options(order, compression).for_keys_of(longest);
                let path = format!("/d/{longest}-{order:?}-{compression:?}.run");
                let path = Path::new(&path);
                check(&disk, path, options, &model, &mut rng);
                let run = Run::open(&*disk, path).unwrap();
                assert_eq!(run.longest_key(), longest);
                assert!(run.page_bytes() as usize >= 4 * longest);
            }
        }
    }
}

#[test]
fn long_keys_are_noted_in_the_footer_and_short_ones_leave_it_unchanged() {
    let (sim, disk) = sim_disk();
    let footer = |longest: usize, path: &str| {
        let options = options(Order::Ordered, Compression::None).for_keys_of(longest);
        let mut writer = RunWriter::create(&disk, Path::new(path), options).unwrap();
        writer
            .push(0, &vec![b'k'; longest], Operation::Update(b""))
            .unwrap();
        writer.finish().unwrap();
        let bytes = disk.read(Path::new(path)).unwrap();
        let footer = &bytes[bytes.len() - 128..];
        (footer[14..16].to_vec(), word(footer, 16))
    };
    assert_eq!(footer(1024, "/d/short.run"), (vec![0, 0], 4096));
    assert_eq!(footer(1025, "/d/long.run"), (vec![1, 4], 8192));
    assert_eq!(footer(8192, "/d/longest.run"), (vec![0, 32], 32768));
    // If the footer's longest key is too short for a run's keys, code that relies on it refuses the
    // run.
    sim.tamper(Path::new("/d/long.run"), |bytes| {
        let footer = bytes.len() - 128;
        bytes[footer + 14..footer + 16].fill(0);
        let checksum = xxhash_rust::xxh3::xxh3_64(&bytes[footer..footer + 112]);
        bytes[footer + 112..footer + 120].copy_from_slice(&checksum.to_le_bytes());
    });
    let run = Arc::new(Run::open(&*disk, Path::new("/d/long.run")).unwrap());
    let error = run.verify(&mut |_| ()).unwrap_err().to_string();
    assert!(error.contains("longer than the footer says"), "{error}");
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*bytes[at..].first_chunk().unwrap())
}

#[test]
fn a_run_has_a_filter_when_asked_for_and_it_denies_most_absent_keys() {
    let (_, disk) = sim_disk();
    let model = model(Order::Hashed, &records(&mut Rng(5), 2000, 10));
    let plain = RunOptions::new(Order::Hashed, Compression::None, PREFIX);
    let run = build(&disk, Path::new("/d/plain.run"), plain.clone(), &model);
    assert!(!run.has_filter() && run.may_hold_key(0, b"absent"));
    for order in ORDERS {
        let model = common::model(order, &records(&mut Rng(5), 2000, 10));
        let options = RunOptions {
            order,
            filter_records: Some(2000),
            ..plain.clone()
        };
        let path = format!("/d/{order:?}.run");
        let run = build(&disk, Path::new(&path), options, &model);
        let absent = (0..10_000).map(|i| format!("absent/{i}").into_bytes());
        let passed = absent.filter(|key| run.may_hold_key(sort_hash(order, key), key));
        assert!(passed.count() < 200, "{order:?}");
        assert!(run.memory_bytes() >= 2000 * 10 / 8);
    }
}

/// Verification detects a filter that excludes a key of its run: look-ups would miss the key.
#[test]
fn verifying_holds_every_record_against_the_filter() {
    let (sim, disk) = sim_disk();
    let path = Path::new("/d/x.run");
    let model = model(Order::Hashed, &records(&mut Rng(6), 100, 10));
    let run = build(
        &disk,
        path,
        options(Order::Hashed, Compression::None),
        &model,
    );
    run.verify(&mut |_| ()).unwrap();
    drop(run);
    sim.tamper(path, |bytes| common::empty_the_filter(bytes));
    let run = Arc::new(Run::open(&*disk, path).unwrap());
    let error = run.verify(&mut |_| ()).unwrap_err().to_string();
    assert!(error.contains("is not in the filter"), "{error}");
}
