//! Keys and values of hand-made batches; the round trip of every type is tested in `export`.

use std::sync::Arc;

use arrow_array::types::{Float64Type, Int32Type, TimestampMillisecondType};
use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, DictionaryArray,
    FixedSizeBinaryArray, Float64Array, Int32Array, Int64Array, ListArray, PrimitiveArray,
    RecordBatch, StringArray, StructArray,
};
use arrow_schema::{DataType, Field};
use forebay_run::format::MAX_KEY_BYTES;
use forebay_run::row::{ListView, RowView};

use super::*;
use crate::convert::conform;
use crate::uuid::with_uuid_mark;

fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable(
        columns.into_iter().map(|(name, array)| (name, array, true)),
    )
    .unwrap()
}

type Pair = (Vec<u8>, Vec<u8>);
type BadCell = (usize, String);

/// Returns keys and values of the good rows, and errors of the bad ones.
fn encode(
    batch: &RecordBatch,
    key: &str,
    value: ValueChoice,
) -> Result<(Vec<Pair>, Vec<BadCell>), EncodeError> {
    let mut encoder = RowEncoder::new(&batch.schema(), &key.parse().unwrap(), &value)?;
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    let batch = conform(batch, encoder.batch_schema()).unwrap();
    encoder.encode::<EncodeError>(
        &batch,
        |_, key, operation| {
            let (value, _) = operation.value().unwrap();
            good.push((key.to_vec(), value.to_vec()));
            Ok(())
        },
        |row, reason| {
            bad.push((row, reason.to_string()));
            Ok(())
        },
    )?;
    Ok((good, bad))
}

fn keys(array: ArrayRef, key: &str) -> Vec<Result<String, String>> {
    let batch = batch(vec![("a", array)]);
    let (good, bad) = encode(&batch, key, ValueChoice::Row).unwrap();
    let (mut good, mut bad) = (good.into_iter(), bad.into_iter().peekable());
    (0..batch.num_rows())
        .map(|row| match bad.next_if(|(index, _)| *index == row) {
            Some((_, reason)) => Err(reason),
            None => Ok(String::from_utf8(good.next().unwrap().0).unwrap()),
        })
        .collect()
}

fn texts(array: ArrayRef, key: &str) -> Vec<String> {
    keys(array, key).into_iter().map(Result::unwrap).collect()
}

#[test]
fn big_endian_keys_sort_as_their_numbers() {
    use arrow_array::{ArrayRef, Int32Array, RecordBatch, TimestampMillisecondArray, UInt64Array};
    use std::sync::Arc;
    let counts: ArrayRef = Arc::new(UInt64Array::from(vec![u64::MAX, 0, 1 << 63, 7]));
    let temperatures: ArrayRef = Arc::new(Int32Array::from(vec![-5, i32::MIN, 0, i32::MAX]));
    let times: ArrayRef = Arc::new(TimestampMillisecondArray::from(vec![-1, i64::MIN, 0, 1]));
    let columns = [("a", counts), ("b", temperatures), ("c", times)];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let orders = [
        ("{a:be}", [1, 3, 2, 0]),
        ("{b:be}", [1, 0, 2, 3]),
        ("{c:be}", [1, 0, 2, 3]),
    ];
    for (template, wanted) in orders {
        let key = template.parse().unwrap();
        let mut encoder = RowEncoder::new(&batch.schema(), &key, &ValueChoice::Row).unwrap();
        let mut keys = Vec::new();
        let accept = |row: usize, key: &[u8], _: Operation<'_>| {
            keys.push((key.to_vec(), row));
            Ok::<(), EncodeError>(())
        };
        encoder
            .encode(&batch, accept, |row, bad| panic!("{row}: {bad}"))
            .unwrap();
        keys.sort();
        assert!(keys.iter().all(|(key, _)| key.len() == 8));
        let order: Vec<usize> = keys.iter().map(|(_, row)| *row).collect();
        assert_eq!(order, wanted, "{template}");
    }
}

#[test]
fn numbers_in_keys() {
    let numbers = || Arc::new(Int64Array::from(vec![7, 123_456, -1]));
    assert_eq!(texts(numbers(), "f/{a}"), ["f/7", "f/123456", "f/-1"]);
    let padded = keys(numbers(), "{a:05}");
    assert_eq!(padded[..2], [Ok("00007".into()), Ok("123456".into())]);
    assert!(padded[2].as_ref().unwrap_err().contains("negative"));
    let decimals = Decimal128Array::from(vec![5, 12_345])
        .with_precision_and_scale(10, 2)
        .unwrap();
    assert_eq!(texts(Arc::new(decimals), "{a:7}"), ["0000.05", "0123.45"]);
    let floats = keys(
        Arc::new(Float64Array::from(vec![2.0, -0.0, 2.5, f64::NAN, 1e300])),
        "{a}",
    );
    assert_eq!(floats[..2], [Ok("2".into()), Ok("0".into())]);
    assert!(
        floats[2..]
            .iter()
            .all(|key| key.as_ref().unwrap_err().contains("floats make keys"))
    );
}

