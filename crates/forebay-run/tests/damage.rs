//! Every flipped byte and every truncation is detected: an error or the right answer, never a wrong
//! one.

use std::path::Path;
use std::sync::Arc;

use crate::common::{COMPRESSIONS, Model, ORDERS, model, options, records, sim_disk, write};
use forebay_io::sim::Rng;
use forebay_io::{Disk, OsDisk};
use forebay_run::operation::Operation;
use forebay_run::scan::{Cursor, Direction, ScanRange};
use forebay_run::{Order, Run, RunError, RunWriter};

const RUN: &str = "/d/x.run";
const EXT: &str = "/d/x.ext";

/// Opens and reads everything; `Ok` only if every answer is right.
fn read_all(disk: &dyn Disk, model: &Model) -> Result<(), RunError> {
    let run = Arc::new(Run::open(disk, Path::new(RUN))?);
    for ((hash, key), value) in model {
        let found = run
            .get(*hash, key)?
            .expect("a key vanished without an error");
        assert_eq!(
            &*found.into_value(|| 0).unwrap(),
            &value[..],
            "a wrong value"
        );
    }
    run.verify(&mut |_| ()).map(|_| ())
}

/// Sixty records, one of them large.
fn some_records() -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut records = records(&mut Rng(3), 60, 40);
    records.push((b"large".to_vec(), vec![7; 9000]));
    records
}

#[test]
fn every_flipped_byte_is_found() {
    for order in ORDERS {
        for compression in COMPRESSIONS {
            let (sim, disk) = sim_disk();
            let model = model(order, &some_records());
            let options = options(order, compression);
            let summary = write(&disk, Path::new(RUN), options, &model);
            read_all(&*disk, &model).unwrap();
            for (file, bytes) in [(RUN, summary.file_bytes), (EXT, summary.ext_bytes)] {
                // Every byte outside of pages, every thirteenth of the rest.
                for at in (0..bytes as usize).filter(|at| at % 13 == 0 || *at > 16384) {
                    let flip = 1u8 << (at % 8);
                    sim.tamper(Path::new(file), |bytes| bytes[at] ^= flip);
                    let read = read_all(&*disk, &model);
                    let what = format!("{order:?} {compression:?} {file}: byte {at} of {bytes}");
                    let error = read.err().unwrap_or_else(|| panic!("{what}: not detected"));
                    let text = error.to_string();
                    assert!(
                        text.contains(RUN) || text.contains(EXT),
                        "no file named: {text}"
                    );
                    sim.tamper(Path::new(file), |bytes| bytes[at] ^= flip);
                }
            }
            read_all(&*disk, &model).unwrap();
        }
    }
}

#[test]
fn every_truncation_is_found() {
    let (sim, disk) = sim_disk();
    let model = model(Order::Hashed, &some_records());
    let options = options(Order::Hashed, forebay_run::Compression::None);
    let summary = write(&disk, Path::new(RUN), options, &model);
    for (file, bytes) in [(RUN, summary.file_bytes), (EXT, summary.ext_bytes)] {
        let mut whole = Vec::new();
        sim.tamper(Path::new(file), |bytes| whole.clone_from(bytes));
        for len in (0..bytes as usize).rev().step_by(7) {
            sim.tamper(Path::new(file), |bytes| bytes.truncate(len));
            assert!(read_all(&*disk, &model).is_err(), "cut to {len} bytes");
        }
        sim.tamper(Path::new(file), |bytes| bytes.clone_from(&whole));
    }
}

#[test]
fn random_bytes_are_no_run() {
    let (sim, disk) = sim_disk();
    let model = model(Order::Ordered, &records(&mut Rng(4), 30, 40));
    write(
        &disk,
        Path::new(RUN),
        options(Order::Ordered, <_>::default()),
        &model,
    );
    let mut rng = Rng(5);
    for _ in 0..300 {
        let len = rng.below(9000);
        sim.tamper(Path::new(RUN), |bytes| {
            *bytes = (0..len).map(|_| rng.next_u64() as u8).collect()
        });
        assert!(Run::open(&*disk, Path::new(RUN)).is_err());
    }
}

#[test]
fn a_newer_format_is_refused_by_name() {
    let (sim, disk) = sim_disk();
    let model = model(Order::Ordered, &records(&mut Rng(4), 30, 40));
    write(
        &disk,
        Path::new(RUN),
        options(Order::Ordered, <_>::default()),
        &model,
    );
    sim.tamper(Path::new(RUN), |bytes| {
        let footer = bytes.len() - 128;
        bytes[footer + 8] = 2;
        let checksum = xxhash_rust::xxh3::xxh3_64(&bytes[footer..footer + 112]);
        bytes[footer + 112..footer + 120].copy_from_slice(&checksum.to_le_bytes());
    });
    let error = Run::open(&*disk, Path::new(RUN)).unwrap_err();
    assert!(matches!(error, RunError::Unsupported { .. }), "{error}");
    assert!(error.to_string().contains("version 2"), "{error}");
}

