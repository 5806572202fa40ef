//! Tests conversions by example; the Python oracle of tests/ tests every pair of types.

use std::sync::Arc;

use arrow_array::builder::{Float64Builder, ListBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::{Decimal128Type, Float64Type, Int32Type, Int64Type, IntervalMonthDayNano};
use arrow_array::{
    Array, ArrayRef, BooleanArray, Decimal128Array, DictionaryArray, DurationSecondArray,
    Float64Array, Int64Array, IntervalMonthDayNanoArray, ListArray, NullArray, RecordBatch,
    RecordBatchOptions, StringArray, StructArray, TimestampMicrosecondArray, UInt64Array,
};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Fields, SchemaRef};
use proptest::prelude::*;

use super::*;
use crate::type_name::parse_type;

/// Returns the batch with its columns, by position, as those of `schema`.
pub(crate) fn conform(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    let rules = Rules::default();
    let column = |(array, field): (&ArrayRef, &FieldRef)| {
        let (from, to) = (array.data_type(), field.data_type());
        let converter = Converter::new(field.name(), from, to, &rules)
            .map_err(|error| ArrowError::CastError(error.to_string()))?;
        let converted = converter.convert(array, &mut Changes::default());
        converted.map_err(|trouble| ArrowError::CastError(trouble.reason()))
    };
    let columns = batch.columns().iter().zip(schema.fields()).map(column);
    let rows = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(
        Arc::clone(schema),
        columns.collect::<Result<_, _>>()?,
        &rows,
    )
}

fn ty(name: &str) -> DataType {
    parse_type(name).unwrap_or_else(|| panic!("{name} is no type"))
}

/// Returns the converted array, and the number of changed values.
fn converted(array: &ArrayRef, to: &str, loss: Loss) -> Result<(Vec<String>, u64), String> {
    let rules = match loss {
        Loss::None => Rules::default(),
        loss => Rules::new([("x".to_owned(), loss)], |name| name == "x"),
    };
    let to = ty(to);
    let converter =
        Converter::new("x", array.data_type(), &to, &rules).map_err(|error| error.to_string())?;
    let mut changes = Changes::default();
    let made = match converter.convert(array, &mut changes) {
        Ok(made) => made,
        Err(trouble) => return Err(trouble.reason()),
    };
    assert_eq!((made.data_type(), made.len()), (&to, array.len()));
    rules.count(&changes);
    let changed = rules.lossy().iter().map(|lossy| lossy.values).sum();
    let options = FormatOptions::default().with_null("-");
    let shown = ArrayFormatter::try_new(made.as_ref(), &options).unwrap();
    Ok((
        (0..made.len())
            .map(|row| shown.value(row).to_string())
            .collect(),
        changed,
    ))
}

fn texts(values: &[&str]) -> ArrayRef {
    Arc::new(StringArray::from(values.to_vec()))
}

fn decimals(values: &[i128], precision: u8, scale: i8) -> ArrayRef {
    let array = Decimal128Array::from(values.to_vec());
    Arc::new(array.with_precision_and_scale(precision, scale).unwrap())
}

/// Returns each converted value, `bad` if it does not fit.
fn each(array: &ArrayRef, to: &str, loss: Loss) -> Vec<String> {
    let one = |row: usize| match converted(&array.slice(row, 1), to, loss) {
        Ok((values, changed)) => values[0].clone() + if changed > 0 { "!" } else { "" },
        Err(_) => "bad".to_owned(),
    };
    (0..array.len()).map(one).collect()
}