#[test]
fn times_in_keys() {
    let times = PrimitiveArray::<TimestampMillisecondType>::from(vec![0, -1, i64::MAX])
        .with_timezone("Asia/Tokyo");
    let keys = keys(Arc::new(times), "{a}");
    assert_eq!(keys[0].as_deref(), Ok("1970-01-01T00:00:00.000Z"));
    assert_eq!(keys[1].as_deref(), Ok("1969-12-31T23:59:59.999Z"));
    assert!(
        keys[2]
            .as_ref()
            .unwrap_err()
            .contains("outside 0000 to 9999")
    );
    let dates = Arc::new(Date32Array::from(vec![0, 20_000]));
    assert_eq!(texts(dates, "d{{{a}}}"), ["d{1970-01-01}", "d{2024-10-04}"]);
    let flags = Arc::new(BooleanArray::from(vec![true, false]));
    assert_eq!(texts(flags, "{a}"), ["true", "false"]);
}

#[test]
fn rows_without_a_key_are_bad() {
    let long = "x".repeat(MAX_KEY_BYTES + 1);
    let names = StringArray::from(vec![Some("a"), None, Some(""), Some(&long)]);
    let keys = keys(Arc::new(names), "{a}");
    assert_eq!(keys[0].as_deref(), Ok("a"));
    assert_eq!(keys[1].as_ref().unwrap_err(), "the key column 'a' is null");
    assert_eq!(keys[2].as_ref().unwrap_err(), "the key is empty");
    assert!(
        keys[3]
            .as_ref()
            .unwrap_err()
            .contains("8193 bytes, and 8192 is the limit")
    );
}

#[test]
fn bytes_in_keys() {
    let id: [u8; 16] = std::array::from_fn(|at| (at * 17) as u8);
    let ids = FixedSizeBinaryArray::try_from_iter([id, [0xa; 16]].into_iter()).unwrap();
    let ids: ArrayRef = Arc::new(ids);
    let hex = [
        "00112233445566778899aabbccddeeff",
        "0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a",
    ];
    let uuid = [
        "00112233-4455-6677-8899-aabbccddeeff",
        "0a0a0a0a-0a0a-0a0a-0a0a-0a0a0a0a0a0a",
    ];
    assert_eq!(texts(ids.clone(), "{a:hex}"), hex);
    assert_eq!(texts(ids.clone(), "{a:uuid}"), uuid);
    assert_eq!(
        texts(ids.clone(), "u/{a:uuid}")[0],
        format!("u/{}", uuid[0])
    );
    let any: ArrayRef = Arc::new(BinaryArray::from_vec(vec![b"\xff\x00", b"", b"a"]));
    let keys = keys(any, "{a:hex}");
    assert_eq!(keys[0].as_deref(), Ok("ff00"));
    assert_eq!(keys[1].as_ref().unwrap_err(), "the key is empty");
    assert_eq!(keys[2].as_deref(), Ok("61"));
    // A column that is marked as holding UUIDs.
    let field = Field::new("a", ids.data_type().clone(), true);
    let schema = Arc::new(arrow_schema::Schema::new(vec![with_uuid_mark(field)]));
    let batch = RecordBatch::try_new(schema, vec![ids]).unwrap();
    let first = |key: &str| {
        encode(&batch, key, ValueChoice::Row).unwrap().0[0]
            .0
            .clone()
    };
    assert_eq!(first("{a}"), id);
    assert_eq!(first("{a}/x"), format!("{}/x", uuid[0]).into_bytes());
    assert_eq!(first("{a:hex}/x"), format!("{}/x", hex[0]).into_bytes());
    let template = "{a}/x".parse().unwrap();
    let encoder = RowEncoder::new(&batch.schema(), &template, &ValueChoice::Row).unwrap();
    assert_eq!(encoder.template().to_string(), "{a:uuid}/x");
}

