//! Records of any bytes.

use forebay_io::sim::Rng;

use super::super::index::LogIndex;
use super::super::record::{GroupRecord, RecordReader, push_records};
use super::model::{Change, Model};
use super::*;

fn frame(offset: u64) -> FramePlace {
    let segment = 1;
    FramePlace { segment, offset }
}

/// Reads them as an opening would, and queries the index.
fn check(index: &mut LogIndex, payload: &[u8], offset: u64) {
    if replay(index, frame(offset), payload).is_err() {
        assert!(!payload.is_empty());
    }
    for (group, known) in &index.groups {
        assert!(known.before().index <= known.last().index, "group {group}");
        known.needed_log(1);
        assert!(known.needed_bytes() <= index.needed_bytes());
    }
}

#[test]
fn records_are_read_as_they_were_written() {
    let mut rng = Rng(1);
    let mut model = Model::default();
    for _ in 0..300 {
        let group = rng.below(5);
        let change = Change::any(&mut rng, group, &model);
        let mut bytes = Vec::new();
        push_records(&mut bytes, &change.records(), 0);
        model.take(std::slice::from_ref(&change));
        let mut read = Change {
            group: change.group,
            ..Change::default()
        };
        for record in RecordReader::new(&bytes) {
            match record.unwrap() {
                GroupRecord::Gone { .. } => read.is_gone = true,
                GroupRecord::Begins { behind, .. } => read.begins = Some(behind),
                GroupRecord::Promise { bytes, .. } => read.promise = Some(bytes.to_vec()),
                GroupRecord::Entry { place, bytes, .. } => read.entries.push(LoggedEntry {
                    place,
                    bytes: bytes.to_vec(),
                }),
            }
        }
        assert_eq!(format!("{read:?}"), format!("{change:?}"));
        for length in 1..bytes.len() {
            let cut = RecordReader::new(&bytes[..length]).collect::<Result<Vec<_>, _>>();
            let whole = RecordReader::new(&bytes).collect::<Result<Vec<_>, _>>();
            assert!(cut.is_err() || cut.unwrap().len() < whole.unwrap().len());
        }
    }
}

#[test]
fn arbitrary_bytes_are_refused_or_read_and_never_panic() {
    let seed = std::env::var("FOREBAY_FUZZ_SEED").map_or(1, |seed| seed.parse().unwrap());
    println!("FOREBAY_FUZZ_SEED={seed} repeats this");
    let mut rng = Rng(seed);
    for _ in 0..2000 {
        let mut index = LogIndex::default();
        let mut model = Model::default();
        for at in 0..20 {
            let group = rng.below(3);
            let change = Change::any(&mut rng, group, &model);
            let mut bytes = Vec::new();
            push_records(&mut bytes, &change.records(), rng.below(3));
            match rng.below(4) {
                // Whole, with something changed, cut, or drawn at random.
                0 => model.take(std::slice::from_ref(&change)),
                1 => {
                    for _ in 0..=rng.below(3) {
                        let place = rng.below(bytes.len() as u64 + 1) as usize;
                        let byte = [0, 1, 0x7f, 0xff, rng.next_u64() as u8];
                        bytes.insert(place, byte[rng.below(5) as usize]);
                    }
                }
                2 => bytes.truncate(rng.below(bytes.len() as u64 + 1) as usize),
                _ => {
                    let draw = |_| match rng.below(2) {
                        0 => rng.below(6) as u8,
                        _ => rng.next_u64() as u8,
                    };
                    bytes = (0..30).map(draw).collect();
                }
            }
            check(&mut index, &bytes, at);
        }
        for group in index.groups.values_mut() {
            group.trim(rng.below(20));
        }
        index.forget_through(1);
    }
}

#[test]
fn an_entry_takes_24_bytes_of_memory() {
    assert_eq!(size_of::<super::super::index::IndexedEntry>(), 24);
}

#[test]
fn indexes_at_their_bounds_are_refused() {
    let number = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
    let begins = [&[3, 1, 1][..], &number].concat();
    let first = [&[1, 1, 1][..], &number, &[1, 1, 0]].concat();
    let too_long = [&[2, 1][..], &[0xff; 9], &[2]].concat();
    for payload in [
        &begins[..],
        &first,
        &too_long,
        &[1, 1, 0, 0, 1, 1, 0],
        &[9, 1],
    ] {
        let mut index = LogIndex::default();
        assert!(
            replay(&mut index, frame(0), payload).is_err(),
            "{payload:?}"
        );
    }
    assert!(replay(&mut LogIndex::default(), frame(1 << 32), &[4, 1]).is_err());
}