#[test]
fn numbers_are_the_same_number_or_none() {
    let floats: ArrayRef = Arc::new(Float64Array::from(vec![
        7.0,
        7.5,
        -0.0,
        1e300,
        f64::NAN,
        0.1,
        0.5,
        -2.5,
        9_007_199_254_740_992.0,
    ]));
    assert_eq!(
        each(&floats, "int32", Loss::None),
        ["7", "bad", "0", "bad", "bad", "bad", "bad", "bad", "bad"]
    );
    assert_eq!(
        each(&floats, "int32", Loss::Round),
        ["7", "8!", "0", "bad", "bad", "0!", "1!", "-3!", "bad"]
    );
    assert_eq!(each(&floats, "int32", Loss::Truncate)[..2], ["7", "7!"]);
    assert_eq!(
        each(&floats, "int32", Loss::Null),
        ["7", "-!", "0", "-!", "-!", "-!", "-!", "-!", "-!"]
    );
    assert_eq!(
        each(&floats, "float32", Loss::None),
        [
            "7.0",
            "7.5",
            "-0.0",
            "bad",
            "NaN",
            "bad",
            "0.5",
            "-2.5",
            "9.007199e15"
        ]
    );
    assert_eq!(
        each(&floats, "decimal(5,1)", Loss::None),
        [
            "7.0", "7.5", "0.0", "bad", "bad", "bad", "0.5", "-2.5", "bad"
        ]
    );
    let wide: ArrayRef = Arc::new(Int64Array::from(vec![1 << 53, (1 << 53) + 1, i64::MAX, -1]));
    assert_eq!(
        each(&wide, "float64", Loss::None),
        ["9007199254740992.0", "bad", "bad", "-1.0"]
    );
    assert_eq!(each(&wide, "uint64", Loss::None)[3], "bad");
    assert_eq!(
        each(&wide, "decimal(38,19)", Loss::None)[2],
        "9223372036854775807.0000000000000000000"
    );
    let prices = decimals(&[199, 200, 150], 10, 2);
    assert_eq!(each(&prices, "int64", Loss::None), ["bad", "2", "bad"]);
    assert_eq!(each(&prices, "float64", Loss::None), ["bad", "2.0", "1.5"]);
    assert_eq!(each(&prices, "float64", Loss::Round)[0], "1.99!");
    assert_eq!(
        each(&prices, "decimal(3,1)", Loss::None),
        ["bad", "2.0", "1.5"]
    );
    assert_eq!(each(&prices, "bool", Loss::None), ["bad", "bad", "bad"]);
    let bits: ArrayRef = Arc::new(BooleanArray::from(vec![true, false]));
    assert_eq!(each(&bits, "float64", Loss::None), ["1.0", "0.0"]);
}

#[test]
fn texts_are_read_exactly() {
    let numbers = texts(&[
        "7.50",
        "7.5",
        "1e2",
        "007",
        "1e400",
        "1e-400",
        "0.12345678901234567",
        "0.123456789012345678",
        "9007199254740993",
        "9007199254740993.0",
        "NaN",
        "-Infinity",
        "",
        "1.",
        ".5",
        "0x1",
        "1_0",
        " 1",
        "+3",
    ]);
    assert_eq!(
        each(&numbers, "int64", Loss::None),
        [
            "bad",
            "bad",
            "100",
            "7",
            "bad",
            "bad",
            "bad",
            "bad",
            "9007199254740993",
            "9007199254740993",
            "bad",
            "bad",
            "bad",
            "1",
            "bad",
            "bad",
            "bad",
            "bad",
            "3"
        ]
    );
    let floats = each(&numbers, "float64", Loss::None);
    assert_eq!(
        floats[..9],
        [
            "7.5",
            "7.5",
            "100.0",
            "7.0",
            "bad",
            "bad",
            "0.12345678901234566",
            "bad",
            "bad"
        ]
    );
    assert_eq!(floats[10..13], ["NaN", "-inf", "bad"]);
    assert_eq!(
        each(&numbers, "decimal(10,0)", Loss::Round)[..2],
        ["8!", "8!"]
    );
    let bools = texts(&["true", "FALSE", "1", "0", "2", "yes"]);
    assert_eq!(
        each(&bools, "bool", Loss::None),
        ["true", "false", "true", "false", "bad", "bad"]
    );
}

#[test]
fn times_are_not_truncated() {
    let micros: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![
        1_500_000, 2_000_000, -500_000,
    ]));
    assert_eq!(
        each(&micros, "timestamp(s)", Loss::None),
        ["bad", "1970-01-01T00:00:02", "bad"]
    );
    assert_eq!(
        each(&micros, "timestamp(s)", Loss::Truncate),
        [
            "1970-01-01T00:00:01!",
            "1970-01-01T00:00:02",
            "1969-12-31T23:59:59!"
        ]
    );
    assert_eq!(each(&micros, "date", Loss::Truncate)[2], "1969-12-31!");
    let error = converted(&micros, "timestamptz", Loss::None).unwrap_err();
    assert!(error.contains("TYPE:utc"), "{error}");
    assert_eq!(
        each(&micros, "timestamptz(us)", Loss::Utc)[1],
        "1970-01-01T00:00:02Z!"
    );
    let error = converted(&micros, "int64", Loss::None).unwrap_err();
    assert!(
        error.contains("timestamp(us)") && error.contains("int64"),
        "{error}"
    );
    let written = texts(&[
        "2024-02-29",
        "2023-02-29",
        "2026-11-22T10:20:30.5",
        "2026-11-22 10:20",
        "2026-11-22T10:20:30Z",
        "-0001-01-01",
        "+12026-01-01",
        "2026-11-22T24:00:00",
        "2026-11-22T10:20:30.1234567",
    ]);
    assert_eq!(
        each(&written, "timestamp(us)", Loss::None),
        [
            "2024-02-29T00:00:00",
            "bad",
            "2026-11-22T10:20:30.500",
            "2026-11-22T10:20:00",
            "bad",
            "-0001-01-01T00:00:00",
            "+12026-01-01T00:00:00",
            "bad",
            "bad"
        ]
    );
    let zoned = texts(&[
        "2026-11-22T10:20:30+01:30",
        "2026-11-22T10:20:30",
        "2026-11-22T10:20:30-0200",
    ]);
    assert_eq!(
        each(&zoned, "timestamptz(s)", Loss::None),
        ["2026-11-22T08:50:30Z", "bad", "2026-11-22T12:20:30Z"]
    );
    assert_eq!(
        each(
            &texts(&["PT3.5S", "-PT1H0.001S", "P1DT1S", "P1M", "PT", "3"]),
            "duration(ms)",
            Loss::None
        ),
        ["PT3.5S", "-PT3600.001S", "PT86401S", "bad", "bad", "bad"]
    );
}

