//! Tests of the reported differences of schemas.

use forebay_run::row::TimeUnit;

use super::*;
use crate::documents::manifest::{ManifestDraft, Partition};
use crate::keys::bound::Bound;
use crate::name::TableName;

fn manifest(columns: Vec<Column>, value: ValueKind, key: &str, order: Order) -> Manifest {
    let lower = match order {
        Order::Hashed => Bound::Slot(0),
        Order::Ordered => Bound::Key(Vec::new()),
    };
    let draft = ManifestDraft {
        order,
        value,
        schema: Schema::new(columns),
        key: key.to_owned(),
        delta: None,
        ttl: None,
        onto: None,
        partitions: Partition::side_by_side([(lower, Vec::new())]),
        stats: Vec::new(),
        source: String::new(),
    };
    Manifest::from_draft(draft, TableName::new("t").unwrap(), 1, 1)
}

fn rows(columns: Vec<Column>) -> Manifest {
    manifest(columns, ValueKind::Row, "{id}", Order::Hashed)
}

fn column(name: &str, kind: Kind) -> Column {
    Column::new(name, kind, true)
}

fn list(kind: Kind, length: Option<u32>) -> Kind {
    let item = Box::new(column("item", kind));
    Kind::List { item, length }
}

fn fields(columns: Vec<Column>) -> Kind {
    Kind::Struct {
        fields: Schema::new(columns),
    }
}

fn map(key: Kind, value: Kind) -> Kind {
    Kind::Map {
        entries: Schema::new(vec![column("keys", key), column("values", value)]),
        sorted: false,
    }
}

fn words(before: &Manifest, after: &Manifest) -> Vec<String> {
    let change = SchemaChange::between(before, after);
    assert_eq!(
        change.is_none(),
        SchemaChange::between(after, before).is_none()
    );
    change.alterations.iter().map(ToString::to_string).collect()
}

/// Returns the report on one column whose type changes.
fn of_types(before: Kind, after: Kind) -> Vec<(Altered, String)> {
    let (before, after) = (
        rows(vec![column("c", before)]),
        rows(vec![column("c", after)]),
    );
    let change = SchemaChange::between(&before, &after);
    let reported = change.alterations.into_iter();
    reported.map(|a| (a.what, a.column.unwrap())).collect()
}

#[test]
fn fields_items_and_entries_are_named_by_their_paths() {
    let before = rows(vec![
        column(
            "price",
            fields(vec![
                column("net", Kind::Int32),
                column("vat", Kind::Float64),
            ]),
        ),
        column("tags", list(fields(vec![column("name", Kind::Text)]), None)),
        column(
            "sizes",
            map(Kind::Text, fields(vec![column("cm", Kind::Int8)])),
        ),
    ]);
    let after = rows(vec![
        column(
            "tags",
            list(fields(vec![column("name", Kind::Binary)]), None),
        ),
        column(
            "sizes",
            map(
                Kind::Int32,
                fields(vec![column("cm", Kind::Int16), column("inch", Kind::Int8)]),
            ),
        ),
        column("price", fields(vec![column("net", Kind::Int64)])),
        column("fresh", list(Kind::Bool, None)),
    ]);
    assert_eq!(
        words(&before, &after),
        [
            "column price.net has a wider type: int32 to int64",
            "column price.vat is gone (float64)",
            "column tags[].name changed its type: text to binary",
            "column sizes.key changed its type: text to int32",
            "column sizes.value.cm has a wider type: int8 to int16",
            "column sizes.value.inch is new (int8)",
            "column fresh is new (list(bool))",
        ]
    );
}

#[test]
fn nulls_bits_of_decimals_and_the_order_of_columns_are_no_difference() {
    let decimal = |bits| Kind::Decimal {
        precision: 9,
        scale: 2,
        bits,
    };
    let strict = |name: &str, kind| Column::new(name, kind, false);
    let before = vec![
        column("a", decimal(32)),
        column("b", fields(vec![strict("x", Kind::Text)])),
    ];
    let after = vec![
        strict("b", fields(vec![column("x", Kind::Text)])),
        column("a", decimal(128)),
    ];
    assert_eq!(words(&rows(before), &rows(after)), [""; 0]);
}

