//! Parquet and Arrow files.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use ::parquet::arrow::ArrowWriter;
use ::parquet::basic::{BrotliLevel, Compression, ZstdLevel};
use ::parquet::file::properties::WriterProperties;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{
    ArrayRef, DictionaryArray, Int32Array, Int64Array, ListArray, RecordBatch, StringArray,
    TimestampNanosecondArray,
};
use arrow_ipc::writer::{FileWriter, StreamWriter};
use proptest::prelude::*;

use super::*;

pub fn batch(from: i64, rows: i64) -> RecordBatch {
    let ids = from..from + rows;
    let words: DictionaryArray<Int32Type> = ids
        .clone()
        .map(|id| (id % 3 != 0).then(|| ["x", "y"][(id % 2) as usize]))
        .collect();
    let lists = ids
        .clone()
        .map(|id| (id % 4 != 0).then(|| vec![Some(id), None]));
    let lists = ListArray::from_iter_primitive::<Int64Type, _, _>(lists);
    let times = ids.clone().map(|id| id * 1_000_000_007).collect::<Vec<_>>();
    let times = TimestampNanosecondArray::from(times).with_timezone("Europe/Paris");
    let columns: Vec<(&str, ArrayRef, bool)> = vec![
        ("id", Arc::new(Int64Array::from_iter_values(ids)), false),
        ("word", Arc::new(words), true),
        ("list", Arc::new(lists), true),
        ("at", Arc::new(times), false),
    ];
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

pub fn parquet(batch: &RecordBatch, compression: Compression, group: usize) -> Vec<u8> {
    let properties = WriterProperties::builder()
        .set_compression(compression)
        .set_max_row_group_row_count(Some(group))
        .build();
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), Some(properties)).unwrap();
    writer.write(batch).unwrap();
    writer.close().unwrap();
    bytes
}

