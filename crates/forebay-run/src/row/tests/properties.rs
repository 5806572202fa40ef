//! Random rows of random schemas are read back unchanged; random bytes never panic.

use proptest::collection::vec;
use proptest::prelude::*;

use crate::row::*;

/// An owned value to pack and compare with.
#[derive(Clone, Debug)]
enum Value {
    Null,
    Bool(bool),
    Int(i64),
    UInt(u64),
    Float(f64),
    Decimal(i128),
    Decimal256([u8; 32]),
    Text(String),
    Bytes(Vec<u8>),
    List(Vec<Value>),
    Row(Vec<Value>),
}

fn scalar_kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        Just(Kind::Null),
        Just(Kind::Bool),
        Just(Kind::Int8),
        Just(Kind::Int16),
        Just(Kind::Int32),
        Just(Kind::Int64),
        Just(Kind::UInt8),
        Just(Kind::UInt32),
        Just(Kind::UInt64),
        Just(Kind::Float64),
        Just(Kind::Decimal {
            precision: 9,
            scale: 2,
            bits: 32
        }),
        Just(Kind::Decimal {
            precision: 38,
            scale: -3,
            bits: 128
        }),
        Just(Kind::Decimal {
            precision: 76,
            scale: 10,
            bits: 256
        }),
        Just(Kind::Text),
        Just(Kind::Binary),
        (0_u32..9).prop_map(|width| Kind::FixedBinary { width }),
    ]
}

fn kind() -> impl Strategy<Value = Kind> {
    scalar_kind().prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            inner.clone().prop_map(|kind| Kind::List {
                item: Box::new(Column::new("item", kind, true)),
                length: None
            }),
            vec((inner.clone(), any::<bool>()), 0..4).prop_map(|columns| Kind::Struct {
                fields: schema_of(columns)
            }),
            (inner.clone(), inner).prop_map(|(key, value)| Kind::Map {
                entries: schema_of(vec![(key, false), (value, true)]),
                sorted: false
            }),
        ]
    })
}

fn schema_of(columns: Vec<(Kind, bool)>) -> Schema {
    let named = columns.into_iter().enumerate();
    Schema::new(
        named
            .map(|(at, (kind, null))| Column::new(format!("c{at}"), kind, null))
            .collect(),
    )
}

fn schema() -> impl Strategy<Value = Schema> {
    vec((kind(), any::<bool>()), 0..12).prop_map(schema_of)
}

fn value(kind: &Kind, nullable: bool) -> BoxedStrategy<Value> {
    let some = match kind.clone() {
        Kind::Null => Just(Value::Null).boxed(),
        Kind::Bool => any::<bool>().prop_map(Value::Bool).boxed(),
        Kind::Int8 => any::<i8>().prop_map(|v| Value::Int(v.into())).boxed(),
        Kind::Int16 => any::<i16>().prop_map(|v| Value::Int(v.into())).boxed(),
        Kind::Int32 => any::<i32>().prop_map(|v| Value::Int(v.into())).boxed(),
        Kind::Int64 => (any::<i64>(), 0..64)
            .prop_map(|(v, by)| Value::Int(v >> by))
            .boxed(),
        Kind::UInt8 => any::<u8>().prop_map(|v| Value::UInt(v.into())).boxed(),
        Kind::UInt32 => any::<u32>().prop_map(|v| Value::UInt(v.into())).boxed(),
        Kind::UInt64 => (any::<u64>(), 0..64)
            .prop_map(|(v, by)| Value::UInt(v >> by))
            .boxed(),
        Kind::Float64 => any::<f64>().prop_map(Value::Float).boxed(),
        Kind::Decimal { bits: 32, .. } => {
            any::<i32>().prop_map(|v| Value::Decimal(v.into())).boxed()
        }
        Kind::Decimal { bits: 256, .. } => any::<[u8; 32]>().prop_map(Value::Decimal256).boxed(),
        Kind::Decimal { .. } => (any::<i128>(), 0..128)
            .prop_map(|(v, by)| Value::Decimal(v >> by))
            .boxed(),
        Kind::Text => ".{0,300}".prop_map(Value::Text).boxed(),
        Kind::FixedBinary { width } => vec(any::<u8>(), width as usize)
            .prop_map(Value::Bytes)
            .boxed(),
        Kind::List { item, .. } => vec(value(&item.kind, true), 0..20)
            .prop_map(Value::List)
            .boxed(),
        Kind::Struct { fields } => row(&fields).prop_map(Value::Row).boxed(),
        Kind::Map { entries, .. } => vec(row(&entries).prop_map(Value::Row), 0..5)
            .prop_map(Value::List)
            .boxed(),
        _ => vec(any::<u8>(), 0..70).prop_map(Value::Bytes).boxed(),
    };
    if nullable {
        prop_oneof![1 => Just(Value::Null), 3 => some].boxed()
    } else {
        some
    }
}

fn row(schema: &Schema) -> BoxedStrategy<Vec<Value>> {
    let columns = schema.columns().iter();
    columns
        .map(|column| value(&column.kind, column.nullable))
        .collect::<Vec<_>>()
        .boxed()
}

fn pack_row(schema: &Schema, values: &[Value]) -> Vec<u8> {
    let mut writer = RowWriter::new(schema);
    writer.begin();
    for (index, (column, value)) in schema.columns().iter().zip(values).enumerate() {
        let mut packed = Vec::new();
        let datum = datum(&column.kind, value, &mut packed);
        writer.datum(index, &column.kind, &datum).unwrap();
    }
    let mut out = Vec::new();
    writer.finish(&mut out).unwrap();
    out
}

