//! Tests of values of very different lengths: batches stay small, and rows are unchanged.

use std::sync::Arc;

use ::parquet::arrow::ArrowWriter;
use ::parquet::basic::{Compression, Encoding, ZstdLevel};
use ::parquet::file::properties::{WriterProperties, WriterVersion};
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow_ipc::writer::FileWriter;

use super::*;
use crate::sources::batch_bytes::BATCH_BYTES;

const MIB: usize = 1 << 20;

/// Each row has a text of the given length, which repeats the row's number.
pub(super) fn rows(lengths: &[usize], distinct: usize) -> RecordBatch {
    let ids = Int64Array::from_iter_values(0..lengths.len() as i64);
    let texts = lengths.iter().enumerate();
    let texts = texts.map(|(id, length)| format!("{:06}", id % distinct).repeat(length / 6));
    let texts = StringArray::from_iter_values(texts);
    let columns: [(&str, ArrayRef); 2] = [("id", Arc::new(ids)), ("text", Arc::new(texts))];
    RecordBatch::try_from_iter(columns).unwrap()
}

pub(super) fn parquet(batch: &RecordBatch, properties: WriterProperties) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), Some(properties)).unwrap();
    writer.write(batch).unwrap();
    writer.close().unwrap();
    bytes
}

fn arrow(batch: &RecordBatch) -> Vec<u8> {
    let mut writer = FileWriter::try_new(Vec::new(), &batch.schema()).unwrap();
    writer.write(batch).unwrap();
    writer.into_inner().unwrap()
}

/// Compares the rows of a file with those written; returns the row counts of its batches.
fn check(name: &str, bytes: &[u8], expected: &RecordBatch) -> Vec<usize> {
    let dir = Dir::new(&[(name, bytes)]);
    let set = dir.open(name).unwrap();
    let mut batches = Vec::new();
    let expected = expected.column(1).as_string::<i32>();
    let mut next = 0;
    for unit in &set.units {
        let read = unit.read::<SourceError>(
            |batch, origin| {
                let ids = batch.column(0).as_primitive::<Int64Type>();
                let texts = batch.column(1).as_string::<i32>();
                assert_eq!(
                    origin.place(0).to_string().split(' ').next_back(),
                    Some(&*(next + 1).to_string())
                );
                for row in 0..batch.num_rows() {
                    assert_eq!(ids.value(row), next);
                    assert!(
                        texts.value(row) == expected.value(next as usize),
                        "row {next}"
                    );
                    next += 1;
                }
                let bytes: usize = texts.iter().flatten().map(str::len).sum();
                assert!(
                    bytes <= BATCH_BYTES || batch.num_rows() == 1,
                    "{bytes} bytes"
                );
                batches.push(batch.num_rows());
                Ok(())
            },
            |reject| panic!("{}", reject.reason),
        );
        read.unwrap();
    }
    assert_eq!(next as usize, expected.len());
    batches
}

pub(super) fn packed() -> ::parquet::file::properties::WriterPropertiesBuilder {
    WriterProperties::builder().set_compression(Compression::ZSTD(ZstdLevel::default()))
}

#[test]
fn large_values_among_small_ones() {
    // 10,000 small texts, 40 adjacent ones of a mebibyte, one of 16, small ones again.
    let mut lengths = vec![12; 10_000];
    lengths.extend([MIB; 40]);
    lengths.push(16 * MIB);
    lengths.extend([12; 5_000]);
    let batch = rows(&lengths, usize::MAX);
    for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
        let plain = packed()
            .set_writer_version(version)
            .set_dictionary_enabled(false);
        let batches = check("a.parquet", &parquet(&batch, plain.build()), &batch);
        assert!(
            batches[0] > 500,
            "small rows come in large batches: {}",
            batches[0]
        );
    }
    check("a.arrow", &arrow(&batch), &batch);
}

#[test]
fn a_dictionary_of_a_few_large_values() {
    let batch = rows(&[MIB; 300], 3);
    let batches = check("a.parquet", &parquet(&batch, packed().build()), &batch);
    assert!(batches.len() >= 300 * MIB / BATCH_BYTES);
}

#[test]
fn values_that_share_their_beginnings() {
    let lengths = [MIB; 100];
    let texts = lengths
        .iter()
        .enumerate()
        .map(|(id, length)| "x".repeat(*length) + &id.to_string());
    let texts: ArrayRef = Arc::new(StringArray::from_iter_values(texts));
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..100));
    let batch = RecordBatch::try_from_iter([("id", ids), ("text", texts)]).unwrap();
    let shared = packed()
        .set_writer_version(WriterVersion::PARQUET_2_0)
        .set_dictionary_enabled(false)
        .set_column_encoding("text".into(), Encoding::DELTA_BYTE_ARRAY);
    check("a.parquet", &parquet(&batch, shared.build()), &batch);
}