#[test]
fn a_type_is_wider_only_where_readers_notice_nothing() {
    let unit = TimeUnit::Second;
    let zoned = |unit, zone: &str| Kind::Timestamp {
        unit,
        zone: Some(zone.to_owned()),
    };
    let decimal = |precision, scale| Kind::Decimal {
        precision,
        scale,
        bits: 128,
    };
    for (before, after) in [
        (Kind::Null, Kind::Text),
        (Kind::Int8, Kind::Int64),
        (Kind::UInt32, Kind::Int64),
        (Kind::UInt32, Kind::UInt64),
        (Kind::Float32, Kind::Float64),
        (Kind::Int64, decimal(19, 0)),
        (decimal(9, 2), decimal(20, 2)),
        (Kind::Date32, Kind::Date64),
        (zoned(unit, "UTC"), zoned(unit, "Asia/Tokyo")),
        (Kind::FixedBinary { width: 3 }, Kind::Binary),
        (list(Kind::Int8, Some(3)), list(Kind::Int8, None)),
    ] {
        let at = [(Altered::TypeWidened, "c".to_owned())];
        assert_eq!(
            of_types(before.clone(), after.clone()),
            at,
            "{before} {after}"
        );
        let back = of_types(after.clone(), before.clone());
        match before {
            // A zone is not visible to readers.
            Kind::Timestamp { .. } => assert_eq!(back[0].0, Altered::TypeWidened),
            _ => assert_eq!(back[0].0, Altered::TypeChanged, "{after} {before}"),
        }
    }
    for (before, after) in [
        (Kind::Int64, Kind::Float64),
        (Kind::Int64, Kind::Text),
        (Kind::Int32, Kind::UInt64),
        (Kind::UInt64, Kind::Int64),
        (Kind::UInt64, decimal(19, 0)),
        (decimal(9, 2), decimal(12, 3)),
        (Kind::Text, Kind::Binary),
        (zoned(unit, "UTC"), zoned(TimeUnit::Millisecond, "UTC")),
        (zoned(unit, "UTC"), Kind::Timestamp { unit, zone: None }),
        (
            fields(vec![column("a", Kind::Int8)]),
            map(Kind::Text, Kind::Int8),
        ),
    ] {
        let reported = of_types(before.clone(), after.clone());
        assert_eq!(
            reported,
            [(Altered::TypeChanged, "c".to_owned())],
            "{before} {after}"
        );
    }
    let narrower = of_types(list(Kind::Int8, None), list(Kind::Int8, Some(3)));
    assert_eq!(narrower[0].0, Altered::TypeChanged);
    let both = of_types(list(Kind::Int8, Some(3)), list(Kind::Text, None));
    assert_eq!(both[0], (Altered::TypeWidened, "c".to_owned()));
    assert_eq!(both[1], (Altered::TypeChanged, "c[]".to_owned()));
}

#[test]
fn changes_of_values_key_and_order_are_reported() {
    let bytes = |column: &str| ValueKind::Bytes {
        column: column.to_owned(),
    };
    let columns = || vec![column("id", Kind::Text), column("n", Kind::Int32)];
    let of = |value, columns| manifest(columns, value, "{id}", Order::Hashed);
    assert_eq!(
        words(&rows(columns()), &of(bytes("n"), columns())),
        ["the values changed: whole rows to the bytes of column n"]
    );
    assert_eq!(
        words(&of(bytes("n"), columns()), &of(bytes("id"), columns())),
        ["the values changed: the bytes of column n to the bytes of column id"]
    );
    // The key's column is not part of such values.
    let other = vec![column("key", Kind::Int8), column("n", Kind::Int64)];
    assert_eq!(
        words(&of(bytes("n"), columns()), &of(bytes("n"), other)),
        ["column n has a wider type: int32 to int64"]
    );
    let list = |item| ValueKind::List {
        column: "l".to_owned(),
        item,
    };
    assert_eq!(
        words(&of(list(Kind::Int8), vec![]), &of(list(Kind::Text), vec![])),
        ["column l[] changed its type: int8 to text"]
    );
    let numbers = |number| ValueKind::Number {
        column: "n".to_owned(),
        number,
    };
    assert_eq!(
        words(
            &of(numbers(Number::I64), columns()),
            &of(numbers(Number::F64), columns())
        ),
        ["the values changed: the whole numbers of column n to the floats of column n"]
    );
    let ordered = manifest(columns(), ValueKind::Row, "{n}/{id}", Order::Ordered);
    let hashed = rows(columns());
    let change = SchemaChange::between(&hashed, &ordered);
    let what: Vec<Altered> = change.alterations.iter().map(|a| a.what).collect();
    assert_eq!(what, [Altered::KeyTemplate, Altered::OrderGained]);
    assert_eq!(
        words(&ordered, &hashed),
        [
            "the key template changed: '{n}/{id}' to '{id}'",
            "the order changed: ordered to hashed"
        ]
    );
}