#[test]
fn fields_go_by_name_at_any_depth() {
    let fields = |names: [&str; 2]| {
        Fields::from(
            names
                .map(|name| Field::new(name, DataType::Float64, true))
                .to_vec(),
        )
    };
    let values: Vec<ArrayRef> = vec![
        Arc::new(Float64Array::from(vec![119.0, 1.0])),
        Arc::new(Float64Array::from(vec![100.0, 2.0])),
    ];
    let nulls = NullBuffer::from(vec![true, false]);
    let prices: ArrayRef = Arc::new(StructArray::new(
        fields(["gross", "net"]),
        values,
        Some(nulls),
    ));
    let to = "struct(net int64, gross int64)";
    assert_eq!(
        converted(&prices, to, Loss::None).unwrap().0,
        ["{net: 100, gross: 119}", "-"]
    );
    let wider = "struct(vat float64, net float64, gross float64)";
    assert_eq!(
        converted(&prices, wider, Loss::None).unwrap().0[0],
        "{vat: -, net: 100.0, gross: 119.0}"
    );
    let error = converted(&prices, "struct(net float64)", Loss::None).unwrap_err();
    assert!(error.contains("'x' has the field 'gross'"), "{error}");
}

#[test]
fn items_fail_their_rows_alone() {
    let mut lists = ListBuilder::new(Float64Builder::new());
    for list in [vec![1.0, 2.0], vec![], vec![3.0, 1.7, 1.8], vec![4.0]] {
        lists.append_value(list.into_iter().map(Some));
    }
    lists.append_null();
    let lists: ArrayRef = Arc::new(lists.finish());
    let to = ty("list(int32)");
    let converter = Converter::new("x", lists.data_type(), &to, &Rules::default()).unwrap();
    let Err(Trouble::Rows(failures)) = converter.convert(&lists, &mut Changes::default()) else {
        panic!("1.7 is no integer");
    };
    assert_eq!(failures.len(), 1);
    assert_eq!(failures[0].row, 2);
    assert!(
        failures[0]
            .reason
            .contains("'x[]' holds 1.7 (float64), which int32"),
        "{failures:?}"
    );
    let good = lists.slice(3, 2);
    assert_eq!(
        converted(&good, "list(int32)", Loss::None).unwrap().0,
        ["[4]", "-"]
    );
    assert_eq!(
        converted(&good, "list(int32,1)", Loss::None).unwrap().0,
        ["[4]", "-"]
    );
    assert!(
        converted(&good, "list(int32,2)", Loss::None)
            .unwrap_err()
            .contains("1 items")
    );
}

#[test]
fn values_below_nulls_are_ignored() {
    let items: ArrayRef = Arc::new(Float64Array::from(vec![0.5, 1.0, 0.5, 2.0]));
    let item = Arc::new(Field::new_list_field(DataType::Float64, true));
    let offsets = OffsetBuffer::new(vec![0, 1, 2, 3, 4].into());
    let nulls = NullBuffer::from(vec![false, true, false, true]);
    let lists: ArrayRef = Arc::new(ListArray::new(item, offsets, items, Some(nulls)));
    let shown = converted(&lists, "list(int64)", Loss::None).unwrap().0;
    assert_eq!(shown, ["-", "[1]", "-", "[2]"]);
}

