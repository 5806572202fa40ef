//! Values as text and JSON, against what other tools print for them.

use proptest::prelude::*;

use crate::row::*;

fn text(value: Datum<'_>) -> String {
    let mut out = Vec::new();
    assert!(value.write_text(&mut out).unwrap());
    String::from_utf8(out).unwrap()
}

fn json(value: Datum<'_>) -> String {
    let mut out = Vec::new();
    value.write_json(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn numbers() {
    assert_eq!(text(Datum::Int(i64::MIN)), "-9223372036854775808");
    assert_eq!(text(Datum::UInt(u64::MAX)), "18446744073709551615");
    assert_eq!(text(Datum::Float32(0.1)), "0.1");
    assert_eq!(text(Datum::Float64(1e300)), "1e300");
    assert_eq!(text(Datum::Float64(-2.0)), "-2.0");
    assert_eq!(text(Datum::Float64(f64::NAN)), "NaN");
    for value in [
        0.0,
        -0.0,
        1.0,
        -999_999.0,
        1e6,
        16_777_216.0,
        0.5,
        1e-7,
        f64::from(f32::MAX),
    ] {
        assert_eq!(text(Datum::Float64(value)), format!("{value:?}"));
        assert_eq!(
            text(Datum::Float32(value as f32)),
            format!("{:?}", value as f32)
        );
    }
    for (value, expected) in [
        (f64::NAN, "NaN"),
        (-f64::NAN, "NaN"),
        (f64::INFINITY, "Infinity"),
        (f64::NEG_INFINITY, "-Infinity"),
    ] {
        assert_eq!(text(Datum::Float64(value)), expected);
        assert_eq!(text(Datum::Float32(value as f32)), expected);
        assert_eq!(json(Datum::Float64(value)), format!("\"{expected}\""));
    }
    assert_eq!(json(Datum::Float16(0xfc00)), "\"-Infinity\"");
    for (bits, value) in [
        (0x3c00, 1.0),
        (0xc000, -2.0),
        (0x7bff, 65504.0),
        (0x0001, 5.960_464_5e-8),
        (0x0400, 6.103_515_6e-5),
        (0x3555, 0.333_251_95),
        (0x7c00, f32::INFINITY),
    ] {
        assert_eq!(f16_to_f32(bits), value);
    }
    assert!(f16_to_f32(0x7e00).is_nan());
}

/// Returns the nearest half-precision float, by a search over all of them.
fn nearest_half(number: f64) -> u16 {
    let halves = (0..0x7c00_u16).map(|size| (size, f64::from(f16_to_f32(size))));
    let distance = |value: f64| (number.abs() - value).abs();
    let nearest = halves.min_by(|a, b| {
        let odd = |size: u16| size % 2;
        let by_distance = distance(a.1).total_cmp(&distance(b.1));
        by_distance.then(odd(a.0).cmp(&odd(b.0)))
    });
    let sign = if number.is_sign_negative() { 0x8000 } else { 0 };
    nearest.map_or(0, |(size, _)| size | sign)
}

#[test]
fn halves_have_few_digits_that_read_back() {
    for (bits, expected) in [
        (0x3555, "0.3333"),
        (0x0001, "6e-8"),
        (0x7bff, "65504.0"),
        (0x8000, "-0.0"),
        (0xb555, "-0.3333"),
        (0x2e66, "0.1"),
    ] {
        assert_eq!(text(Datum::Float16(bits)), expected);
    }
    // Each is searched among all, so a part of them is enough.
    for bits in (0..0x7c00_u16).step_by(41).chain([0x0400, 0x03ff, 0x7bff]) {
        let shown = text(Datum::Float16(bits | 0x8000));
        let digits = shown.split('e').next().unwrap_or_default();
        let significant = digits.trim_start_matches(['-', '0', '.']);
        let count = significant.bytes().filter(u8::is_ascii_digit).count();
        // A whole number has a zero behind its point.
        assert!(count <= 6, "{shown}");
        assert_eq!(
            nearest_half(shown.parse().unwrap()),
            bits | 0x8000,
            "{shown}"
        );
    }
}

#[test]
fn decimals() {
    for (value, scale, expected) in [
        (12_340, 3, "12.340"),
        (-5, 2, "-0.05"),
        (0, 2, "0.00"),
        (12, -2, "1200"),
        (0, -2, "0"),
        (i128::MIN, 0, "-170141183460469231731687303715884105728"),
        (100, 2, "1.00"),
    ] {
        assert_eq!(text(Datum::Decimal { value, scale }), expected);
        let mut wide = [if value < 0 { 0xff } else { 0 }; 32];
        wide[..16].copy_from_slice(&value.to_le_bytes());
        assert_eq!(json(Datum::Decimal256 { value: wide, scale }), expected);
    }
    let mut lowest = [0; 32];
    lowest[31] = 0x80;
    assert_eq!(
        text(Datum::Decimal256 {
            value: lowest,
            scale: 70
        }),
        "-5789604.4618658097711785492504343953926634992332820282019728792003956564819968"
    );
}

#[test]
fn times() {
    let zoned = |value, unit| {
        text(Datum::Timestamp {
            value,
            unit,
            zoned: true,
        })
    };
    assert_eq!(zoned(0, TimeUnit::Second), "1970-01-01T00:00:00Z");
    assert_eq!(
        zoned(-1, TimeUnit::Nanosecond),
        "1969-12-31T23:59:59.999999999Z"
    );
    assert_eq!(
        zoned(1_792_540_799_123, TimeUnit::Millisecond),
        "2026-10-20T23:59:59.123Z"
    );
    assert_eq!(
        text(Datum::Timestamp {
            value: 951_782_400_000_001,
            unit: TimeUnit::Microsecond,
            zoned: false
        }),
        "2000-02-29T00:00:00.000001"
    );
    zoned(i64::MIN, TimeUnit::Second);
    zoned(i64::MAX, TimeUnit::Second);
    assert_eq!(text(Datum::Date(-719_528)), "0000-01-01");
    assert_eq!(text(Datum::Date(-719_529)), "-0001-12-31");
    assert_eq!(text(Datum::Date(2_932_897)), "+10000-01-01");
    text(Datum::Date64(i64::MIN));
    assert_eq!(text(Datum::Date64(86_400_000)), "1970-01-02");
    assert_eq!(text(Datum::Date64(86_400_001)), "1970-01-02T00:00:00.001");
    assert_eq!(
        text(Datum::Time {
            value: 86_399_000_001,
            unit: TimeUnit::Microsecond
        }),
        "23:59:59.000001"
    );
    for (value, expected) in [
        (86_400_000, "24:00:00.000"),
        (-1_500, "-00:00:01.500"),
        (i64::MIN, "-2562047788015:12:55.808"),
    ] {
        let unit = TimeUnit::Millisecond;
        assert_eq!(text(Datum::Time { value, unit }), expected);
    }
    assert_eq!(
        text(Datum::Duration {
            value: -3_500,
            unit: TimeUnit::Millisecond
        }),
        "-PT3.500S"
    );
    assert_eq!(
        text(Datum::Interval {
            months: 1,
            days: -2,
            nanoseconds: 0
        }),
        "P1M-2D"
    );
    assert_eq!(
        text(Datum::Interval {
            months: 0,
            days: 0,
            nanoseconds: 0
        }),
        "PT0S"
    );
}

proptest! {
    #[test]
    fn binary_reads_back(bytes in proptest::collection::vec(any::<u8>(), 0..12), like in any::<bool>()) {
        let mut bytes = bytes;
        if like {
            bytes.splice(0..0, *b"{\"base64\":\"");
        }
        let mut out = Vec::new();
        write_binary_text(&bytes, &mut out);
        prop_assert!(std::str::from_utf8(&out).is_ok());
        prop_assert_eq!(read_binary_text(&out).into_owned(), bytes.clone());
        let mut out = Vec::new();
        write_base64(&bytes, &mut out);
        prop_assert_eq!(read_base64(&out), Some(bytes));
    }
}

#[test]
fn dates_count_up() {
    let mut last = civil_from_days(-800_000);
    for days in -799_999..800_000 {
        let (year, month, day) = civil_from_days(days);
        let next = (year, month, day);
        assert!(next > last && month <= 12 && day <= 31);
        assert!(day == last.2 + 1 || day == 1);
        last = next;
    }
}

#[test]
fn bytes_and_strings() {
    assert_eq!(json(Datum::Bytes(&[0xff, 0])), r#"{"base64":"/wA="}"#);
    assert_eq!(json(Datum::Bytes(b"abc")), r#""abc""#);
    let like_it = br#"{"base64":"abc"#;
    assert_eq!(
        json(Datum::Bytes(like_it)),
        r#"{"base64":"eyJiYXNlNjQiOiJhYmM="}"#
    );
    assert_eq!(read_binary_text(br#"{"base64":"Zg=="}"#).as_ref(), b"f");
    for plain in [
        r#"{"base64":"Zh=="}"#,
        r#"{"base64":"Z==="}"#,
        r#"{"base64":"Zg=="} "#,
        "Zg==",
    ] {
        assert_eq!(
            read_binary_text(plain.as_bytes()).as_ref(),
            plain.as_bytes()
        );
    }
    let awkward = "a\"b\\c\n\u{1}\u{1f}é";
    let back: String = serde_json::from_str(&json(Datum::Text(awkward))).unwrap();
    assert_eq!(back, awkward);
    for (bytes, expected) in [
        (&b""[..], ""),
        (b"f", "Zg=="),
        (b"fo", "Zm8="),
        (b"foo", "Zm9v"),
    ] {
        let mut out = Vec::new();
        write_base64(bytes, &mut out);
        assert_eq!(out, expected.as_bytes());
    }
}

#[test]
fn a_row_and_its_size() {
    let entries = Schema::new(vec![
        Column::new("key", Kind::Text, false),
        Column::new("value", Kind::Int64, true),
    ]);
    let schema = Schema::new(vec![
        Column::new("year", Kind::Int64, true),
        Column::new("carrier", Kind::Text, true),
        Column::new("late", Kind::Bool, true),
        Column::new("delay", Kind::Float64, true),
        Column::new(
            "tags",
            Kind::Map {
                entries: entries.clone(),
                sorted: false,
            },
            true,
        ),
    ]);
    let (mut entry, mut list, mut packed) = (
        RowWriter::new(&entries),
        ListWriter::new(&Kind::Struct { fields: entries }),
        Vec::new(),
    );
    list.begin();
    entry.begin();
    entry.bytes(0, b"a");
    entry.signed(1, 7);
    list.variable(|out| entry.finish(out)).unwrap();
    list.finish(&mut packed).unwrap();

    let mut writer = RowWriter::new(&schema);
    writer.begin();
    writer.signed(0, 2013);
    writer.bytes(1, b"UA");
    writer.bit(2, true);
    writer.bytes(4, &packed);
    let mut bytes = Vec::new();
    writer.finish(&mut bytes).unwrap();
    // One byte of bits, 8 of the float, two ends, two bytes of year, two of carrier, the map.
    assert_eq!(bytes.len(), 1 + 8 + 2 + 2 + 2 + packed.len());

    let view = RowView::new(&schema, &bytes).unwrap();
    let mut out = Vec::new();
    view.json(&mut out).unwrap();
    assert_eq!(
        String::from_utf8(out).unwrap(),
        r#"{"year":2013,"carrier":"UA","late":true,"delay":null,"tags":{"a":7}}"#
    );
    let mut field = Vec::new();
    assert!(!view.text(3, &mut field).unwrap());
    assert!(view.text(4, &mut field).unwrap());
    assert_eq!(field, br#"{"a":7}"#);
}

#[test]
fn the_serialized_schema_is_stable() {
    let schema = Schema::new(vec![
        Column::new("id", Kind::UInt64, false),
        Column::new(
            "at",
            Kind::Timestamp {
                unit: TimeUnit::Microsecond,
                zone: Some("Europe/Paris".into()),
            },
            true,
        ),
        Column::new(
            "tags",
            Kind::List {
                item: Box::new(Column::new("item", Kind::Text, true)),
                length: None,
            },
            true,
        ),
    ]);
    assert_eq!(
        serde_json::to_string(&schema).unwrap(),
        concat!(
            r#"[{"name":"id","kind":"uint64","nullable":false},"#,
            r#"{"name":"at","kind":{"timestamp":{"unit":"microsecond","zone":"Europe/Paris"}},"nullable":true},"#,
            r#"{"name":"tags","kind":{"list":{"item":{"name":"item","kind":"text","nullable":true}}},"nullable":true}]"#
        )
    );
}