/// The form in which pandas writes a named index that is a range.
fn with_range_index(columns: &[(&'static str, ArrayRef)]) -> RecordBatch {
    let batch = RecordBatch::try_from_iter(columns.iter().cloned()).unwrap();
    let schema = batch.schema().as_ref().clone();
    let range =
        r#"{"index_columns": [{"kind": "range", "name": "id", "start": 0, "stop": 3, "step": 1}]}"#;
    let schema = schema.with_metadata([("pandas", range)]);
    batch.with_schema(Arc::new(schema)).unwrap()
}

#[test]
fn an_index_that_is_a_range_is_reported_as_not_a_column() {
    let values: ArrayRef = Arc::new(Int64Array::from(vec![7, 8, 9]));
    let lacking = with_range_index(&[("x", values.clone())]);
    let mut stream = Vec::new();
    let mut writer = StreamWriter::try_new(&mut stream, &lacking.schema()).unwrap();
    writer.write(&lacking).unwrap();
    writer.finish().unwrap();
    drop(writer);
    let whole = with_range_index(&[("x", values.clone()), ("id", values)]);
    let dir = Dir::new(&[
        ("a.parquet", &parquet(&lacking, Compression::SNAPPY, 10)),
        ("a.arrows", &stream),
        ("whole.parquet", &parquet(&whole, Compression::SNAPPY, 10)),
    ]);
    for name in ["a.parquet", "a.arrows"] {
        let set = dir.open(name).unwrap();
        let notes = set.notes();
        assert_eq!(notes.len(), 1, "{notes:?}");
        for part in [name, "the index 'id'", "reset_index()"] {
            assert!(notes[0].contains(part), "{notes:?}");
        }
        assert!(set.why_lacking("id").contains("reset_index()"));
        assert_eq!(set.why_lacking("y"), "");
        let options = SourceOptions {
            table: vec![("id".to_owned(), DataType::Int64)],
            ..SourceOptions::default()
        };
        let error = dir.open_with(name, &options).unwrap_err().to_string();
        assert!(error.contains("reset_index()"), "{error}");
    }
    assert_eq!(dir.open("whole.parquet").unwrap().notes(), [""; 0]);
}

#[test]
fn parquet_of_all_compressions() {
    let batch = batch(0, 2_500);
    for compression in [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::LZ4_RAW,
        Compression::ZSTD(ZstdLevel::default()),
        Compression::GZIP(Default::default()),
        Compression::BROTLI(BrotliLevel::default()),
    ] {
        let dir = Dir::new(&[("a.parquet", &parquet(&batch, compression, 1000))]);
        let set = dir.open("a.parquet").unwrap();
        assert_eq!((set.units.len(), set.total_rows), (3, Some(2_500)));
        let content = read(&set).unwrap();
        assert_eq!(
            content.schema,
            [
                "id:Int64",
                "word:Utf8?",
                "list:List(Int64)?",
                "at:Timestamp(ns, \"Europe/Paris\")"
            ]
        );
        assert_eq!(content.rows, show(&batch));
        assert_eq!(content.places[2_499], "row 2500");
    }
}

#[test]
fn kept_columns_alone_are_read() {
    let dir = Dir::new(&[(
        "a.parquet",
        &parquet(&batch(0, 10), Compression::SNAPPY, 10),
    )]);
    let mut set = dir.open("a.parquet").unwrap();
    set.keep_columns(&["word", "id"]).unwrap();
    let content = read(&set).unwrap();
    assert_eq!(content.rows[..2], ["0|-", "1|y"]);
    set.keep_columns(&[]).unwrap();
    assert_eq!(read(&set).unwrap().rows.len(), 10);
}

#[test]
fn damaged_parquet_is_distinguished_from_good() {
    let good = parquet(&batch(0, 5_000), Compression::SNAPPY, 1000);
    let message = |bytes: &[u8]| {
        let dir = Dir::new(&[("a.parquet", bytes)]);
        let read = dir.open("a.parquet").and_then(|set| read(&set));
        read.err().map(|error| error.to_string())
    };
    assert_eq!(message(&good), None);
    assert!(
        message(&good[..good.len() - 100])
            .unwrap()
            .contains("a.parquet: its footer is damaged")
    );
    assert!(message(b"").unwrap().contains("it is empty (0 bytes)"));
    assert!(
        message(b"id,name\n1,2\n")
            .unwrap()
            .contains("it should be parquet, but its content looks like text: 'id,name'")
    );
    let mut holed = good.clone();
    let middle = good.len() / 3;
    holed[middle..middle + 2000].fill(0xff);
    let error = message(&holed).unwrap();
    assert!(error.contains("a.parquet: row group "), "{error}");
}

#[test]
fn arrow_files_and_streams() {
    let (first, second) = (batch(0, 100), batch(100, 50));
    let mut file = FileWriter::try_new(Vec::new(), &first.schema()).unwrap();
    let mut stream = StreamWriter::try_new(Vec::new(), &first.schema()).unwrap();
    // One dictionary for the file: files cannot replace it.
    for part in [&first.slice(0, 60), &first.slice(60, 40)] {
        file.write(part).unwrap();
    }
    for part in [&first, &second] {
        stream.write(part).unwrap();
    }
    let (file, stream) = (file.into_inner().unwrap(), stream.into_inner().unwrap());
    let dir = Dir::new(&[
        ("a.arrow", &file),
        ("b.arrows", &stream),
        ("c.arrow", &file[..file.len() / 2]),
    ]);
    let set = dir.open("a.arrow").unwrap();
    assert_eq!(set.units.len(), 2);
    let content = read(&set).unwrap();
    assert_eq!(content.rows, show(&first));
    assert_eq!(content.places[60], "record batch 2, row 1");
    let mut set = dir.open("b.arrows").unwrap();
    assert_eq!(
        read(&set).unwrap().rows,
        [show(&first), show(&second)].concat()
    );
    set.keep_columns(&["at"]).unwrap();
    assert_eq!(read(&set).unwrap().rows.len(), 150);
    let error = dir.open("c.arrow").unwrap_err().to_string();
    assert!(error.contains("c.arrow: its footer is damaged"), "{error}");
}

#[test]
fn widened_parquet() {
    let narrow = RecordBatch::try_from_iter([
        ("id", Arc::new(Int32Array::from(vec![1])) as ArrayRef),
        ("name", Arc::new(StringArray::from(vec!["a"]))),
    ]);
    let narrow = parquet(&narrow.unwrap(), Compression::SNAPPY, 10);
    let wide = parquet(&batch(7, 1), Compression::SNAPPY, 10);
    let text =
        RecordBatch::try_from_iter([("id", Arc::new(StringArray::from(vec!["a"])) as ArrayRef)]);
    let text = parquet(&text.unwrap(), Compression::SNAPPY, 10);
    let dir = Dir::new(&[("1.parquet", &narrow), ("2.parquet", &wide)]);
    let content = read(&dir.open("").unwrap()).unwrap();
    assert_eq!(
        content.schema[..3],
        ["id:Int64", "name:Utf8?", "word:Utf8?"]
    );
    assert_eq!(content.rows[0], "1|a|-|-|-");
    dir.write("3.parquet", &text);
    let error = dir.open("").unwrap_err().to_string();
    assert!(
        error.contains("the column 'id' is int64 in") && error.contains("but text in"),
        "{error}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn flipped_bits_give_errors_or_rows(at in any::<prop::sample::Index>(), bit in 0_u8..8) {
        let name = "a.parquet";
        let mut bytes = parquet(&batch(0, 300), Compression::SNAPPY, 100);
        let at = at.index(bytes.len());
        bytes[at] ^= 1_u8 << bit;
        let dir = Dir::new(&[(name, &bytes)]);
        let Ok(set) = dir.open(name) else { return Ok(()) };
        for unit in &set.units {
            let _ = unit.read::<SourceError>(|_, _| Ok(()), |_| Ok(()));
        }
    }
}

#[test]
fn threads_read_units_side_by_side() {
    let batch = batch(0, 20_000);
    let dir = Dir::new(&[("a.parquet", &parquet(&batch, Compression::SNAPPY, 500))]);
    let set = dir.open("a.parquet").unwrap();
    let (next, rows) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some(unit) = set.units.get(next.fetch_add(1, Relaxed)) {
                    let read = unit.read::<SourceError>(
                        |batch, _| {
                            rows.fetch_add(batch.num_rows(), Relaxed);
                            Ok(())
                        },
                        |_| Ok(()),
                    );
                    read.unwrap();
                }
            });
        }
    });
    assert_eq!(rows.into_inner(), 20_000);
}