fn pack_list(kind: &Kind, values: &[Value]) -> Vec<u8> {
    let mut writer = ListWriter::new(kind);
    writer.begin();
    for value in values {
        let mut packed = Vec::new();
        let datum = datum(kind, value, &mut packed);
        writer.datum(kind, &datum).unwrap();
    }
    let mut out = Vec::new();
    writer.finish(&mut out).unwrap();
    out
}

/// The borrowed form; nested values are packed into `packed`.
fn datum<'a>(kind: &'a Kind, value: &'a Value, packed: &'a mut Vec<u8>) -> Datum<'a> {
    match (kind, value) {
        (_, Value::Null) => Datum::Null,
        (_, Value::Bool(value)) => Datum::Bool(*value),
        (_, Value::Int(value)) => Datum::Int(*value),
        (_, Value::UInt(value)) => Datum::UInt(*value),
        (_, Value::Float(value)) => Datum::Float64(*value),
        (Kind::Decimal { scale, .. }, Value::Decimal(value)) => Datum::Decimal {
            value: *value,
            scale: *scale,
        },
        (Kind::Decimal { scale, .. }, Value::Decimal256(value)) => Datum::Decimal256 {
            value: *value,
            scale: *scale,
        },
        (_, Value::Text(value)) => Datum::Text(value),
        (_, Value::Bytes(value)) => Datum::Bytes(value),
        (Kind::List { item, .. }, Value::List(values)) => {
            *packed = pack_list(&item.kind, values);
            Datum::List(ListView::new(&item.kind, packed).unwrap())
        }
        (Kind::Map { entries, .. }, Value::List(values)) => {
            let kind = Kind::Struct {
                fields: entries.clone(),
            };
            *packed = pack_list(&kind, values);
            Datum::Map(ListView::rows(entries, packed).unwrap())
        }
        (Kind::Struct { fields }, Value::Row(values)) => {
            *packed = pack_row(fields, values);
            Datum::Row(RowView::new(fields, packed).unwrap())
        }
        other => panic!("{other:?}"),
    }
}

fn check_row(view: &RowView<'_>, values: &[Value]) {
    assert_eq!(view.len(), values.len());
    for (index, value) in values.iter().enumerate() {
        check(&view.datum(index).unwrap(), value);
    }
}

fn check(datum: &Datum<'_>, value: &Value) {
    match (datum, value) {
        (Datum::Null, Value::Null) => {}
        (Datum::Bool(a), Value::Bool(b)) => assert_eq!(a, b),
        (Datum::Int(a), Value::Int(b)) => assert_eq!(a, b),
        (Datum::UInt(a), Value::UInt(b)) => assert_eq!(a, b),
        (Datum::Float64(a), Value::Float(b)) => assert_eq!(a.to_bits(), b.to_bits()),
        (Datum::Decimal { value: a, .. }, Value::Decimal(b)) => assert_eq!(a, b),
        (Datum::Decimal256 { value: a, .. }, Value::Decimal256(b)) => assert_eq!(a, b),
        (Datum::Text(a), Value::Text(b)) => assert_eq!(a, b),
        (Datum::Bytes(a), Value::Bytes(b)) => assert_eq!(a, b),
        (Datum::List(list) | Datum::Map(list), Value::List(values)) => {
            assert_eq!(list.len(), values.len());
            for (item, value) in list.items().zip(values) {
                check(&item.unwrap(), value);
            }
        }
        (Datum::Row(row), Value::Row(values)) => check_row(row, values),
        (datum, value) => panic!("{datum:?} is not {value:?}"),
    }
}

fn read_all(schema: &Schema, bytes: &[u8]) {
    let Ok(view) = RowView::new(schema, bytes) else {
        return;
    };
    let mut out = Vec::new();
    for index in 0..=view.len() {
        view.is_null(index);
        let _ = view.text(index, &mut out);
    }
    let _ = view.json(&mut out);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn rows_are_read_back((schema, values) in schema().prop_flat_map(|s| { let v = row(&s); (Just(s), v) })) {
        let bytes = pack_row(&schema, &values);
        check_row(&RowView::new(&schema, &bytes).unwrap(), &values);
        let mut json = Vec::new();
        RowView::new(&schema, &bytes).unwrap().json(&mut json).unwrap();
        prop_assert!(serde_json::from_slice::<serde_json::Value>(&json).is_ok());
        let kept: Schema = serde_json::from_str(&serde_json::to_string(&schema).unwrap()).unwrap();
        prop_assert_eq!(kept, schema);
    }

    #[test]
    fn random_bytes_never_panic(schema in schema(), bytes in vec(any::<u8>(), 0..200)) {
        read_all(&schema, &bytes);
    }

    #[test]
    fn damaged_rows_never_panic(
        (schema, values) in schema().prop_flat_map(|s| { let v = row(&s); (Just(s), v) }),
        flips in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = pack_row(&schema, &values);
        if !bytes.is_empty() {
            read_all(&schema, &bytes[..cut.index(bytes.len())]);
            for (at, to) in flips {
                let at = at.index(bytes.len());
                bytes[at] = to;
            }
        }
        read_all(&schema, &bytes);
    }

    #[test]
    fn random_lists_never_panic(kind in kind(), bytes in vec(any::<u8>(), 0..100)) {
        if let Ok(list) = ListView::new(&kind, &bytes) {
            prop_assert!(list.len() <= 8 * bytes.len());
            let _ = list.json(&mut Vec::new());
        }
    }
}