#[test]
fn values_that_make_no_key_are_refused() {
    let binary: ArrayRef = Arc::new(BinaryArray::from_vec(vec![b"\xff\x00"]));
    let one = batch(vec![("a", binary.clone())]);
    let (good, _) = encode(&one, "{a}", ValueChoice::Row).unwrap();
    assert_eq!(good[0].0, b"\xff\x00");
    let refused = |array: ArrayRef, key: &str| {
        encode(&batch(vec![("a", array)]), key, ValueChoice::Row)
            .unwrap_err()
            .to_string()
    };
    let message = refused(binary.clone(), "x{a}");
    assert!(
        message.contains("binary") && message.contains("{COLUMN:hex}"),
        "{message}"
    );
    assert!(refused(binary, "{a:uuid}").contains("no 16 bytes"));
    let text: ArrayRef = Arc::new(StringArray::from(vec!["x"]));
    assert!(refused(text.clone(), "{a:3}").contains("only numbers have a width"));
    assert!(refused(text.clone(), "{a:hex}").contains("only bytes"));
    assert!(refused(text, "{b}").contains("'b', which the source does not have; it has: a"));
    let nested =
        StructArray::try_from(vec![("x", Arc::new(Int32Array::from(vec![1])) as ArrayRef)]);
    assert!(refused(Arc::new(nested.unwrap()), "{a}").contains("nested"));
}

#[test]
fn rows_lists_and_bytes() {
    let words: DictionaryArray<Int32Type> = vec![Some("x"), None, Some("x")].into_iter().collect();
    let list = ListArray::from_iter_primitive::<Float64Type, _, _>(vec![
        Some(vec![Some(1.5), None]),
        Some(vec![]),
        None,
    ]);
    let batch = batch(vec![
        ("id", Arc::new(Int32Array::from(vec![1, 2, 3]))),
        ("word", Arc::new(words)),
        ("list", Arc::new(list)),
    ]);
    let encoder =
        RowEncoder::new(&batch.schema(), &"{id}".parse().unwrap(), &ValueChoice::Row).unwrap();
    let (good, bad) = encode(&batch, "{id}", ValueChoice::Row).unwrap();
    assert!(bad.is_empty());
    let json: Vec<String> = (good.iter())
        .map(|(_, value)| {
            let mut out = Vec::new();
            RowView::new(encoder.schema(), value)
                .unwrap()
                .json(&mut out)
                .unwrap();
            String::from_utf8(out).unwrap()
        })
        .collect();
    assert_eq!(
        json,
        [
            r#"{"id":1,"word":"x","list":[1.5,null]}"#,
            r#"{"id":2,"word":null,"list":[]}"#,
            r#"{"id":3,"word":"x","list":null}"#
        ]
    );

    let (good, bad) = encode(&batch, "{id}", ValueChoice::Column("word".into())).unwrap();
    assert_eq!(
        good,
        [
            (b"1".to_vec(), b"x".to_vec()),
            (b"3".to_vec(), b"x".to_vec())
        ]
    );
    assert_eq!(bad, [(1, "the value column 'word' is null".to_owned())]);

    let value = ValueChoice::Column("list".into());
    let encoder = RowEncoder::new(&batch.schema(), &"{id}".parse().unwrap(), &value).unwrap();
    let Encoded::List { item, .. } = encoder.encoded() else {
        panic!()
    };
    let (good, bad) = encode(&batch, "{id}", value).unwrap();
    assert_eq!(bad.len(), 1);
    let list = ListView::new(item, &good[0].1).unwrap();
    let mut out = Vec::new();
    list.json(&mut out).unwrap();
    assert_eq!((list.len(), out), (2, b"[1.5,null]".to_vec()));
    assert!(ListView::new(item, &good[1].1).unwrap().is_empty());
}

#[test]
fn unions_are_refused_by_name() {
    let fields = arrow_schema::UnionFields::try_new([0], [Field::new("x", DataType::Int8, true)]);
    let union = DataType::Union(fields.unwrap(), arrow_schema::UnionMode::Sparse);
    let nested = DataType::new_list(union, true);
    let schema = Arc::new(arrow_schema::Schema::new(vec![Field::new(
        "u", nested, true,
    )]));
    let error = RowEncoder::new(&schema, &"{u}".parse().unwrap(), &ValueChoice::Row).unwrap_err();
    assert!(
        error.to_string().contains("column 'u[]' is a union"),
        "{error}"
    );
}

#[test]
fn deltas_take_no_nan() {
    let batch = batch(vec![
        ("id", Arc::new(Int32Array::from(vec![1, 2]))),
        ("n", Arc::new(Float64Array::from(vec![f64::NAN, 0.5]))),
    ]);
    let value = ValueChoice::Number {
        column: "n".to_owned(),
        number: Number::F64,
    };
    let (good, bad) = encode(&batch, "{id}", value).unwrap();
    assert_eq!(good, [(b"2".to_vec(), 0.5f64.to_le_bytes().to_vec())]);
    let [(0, reason)] = &bad[..] else {
        panic!("{bad:?}")
    };
    assert!(
        reason.contains("'n' holds NaN, and deltas take no NaN"),
        "{reason}"
    );
}
