//! Tests that Arrow files with damaged lengths are errors.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use arrow_ipc::CompressionType;
use arrow_ipc::writer::{FileWriter, IpcWriteOptions, StreamWriter};
use proptest::prelude::*;

use super::binary::batch;
use super::*;

fn written(batch: &RecordBatch, stream: bool, compression: Option<CompressionType>) -> Vec<u8> {
    let options = IpcWriteOptions::default();
    let options = options.try_with_compression(compression).unwrap();
    let schema = batch.schema();
    if stream {
        let writer = StreamWriter::try_new_with_options(Vec::new(), &schema, options);
        let mut writer = writer.unwrap();
        writer.write(batch).unwrap();
        return writer.into_inner().unwrap();
    }
    let mut writer = FileWriter::try_new_with_options(Vec::new(), &schema, options).unwrap();
    writer.write(batch).unwrap();
    writer.into_inner().unwrap()
}

/// Returns the error of a file of these bytes; `None` if its rows are read.
fn message(name: &str, bytes: &[u8]) -> Option<String> {
    let dir = Dir::new(&[(name, bytes)]);
    let read = dir.open(name).and_then(|set| read(&set));
    read.err().map(|error| error.to_string())
}

/// Returns the place of a number of 8 bytes that occurs once.
fn place(bytes: &[u8], number: i64) -> usize {
    let word = number.to_le_bytes();
    let mut found = (0..bytes.len() - 8).filter(|at| bytes[*at..*at + 8] == word);
    let place = found.next().unwrap();
    assert_eq!(found.next(), None, "{number} stands there twice");
    place
}

/// Returns one column of numbers that compress well.
fn numbers(rows: i64) -> RecordBatch {
    let ids = Int64Array::from_iter_values((0..rows).map(|id| id / 1000));
    RecordBatch::try_from_iter([("id", Arc::new(ids) as ArrayRef)]).unwrap()
}

#[test]
fn unpacked_lengths_are_trusted_only_if_plausible() {
    for compression in [CompressionType::LZ4_FRAME, CompressionType::ZSTD] {
        let good = written(&numbers(4321), false, Some(compression));
        assert_eq!(message("a.arrow", &good), None);
        let at = place(&good, 4321 * 8);
        for length in [i64::MAX, 1 << 46, 1 << 38, -2] {
            let mut bad = good.clone();
            bad[at..at + 8].copy_from_slice(&length.to_le_bytes());
            let error = message("a.arrow", &bad).unwrap();
            let expected = format!("cannot become the {length} that it says");
            assert!(
                error.contains("a.arrow: record batch 0 ") && error.contains(&expected),
                "{error}"
            );
        }
    }
}

#[test]
fn lengths_in_footers_and_messages_are_checked_against_the_file() {
    let good = written(&numbers(4321), false, None);
    let body = 4321 * 8;
    let lengths = (0..good.len() - 8).filter(|at| good[*at..*at + 8] == i64::to_le_bytes(body));
    let lengths: Vec<usize> = lengths.collect();
    assert!(!lengths.is_empty());
    for (at, length) in lengths
        .iter()
        .flat_map(|at| [(*at, 1 << 40), (*at, -8), (*at, body + 800)])
    {
        let mut bad = good.clone();
        bad[at..at + 8].copy_from_slice(&i64::to_le_bytes(length));
        if let Some(error) = message("a.arrow", &bad) {
            assert!(error.contains(" is not within "), "{error}");
        }
    }
    let mut bad = good.clone();
    let tail = good.len() - 10;
    bad[tail..tail + 4].copy_from_slice(&i32::MAX.to_le_bytes());
    let error = message("a.arrow", &bad).unwrap();
    assert!(
        error.contains("its footer is damaged or cut off: its length is 2147483647 bytes"),
        "{error}"
    );
    let error = message("a.arrow", b"ARROW1").unwrap();
    assert!(error.contains("too short"), "{error}");

    let mut bad = written(&numbers(10), true, None);
    bad[4..8].copy_from_slice(&0x7000_0000_i32.to_le_bytes());
    let error = message("a.arrows", &bad).unwrap();
    assert!(
        error.contains("the head of a message is 1879048192 bytes, where "),
        "{error}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn flipped_bits_of_arrow_give_errors_or_rows(
        at in any::<prop::sample::Index>(), bit in 0_u8..8, stream: bool, compression in 0..3,
    ) {
        let codecs = [None, Some(CompressionType::LZ4_FRAME), Some(CompressionType::ZSTD)];
        let mut bytes = written(&batch(0, 300), stream, codecs[compression as usize]);
        let at = at.index(bytes.len());
        bytes[at] ^= 1_u8 << bit;
        let name = if stream { "a.arrows" } else { "a.arrow" };
        let dir = Dir::new(&[(name, &bytes)]);
        let Ok(set) = dir.open(name) else { return Ok(()) };
        for unit in &set.units {
            let _ = unit.read::<SourceError>(|_, _| Ok(()), |_| Ok(()));
        }
    }
}