#[test]
fn encodings_are_unwrapped() {
    let words: DictionaryArray<Int32Type> = ["7", "8", "7"].into_iter().collect();
    let words: ArrayRef = Arc::new(words);
    assert_eq!(
        converted(&words, "int8", Loss::None).unwrap().0,
        ["7", "8", "7"]
    );
    let nothing: ArrayRef = Arc::new(NullArray::new(2));
    assert_eq!(
        converted(&nothing, "list(int8)", Loss::None).unwrap().0,
        ["-", "-"]
    );
}

/// Converts the array to text and back.
pub(super) fn there_and_back(array: &ArrayRef) -> ArrayRef {
    let rules = Rules::default();
    let there = Converter::new("x", array.data_type(), &DataType::Utf8, &rules).unwrap();
    let back = Converter::new("x", &DataType::Utf8, array.data_type(), &rules).unwrap();
    let text = there.convert(array, &mut Changes::default()).unwrap();
    back.convert(&text, &mut Changes::default()).unwrap()
}

proptest! {
    #[test]
    fn integers_and_decimals_are_read_back(value: i64, scale in 0_i8..18) {
        let array: ArrayRef = Arc::new(Int64Array::from(vec![value]));
        let to = DataType::Decimal128(38, scale);
        let there = Converter::new("x", &DataType::Int64, &to, &Rules::default()).unwrap();
        let back = Converter::new("x", &to, &DataType::Int64, &Rules::default()).unwrap();
        let made = there.convert(&array, &mut Changes::default()).unwrap();
        let expected = i128::from(value) * 10_i128.pow(scale as u32);
        prop_assert_eq!(made.as_primitive::<Decimal128Type>().value(0), expected);
        let made = back.convert(&made, &mut Changes::default()).unwrap();
        prop_assert_eq!(made.as_primitive::<Int64Type>().value(0), value);
    }

    #[test]
    fn floats_are_read_back_from_their_text(bits: u64) {
        let value = f64::from_bits(bits);
        let array: ArrayRef = Arc::new(Float64Array::from(vec![value]));
        let made = there_and_back(&array);
        let made = made.as_primitive::<Float64Type>().value(0);
        prop_assert!(made == value || (made.is_nan() && value.is_nan()), "{} {}", value, made);
    }

    #[test]
    fn spans_are_read_back_from_their_text(months: i32, days: i32, nanoseconds: i64, shift in 0_u32..63) {
        let spans = [(months, days, nanoseconds), (0, days, 0), (i32::MIN, 0, i64::MIN), (0, 0, nanoseconds >> shift)];
        let spans = spans.map(|(months, days, ns)| IntervalMonthDayNano::new(months, days, ns));
        let array: ArrayRef = Arc::new(IntervalMonthDayNanoArray::from(spans.to_vec()));
        prop_assert_eq!(&there_and_back(&array), &array);
        let seconds = [nanoseconds, nanoseconds >> shift, i64::MIN, i64::MAX, 0];
        let array: ArrayRef = Arc::new(DurationSecondArray::from(seconds.to_vec()));
        prop_assert_eq!(&there_and_back(&array), &array);
    }

    #[test]
    fn a_float_is_exact_exactly_when_its_integer_is(value: u64) {
        let array: ArrayRef = Arc::new(UInt64Array::from(vec![value]));
        let exact = (value as f64) as u128 == u128::from(value);
        prop_assert_eq!(converted(&array, "float64", Loss::None).is_ok(), exact);
    }
}

#[test]
fn times_are_of_a_day() {
    let micros = [-53_940_000_000, 0, 86_399_999_999, 86_400_000_000];
    let times: ArrayRef = Arc::new(arrow_array::Time64MicrosecondArray::from(micros.to_vec()));
    let expected = ["bad", "00:00:00", "23:59:59.999999", "bad"];
    for to in ["time", "time(ns)"] {
        assert_eq!(each(&times, to, Loss::None), expected, "{to}");
    }
    let reason = converted(&times, "time", Loss::None).unwrap_err();
    assert_eq!(
        reason,
        "the column 'x' holds -14:59:00.000000 (time(us)), which is no time of a day; --column 'x:time(us):null' would make it \
         null"
    );
    let field = Arc::new(Field::new("t", times.data_type().clone(), true));
    let nested: ArrayRef = Arc::new(StructArray::from(vec![(field, times)]));
    let same = Converter::new(
        "s",
        nested.data_type(),
        nested.data_type(),
        &Rules::default(),
    );
    let converted = same.unwrap().convert(&nested, &mut Changes::default());
    let reason = converted.unwrap_err().reason();
    assert!(
        reason.starts_with("the column 's.t' holds -14:59:00"),
        "{reason}"
    );
}
