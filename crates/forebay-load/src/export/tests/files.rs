//! Exported files, read again by the sources.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_buffer::i256;
use arrow_cast::cast;
use arrow_schema::{DataType, Field, Fields, IntervalUnit, Schema, SchemaRef, TimeUnit};
use arrow_select::concat::concat_batches;
use proptest::prelude::*;

use super::arrays::{Rng, array, data_type, scalar_types};
use crate::convert::conform;
use crate::encode::{EncodeError, RowEncoder, ValueChoice};
use crate::export::*;
use crate::sources::{SourceError, SourceOptions, SourceSet};
use crate::types::{arrow_schema, row_schema};

pub fn export(
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
        schema: &schema,
        value: "",
        key: Some(key),
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
pub fn read_back(name: &str, bytes: &[u8]) -> Vec<RecordBatch> {
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

/// Columns of these types beside an `id`.
fn batch_of(rng: &mut Rng, types: &[DataType], rows: usize) -> RecordBatch {
    let named = types.iter().enumerate();
    let fields = named.map(|(at, data_type)| Field::new(format!("c{at}"), data_type.clone(), true));
    let mut fields: Vec<Field> = fields.collect();
    fields.insert(0, Field::new("id", DataType::Int64, false));
    let mut columns: Vec<_> = types.iter().map(|t| array(rng, t, rows, true)).collect();
    let ids = arrow_array::Int64Array::from_iter_values(0..rows as i64);
    columns.insert(0, Arc::new(ids));
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap()
}

/// All scalar types, and nested ones.
fn wide_batch(rows: usize) -> RecordBatch {
    let list = DataType::new_list(DataType::Utf8, true);
    let seconds = DataType::Timestamp(TimeUnit::Second, Some("Europe/Berlin".into()));
    let fields = vec![
        Field::new("x", DataType::Int64, true),
        Field::new("y", list.clone(), true),
        Field::new("z", seconds, true),
    ];
    let mut types = scalar_types();
    types.extend([
        list.clone(),
        DataType::Struct(fields.into()),
        DataType::new_fixed_size_list(DataType::Float32, 3, true),
        DataType::new_list(list, true),
        DataType::new_list(DataType::Time32(TimeUnit::Second), true),
        DataType::new_list(DataType::Date64, true),
    ]);
    batch_of(&mut Rng(11), &types, rows)
}

/// Returns the plain types that a table has for a batch.
fn plain_schema_of(batch: &RecordBatch) -> SchemaRef {
    let key = "{id}".parse().unwrap();
    let encoder = RowEncoder::new(&batch.schema(), &key, &ValueChoice::Row).unwrap();
    arrow_schema(encoder.schema())
}

/// Exports a batch and reads it back: the same types, the same values.
fn check(batch: &RecordBatch, format: ExportFormat, name: &str) {
    let (rows, bytes) = export(batch, "k/{id}", format).unwrap();
    assert_eq!(rows, batch.num_rows() as u64);
    let plain = plain_schema_of(batch);
    let back = read_back(name, &bytes);
    let read = concat_batches(&back[0].schema(), &back).unwrap();
    for (index, (before, field)) in batch.columns().iter().zip(plain.fields()).enumerate() {
        let after = read.column(index);
        assert_eq!(field.data_type(), after.data_type(), "{}", field.name());
        let expected = cast(before, field.data_type()).unwrap();
        assert_eq!(&expected, after, "{}", before.data_type());
    }
}

#[test]
fn arrow_restores_types_and_values() {
    let batch = wide_batch(300);
    check(&batch, ExportFormat::Arrow, "a.arrow");
    check(&batch, ExportFormat::ArrowStream, "a.arrows");
    let (rows, bytes) = export(&batch.slice(0, 0), "{id}", ExportFormat::Arrow).unwrap();
    assert_eq!((rows, read_back("a.arrow", &bytes).len()), (0, 0));
}

/// Returns whether Parquet has a type for it, at any depth, without altering it.
fn in_parquet(data_type: &DataType) -> bool {
    match data_type {
        DataType::Interval(_) | DataType::FixedSizeBinary(0) | DataType::FixedSizeList(_, 0) => {
            false
        }
        DataType::Decimal32(_, scale)
        | DataType::Decimal64(_, scale)
        | DataType::Decimal128(_, scale)
        | DataType::Decimal256(_, scale) => *scale >= 0,
        DataType::Struct(fields) => {
            !fields.is_empty() && fields.iter().all(|field| in_parquet(field.data_type()))
        }
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _)
        | DataType::Map(item, _) => in_parquet(item.data_type()),
        _ => true,
    }
}

#[test]
fn parquet_restores_types_and_values() {
    let batch = wide_batch(300);
    let fields = batch.schema_ref().fields().iter().enumerate();
    let kept = fields.filter(|(_, field)| in_parquet(field.data_type()));
    let kept: Vec<usize> = kept.map(|(index, _)| index).collect();
    check(
        &batch.project(&kept).unwrap(),
        ExportFormat::Parquet,
        "a.parquet",
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn nested_types_are_read_back(seed in 1_u64.., columns in 1_usize..4, rows in 1_usize..30) {
        let mut rng = Rng(seed);
        let types: Vec<DataType> = (0..columns).map(|_| data_type(&mut rng, 5)).collect();
        check(&batch_of(&mut rng, &types, rows), ExportFormat::Arrow, "a.arrow");
        let (has, lacks): (Vec<_>, Vec<_>) = types.into_iter().partition(in_parquet);
        check(&batch_of(&mut rng, &has, rows), ExportFormat::Parquet, "a.parquet");
        for data_type in lacks {
            let batch = batch_of(&mut rng, &[data_type], 1);
            match export(&batch, "{id}", ExportFormat::Parquet) {
                Err(ExportError::Type { column, .. }) => prop_assert!(column.starts_with("c0")),
                // A decimal that has another scale in Parquet.
                Ok(_) => prop_assert!(batch.schema().to_string().contains("Decimal")),
                Err(error) => prop_assert!(false, "{error}"),
            }
        }
    }
}

/// Creates an exporter of one column `c` of a type.
fn begin(data_type: &DataType, format: ExportFormat) -> Result<Exporter<Vec<u8>>, ExportError> {
    let fields = vec![Field::new("c", data_type.clone(), true)];
    let schema = row_schema(&Arc::new(Schema::new(fields))).unwrap();
    let options = ExportOptions {
        values: ExportValues::Rows(&schema),
        schema: &schema,
        value: "",
        key: None,
        format,
        binary: false,
    };
    Exporter::new(&options, Vec::new())
}

#[test]
fn types_that_a_format_lacks_are_reported_first() {
    use ExportFormat::{Arrow, Csv, JsonLines, Parquet};
    let interval = DataType::Interval(IntervalUnit::MonthDayNano);
    let inner = vec![Field::new("i", interval, true)];
    let deep = DataType::new_list(DataType::Struct(inner.into()), true);
    let error = begin(&deep, Parquet).err().unwrap().to_string();
    assert_eq!(
        error,
        "column 'c[].i' (interval) is an interval: that of Parquet has no sign and no nanoseconds, and few \
         read it: export to an .arrow, .jsonl or .csv file"
    );
    for (data_type, without) in [
        (DataType::Struct(Fields::empty()), vec![Parquet]),
        (DataType::FixedSizeBinary(0), vec![Parquet]),
        (DataType::Decimal128(38, -40), vec![Parquet]),
    ] {
        for format in [Parquet, Csv, JsonLines, Arrow] {
            let begun = begin(&data_type, format);
            assert_eq!(
                begun.is_err(),
                without.contains(&format),
                "{data_type} {format:?}"
            );
        }
    }
}

#[test]
fn types_that_parquet_keeps_in_part_are_noted() {
    let notes = |data_type: DataType| {
        begin(&data_type, ExportFormat::Parquet)
            .unwrap()
            .notes()
            .to_vec()
    };
    let duration = notes(DataType::Duration(TimeUnit::Second));
    assert!(
        duration[0].contains("'c' (duration(s)) is written as whole numbers"),
        "{duration:?}"
    );
    let decimal = notes(DataType::new_list(DataType::Decimal64(10, -2), true));
    assert!(
        decimal[0].contains("'c[]' (decimal64(10,-2)) is written with the scale 0"),
        "{decimal:?}"
    );
    assert!(notes(DataType::Timestamp(TimeUnit::Second, None)).is_empty());
    let arrow = begin(&DataType::Duration(TimeUnit::Second), ExportFormat::Arrow).unwrap();
    assert!(arrow.notes().is_empty());
}

#[test]
fn values_that_parquet_lacks_end_the_export() {
    let ids: arrow_array::ArrayRef = Arc::new(arrow_array::Int64Array::from(vec![7]));
    let of = |array: arrow_array::ArrayRef| {
        let batch = RecordBatch::try_from_iter([("id", ids.clone()), ("c", array)]).unwrap();
        export(&batch, "{id}", ExportFormat::Parquet)
            .unwrap_err()
            .to_string()
    };
    let date = of(Arc::new(arrow_array::Date64Array::from(vec![86_400_001])));
    assert!(
        date.contains("column 'c' at the key '7' cannot be written"),
        "{date}"
    );
    assert!(
        date.ends_with("whole days of 32 bits, and it is not one; export to an .arrow file"),
        "{date}"
    );
    let seconds = of(Arc::new(arrow_array::TimestampSecondArray::from(vec![
        i64::MAX / 1000 + 1,
    ])));
    assert!(seconds.contains("too far"), "{seconds}");
}

#[test]
fn negative_scales_become_whole() {
    let narrow = arrow_array::Decimal128Array::from(vec![Some(12), None, Some(-3)]);
    let narrow = narrow.with_precision_and_scale(10, -2).unwrap();
    let least = i256::from_i128(-(10_i128.pow(38)) + 1);
    let wide = arrow_array::Decimal256Array::from(vec![Some(least), Some(i256::ONE), None]);
    let wide = wide.with_precision_and_scale(60, -10).unwrap();
    let columns: Vec<(&str, arrow_array::ArrayRef)> = vec![
        ("id", Arc::new(arrow_array::Int64Array::from(vec![1, 2, 3]))),
        ("narrow", Arc::new(narrow)),
        ("wide", Arc::new(wide)),
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
    let power = i256::from_i128(10_i128.pow(10));
    let expected = vec![Some(least.wrapping_mul(power)), Some(power), None];
    let expected = arrow_array::Decimal256Array::from(expected);
    let expected = expected.with_precision_and_scale(70, 0).unwrap();
    assert_eq!(
        back.column(2).as_ref(),
        &expected as &dyn arrow_array::Array
    );
}
