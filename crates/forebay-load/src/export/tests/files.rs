//! Exported files, read again by the sources.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_cast::cast;
use arrow_schema::{DataType, Field, Schema};

use super::arrays::{Dice, array, scalar_types};
use crate::convert::conform;
use crate::encode::{EncodeError, RowEncoder, ValueChoice};
use crate::export::*;
use crate::sources::{SourceError, SourceOptions, SourceSet};
use crate::types::arrow_schema;

fn export(
    batch: &RecordBatch,
    key: &str,
    format: ExportFormat,
) -> Result<(u64, Vec<u8>), ExportError> {
    let mut encoder =
        RowEncoder::new(&batch.schema(), &key.parse().unwrap(), &ValueChoice::Row).unwrap();
    let schema = encoder.schema().clone();
    let values = ExportValues::Rows(&schema);
    let options = ExportOptions {
        values,
        key,
        format,
        binary: false,
    };
    let mut exporter = Exporter::new(&options, Vec::new())?;
    let batch = &conform(batch, encoder.batch_schema()).unwrap();
    let pushed = encoder.encode::<PushError>(
        batch,
        |_, key, operation| Ok(exporter.push(key, operation.value().unwrap().0)?),
        |_, bad| panic!("{bad}"),
    );
    match pushed {
        Ok(()) => exporter.finish(),
        Err(PushError::Export(error)) => Err(error),
        Err(PushError::Encode(error)) => panic!("{error}"),
    }
}