#[test]
fn a_mapped_file_truncated_while_open_is_an_error_and_no_crash() {
    // Between two pages, within one whose first records still exist, and within a page of the
    // system. The latter has zeros after the truncation from then on.
    let mut rng = Rng(9);
    for order in ORDERS {
        truncate_while_open(order, 40, 4 << 10, 8 << 10);
        truncate_while_open(order, 2000, 32 << 10, 40 << 10);
        for _ in 0..40 {
            truncate_while_open(order, 40, 4 << 10, 4096 + rng.below(100_000));
            truncate_while_open(order, 300, 8 << 10, 4096 + rng.below(400_000));
        }
    }
}

fn truncate_while_open(order: Order, value_bytes: u64, page_bytes: u32, cut_at: u64) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.run");
    let disk: Arc<dyn Disk> = Arc::new(OsDisk::default());
    let model = model(order, &records(&mut Rng(6), 3000, value_bytes));
    let mut options = options(order, <_>::default());
    options.page_bytes = page_bytes;
    write(&disk, &path, options, &model);
    let run = Run::open(&*disk, &path).unwrap();
    let all = |run: &Run| -> usize {
        let ask = |((hash, key), value): (&(u64, Vec<u8>), &Vec<u8>)| match run.get(*hash, key) {
            Ok(Some(found)) => {
                assert_eq!(
                    &*found.into_value(|| 0).unwrap(),
                    &value[..],
                    "a wrong value"
                );
                false
            }
            Ok(None) => panic!("a key vanished without an error"),
            Err(error) => {
                assert!(error.to_string().contains("x.run"), "{error}");
                true
            }
        };
        model.iter().map(ask).filter(|failed| *failed).count()
    };
    assert_eq!(all(&run), 0);
    assert!(std::fs::metadata(&path).unwrap().len() > cut_at);
    std::fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(cut_at)
        .unwrap();
    assert!(all(&run) > 0);
    let mut scan = Arc::new(run).scan(ScanRange::all(), Direction::Forward);
    let mut passed = 0;
    let ended = loop {
        match scan.advance() {
            Ok(true) => passed += 1,
            Ok(false) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    assert!(ended.is_err(), "a scan ended after {passed} records");
}

#[test]
fn the_pages_of_a_run_just_written_are_trusted_until_the_system_drops_them() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.run");
    let disk: Arc<dyn Disk> = Arc::new(OsDisk::default());
    let mut writer =
        RunWriter::create(&disk, &path, options(Order::Ordered, <_>::default())).unwrap();
    for number in 0u64..1000 {
        let key = number.to_be_bytes();
        writer.push(0, &key, Operation::Update(b"value")).unwrap();
    }
    writer.finish().unwrap();
    let open = || Run::open(&*disk, &path).unwrap();
    let (trusting, checking) = (open(), open());
    trusting.trust_written();
    // Changed in memory: only a comparison of checksums detects it.
    let mut bytes = std::fs::read(&path).unwrap();
    let value = bytes
        .windows(5)
        .position(|bytes| bytes == b"value")
        .unwrap();
    bytes[value] = b'V';
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &bytes[value..=value], value as u64).unwrap();
    let key = 0u64.to_be_bytes();
    assert!(checking.get(0, &key).is_err());
    let found = trusting.get(0, &key).unwrap().unwrap();
    assert_eq!(found.into_value(|| 0).unwrap(), &b"Value"[..]);
    assert_eq!(trusting.forget_evicted(), 0);
}

#[test]
fn a_comparing_scan_compares_pages_that_were_compared_before() {
    for (order, value_bytes, page_bytes) in [
        (Order::Hashed, 100, 4 << 10),
        (Order::Ordered, 100, 4 << 10),
        (Order::Hashed, 1700, 4 << 10),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.run");
        let disk: Arc<dyn Disk> = Arc::new(OsDisk::default());
        let model = model(order, &records(&mut Rng(3), 500, value_bytes));
        let mut options = options(order, <_>::default());
        options.page_bytes = page_bytes;
        write(&disk, &path, options, &model);
        let run = Arc::new(Run::open(&*disk, &path).unwrap());
        let walk = |comparing: bool| {
            let scan = run.scan(ScanRange::all(), Direction::Forward);
            let mut scan = if comparing { scan.comparing() } else { scan };
            while scan.advance()? {}
            Ok::<(), forebay_run::RunError>(())
        };
        walk(true).unwrap();
        walk(false).unwrap();
        // A bit of a value, in memory that all readers have mapped.
        let bytes = std::fs::read(&path).unwrap();
        let (_, value) = model.iter().nth(250).unwrap();
        let found = bytes.windows(20).position(|some| some == &value[..20]);
        let at = found.unwrap() + 10;
        let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        let flipped = [bytes[at] ^ 4];
        std::os::unix::fs::FileExt::write_all_at(&file, &flipped, at as u64).unwrap();
        walk(false).unwrap();
        let error = walk(true).unwrap_err();
        assert!(error.is_damage(), "{error}");
        // From then on every reader gets the error.
        assert!(walk(false).unwrap_err().is_damage());
        assert!(run.verify(&mut |_| ()).unwrap_err().is_damage());
    }
}
