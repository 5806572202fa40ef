//! Types by the names that `--column` takes.
//!
//! What `--column` has no word for is named alike: `null`, `date64`, `binary(16)` of a fixed width, `list(int8, 3)` of
//! a fixed length, `interval(months)`, `interval(days)`, `interval(nanoseconds)`, and zones other than UTC.

use std::fmt;

use super::schema::{Kind, TimeUnit};

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = match self {
            Kind::Null => "null",
            Kind::Bool => "bool",
            Kind::Int8 => "int8",
            Kind::Int16 => "int16",
            Kind::Int32 => "int32",
            Kind::Int64 => "int64",
            Kind::UInt8 => "uint8",
            Kind::UInt16 => "uint16",
            Kind::UInt32 => "uint32",
            Kind::UInt64 => "uint64",
            Kind::Float16 => "float16",
            Kind::Float32 => "float32",
            Kind::Float64 => "float64",
            Kind::Date32 => "date",
            Kind::Date64 => "date64",
            Kind::IntervalMonths => "interval(months)",
            Kind::IntervalDayTime => "interval(days)",
            Kind::IntervalMonthDayNano => "interval(nanoseconds)",
            Kind::Text => "text",
            Kind::Binary => "binary",
            Kind::FixedBinary { width } => return write!(f, "binary({width})"),
            Kind::Decimal {
                precision, scale, ..
            } => return write!(f, "decimal({precision},{scale})"),
            Kind::Time { unit } => return in_unit(f, "time", *unit),
            Kind::Duration { unit } => return write!(f, "duration({})", unit.symbol()),
            Kind::Timestamp { unit, zone: None } => return in_unit(f, "timestamp", *unit),
            Kind::Timestamp {
                unit,
                zone: Some(zone),
            } if zone == "UTC" => return in_unit(f, "timestamptz", *unit),
            Kind::Timestamp {
                unit,
                zone: Some(zone),
            } => return write!(f, "timestamptz({}, {zone})", unit.symbol()),
            Kind::List { item, length: None } => return write!(f, "list({})", item.kind),
            Kind::List {
                item,
                length: Some(length),
            } => return write!(f, "list({}, {length})", item.kind),
            Kind::Struct { fields } => return write_fields(f, fields),
            Kind::Map { entries, .. } => {
                let kinds: Vec<String> = entries
                    .columns()
                    .iter()
                    .map(|column| column.kind.to_string())
                    .collect();
                return write!(f, "map({})", kinds.join(", "));
            }
        };
        f.write_str(plain)
    }
}

impl TimeUnit {
    /// As in `timestamp(ms)`.
    pub fn symbol(self) -> &'static str {
        match self {
            TimeUnit::Second => "s",
            TimeUnit::Millisecond => "ms",
            TimeUnit::Microsecond => "us",
            TimeUnit::Nanosecond => "ns",
        }
    }
}

/// Microseconds go without saying.
fn in_unit(f: &mut fmt::Formatter<'_>, name: &str, unit: TimeUnit) -> fmt::Result {
    match unit {
        TimeUnit::Microsecond => f.write_str(name),
        unit => write!(f, "{name}({})", unit.symbol()),
    }
}

fn write_fields(f: &mut fmt::Formatter<'_>, fields: &super::Schema) -> fmt::Result {
    f.write_str("struct(")?;
    for (index, field) in fields.columns().iter().enumerate() {
        let comma = if index > 0 { ", " } else { "" };
        write!(f, "{comma}{} {}", field.name, field.kind)?;
    }
    f.write_str(")")
}

#[cfg(test)]
mod tests {
    use super::super::{Column, Schema};
    use super::*;

    #[test]
    fn types_have_the_names_that_a_column_option_takes() {
        let list = |kind, length| Kind::List {
            item: Box::new(Column::new("item", kind, true)),
            length,
        };
        let unit = TimeUnit::Nanosecond;
        let zone = |zone: &str| Some(zone.to_owned());
        let us = TimeUnit::Microsecond;
        let fields = Schema::new(vec![
            Column::new("a", Kind::Int64, true),
            Column::new("b", list(Kind::Text, None), false),
        ]);
        for (kind, name) in [
            (Kind::UInt16, "uint16"),
            (Kind::Timestamp { unit, zone: None }, "timestamp(ns)"),
            (
                Kind::Timestamp {
                    unit: us,
                    zone: zone("UTC"),
                },
                "timestamptz",
            ),
            (
                Kind::Timestamp {
                    unit: us,
                    zone: zone("Asia/Tokyo"),
                },
                "timestamptz(us, Asia/Tokyo)",
            ),
            (Kind::Duration { unit: us }, "duration(us)"),
            (Kind::Time { unit: us }, "time"),
            (list(list(Kind::Int8, Some(3)), None), "list(list(int8, 3))"),
            (
                Kind::Decimal {
                    precision: 12,
                    scale: 2,
                    bits: 128,
                },
                "decimal(12,2)",
            ),
            (
                Kind::Map {
                    entries: fields.clone(),
                    sorted: false,
                },
                "map(int64, list(text))",
            ),
            (Kind::Struct { fields }, "struct(a int64, b list(text))"),
        ] {
            assert_eq!(kind.to_string(), name);
        }
    }
}