#[derive(Debug, thiserror::Error)]
enum PushError {
    #[error(transparent)]
    Export(#[from] ExportError),
    #[error(transparent)]
    Encode(#[from] EncodeError),
}

#[expect(clippy::disallowed_methods, reason = "makes an input file")]
fn read_back(name: &str, bytes: &[u8]) -> Vec<RecordBatch> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    let set = SourceSet::open(
        &vec![path.to_str().unwrap().to_owned()].into(),
        &SourceOptions::default(),
    );
    let mut batches = Vec::new();
    for unit in &set.unwrap().units {
        let read = unit.read::<SourceError>(
            |batch, _| {
                batches.push(batch);
                Ok(())
            },
            |reject| panic!("{reject:?}"),
        );
        read.unwrap();
    }
    batches
}

/// All scalar types that parquet has, and nested ones.
fn wide_batch(rows: usize) -> RecordBatch {
    let mut dice = Dice(11);
    let list = DataType::new_list(DataType::Utf8, true);
    let fields = vec![
        Field::new("x", DataType::Int64, true),
        Field::new("y", list.clone(), true),
    ];
    let mut types = scalar_types();
    // Tested apart: no random bits make a whole day, and a negative scale changes.
    types.retain(|data_type| !matches!(data_type, DataType::Interval(_) | DataType::Date64));
    types.retain(|data_type| {
        !matches!(
            data_type,
            DataType::Decimal64(_, ..0) | DataType::Decimal256(_, ..0)
        )
    });
    types.extend([
        list.clone(),
        DataType::Struct(fields.into()),
        DataType::new_fixed_size_list(DataType::Float32, 3, true),
        DataType::new_list(list, true),
    ]);
    let named = types.iter().enumerate();
    let fields = named.map(|(at, data_type)| Field::new(format!("c{at}"), data_type.clone(), true));
    let mut fields: Vec<Field> = fields.collect();
    fields.insert(0, Field::new("id", DataType::Int64, false));
    let mut columns: Vec<_> = types
        .iter()
        .map(|t| array(&mut dice, t, rows, true))
        .collect();
    columns.insert(
        0,
        Arc::new(arrow_array::Int64Array::from_iter_values(0..rows as i64)),
    );
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap()
}

#[test]
fn parquet_restores_types_and_values() {
    let batch = wide_batch(300);
    let (rows, bytes) = export(&batch, "k/{id}", ExportFormat::Parquet).unwrap();
    assert_eq!(rows, 300);
    let back = read_back("a.parquet", &bytes);
    let encoder =
        RowEncoder::new(&batch.schema(), &"{id}".parse().unwrap(), &ValueChoice::Row).unwrap();
    let plain = arrow_schema(encoder.schema());
    let read = arrow_select::concat::concat_batches(&back[0].schema(), &back).unwrap();
    for ((before, field), after) in batch
        .columns()
        .iter()
        .zip(plain.fields())
        .zip(read.columns())
    {
        assert_eq!(field.data_type(), after.data_type(), "{}", field.name());
        assert_eq!(
            &cast(before, field.data_type()).unwrap(),
            after,
            "{}",
            before.data_type()
        );
    }
}

#[test]
fn what_parquet_lacks_is_told() {
    let mut dice = Dice(5);
    let interval = DataType::Interval(arrow_schema::IntervalUnit::MonthDayNano);
    let fields = vec![
        Field::new("id", DataType::Int64, false),
        Field::new("i", interval.clone(), true),
    ];
    let ids = Arc::new(arrow_array::Int64Array::from(vec![1, 2]));
    let columns: Vec<arrow_array::ArrayRef> = vec![ids, array(&mut dice, &interval, 2, false)];
    let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap();
    let error = export(&batch, "{id}", ExportFormat::Parquet)
        .unwrap_err()
        .to_string();
    assert!(error.contains("export to jsonl or csv"), "{error}");
    assert!(export(&batch, "{id}", ExportFormat::JsonLines).is_ok());
}

#[test]
fn negative_scales_become_whole() {
    let decimals = arrow_array::Decimal128Array::from(vec![Some(12), None, Some(-3)]);
    let decimals = decimals.with_precision_and_scale(10, -2).unwrap();
    let columns: Vec<(&str, arrow_array::ArrayRef)> = vec![
        ("id", Arc::new(arrow_array::Int64Array::from(vec![1, 2, 3]))),
        ("d", Arc::new(decimals)),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let (_, bytes) = export(&batch, "{id}", ExportFormat::Parquet).unwrap();
    let back = read_back("a.parquet", &bytes).remove(0);
    let expected = arrow_array::Decimal128Array::from(vec![Some(1200), None, Some(-300)]);
    let expected = expected.with_precision_and_scale(12, 0).unwrap();
    assert_eq!(
        back.column(1).as_ref(),
        &expected as &dyn arrow_array::Array
    );
}

fn small() -> RecordBatch {
    let text = "{\"id\":1,\"name\":\"a,\\\"b\\\"\\nc\",\"tags\":[\"x\"],\"late\":true}\n{\"id\":2,\"name\":\"\"}\n";
    read_back("a.jsonl", text.as_bytes()).remove(0)
}

#[test]
fn csv_and_json_lines() {
    let (_, csv) = export(&small(), "{id}", ExportFormat::Csv).unwrap();
    assert_eq!(
        String::from_utf8(csv).unwrap(),
        "id,name,tags,late\n1,\"a,\"\"b\"\"\nc\",\"[\"\"x\"\"]\",true\n2,\"\",,\n"
    );
    let (_, json) = export(&small(), "{id}", ExportFormat::JsonLines).unwrap();
    assert_eq!(
        String::from_utf8(json.clone()).unwrap(),
        concat!(
            "{\"id\":1,\"name\":\"a,\\\"b\\\"\\nc\",\"tags\":[\"x\"],\"late\":true}\n",
            "{\"id\":2,\"name\":\"\",\"tags\":null,\"late\":null}\n"
        )
    );
    assert_eq!(read_back("b.jsonl", &json)[0], small());
}

#[test]
fn keys_of_their_own() {
    let write = |values, key: &str, format, binary, records: &[(&[u8], &[u8])]| {
        let options = ExportOptions {
            values,
            key,
            format,
            binary,
        };
        let mut exporter = Exporter::new(&options, Vec::new())?;
        for (key, value) in records {
            exporter.push(key, value)?;
        }
        exporter.finish()
    };
    let text =
        |result: Result<(u64, Vec<u8>), ExportError>| String::from_utf8(result.unwrap().1).unwrap();
    let records: &[(&[u8], &[u8])] = &[(b"k1", b"v,1"), (b"k2", b"\xff")];
    let json = write(
        ExportValues::Bytes,
        "{id}",
        ExportFormat::JsonLines,
        false,
        records,
    );
    assert_eq!(
        text(json),
        "{\"key\":\"k1\",\"value\":\"v,1\"}\n{\"key\":\"k2\",\"value\":{\"base64\":\"/w==\"}}\n"
    );
    let csv = write(
        ExportValues::Bytes,
        "{id}",
        ExportFormat::Csv,
        false,
        &records[..1],
    );
    assert_eq!(text(csv), "key,value\nk1,\"v,1\"\n");
    let parquet = write(
        ExportValues::Bytes,
        "{id}",
        ExportFormat::Parquet,
        false,
        records,
    );
    assert!(
        parquet
            .unwrap_err()
            .to_string()
            .contains("the value of the key 'k2' is not UTF-8")
    );
    let parquet = write(
        ExportValues::Bytes,
        "{id}",
        ExportFormat::Parquet,
        true,
        records,
    )
    .unwrap();
    assert_eq!(read_back("a.parquet", &parquet.1)[0].num_rows(), 2);

    let item = Kind::Int32;
    let mut list = forebay_run::row::ListWriter::new(&item);
    list.begin();
    list.fixed(&7_i32.to_le_bytes());
    list.null();
    let mut value = Vec::new();
    list.finish(&mut value).unwrap();
    let records: &[(&[u8], &[u8])] = &[(b"k", &value), (b"l", b"")];
    let json = write(
        ExportValues::Lists(&item),
        "{id}",
        ExportFormat::JsonLines,
        false,
        records,
    );
    assert_eq!(
        text(json),
        "{\"key\":\"k\",\"value\":[7,null]}\n{\"key\":\"l\",\"value\":[]}\n"
    );
    let parquet = write(
        ExportValues::Lists(&item),
        "{id}",
        ExportFormat::Parquet,
        false,
        records,
    );
    assert_eq!(read_back("a.parquet", &parquet.unwrap().1)[0].num_rows(), 2);

    let schema = forebay_run::row::Schema::new(vec![Column::new("key", Kind::Int32, true)]);
    let csv = write(
        ExportValues::Rows(&schema),
        "{gone}",
        ExportFormat::Csv,
        false,
        &[(b"k", &[0; 5])],
    );
    assert_eq!(text(csv), "_key,key\nk,\n");
    let cut = write(
        ExportValues::Rows(&schema),
        "{key}",
        ExportFormat::Csv,
        false,
        &[(b"k", b"x")],
    );
    assert!(
        cut.unwrap_err()
            .to_string()
            .contains("stored value of the key 'k'")
    );
}
