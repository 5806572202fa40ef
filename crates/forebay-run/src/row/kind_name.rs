//! The names of types, as people and `--column` write them.
//!
//! Examples: `int64`, `decimal(12,2)`, `list(text)`, `struct(net float64, gross float64)`.

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
            Kind::IntervalMonthDayNano => "interval",
            Kind::Text => "text",
            Kind::Binary => "binary",
            Kind::FixedBinary { width } => return write!(f, "binary({width})"),
            Kind::Decimal {
                precision,
                scale,
                bits,
            } => {
                let width = match bits {
                    128 => "",
                    256 if *precision > 38 => "",
                    32 => "32",
                    64 => "64",
                    _ => "256",
                };
                return write!(f, "decimal{width}({precision},{scale})");
            }
            Kind::Time { unit } => return write!(f, "time({})", unit.symbol()),
            Kind::Duration { unit } => return write!(f, "duration({})", unit.symbol()),
            Kind::Timestamp { unit, zone } => {
                let unit = unit.symbol();
                return match zone.as_deref() {
                    None => write!(f, "timestamp({unit})"),
                    Some("UTC") => write!(f, "timestamptz({unit})"),
                    Some(zone) => write!(f, "timestamptz({unit},{zone})"),
                };
            }
            Kind::List { item, length: None } => return write!(f, "list({})", item.kind),
            Kind::List {
                item,
                length: Some(length),
            } => return write!(f, "list({},{length})", item.kind),
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
    /// Returns the name of the unit, as in `timestamp(ms)`.
    pub fn symbol(self) -> &'static str {
        match self {
            TimeUnit::Second => "s",
            TimeUnit::Millisecond => "ms",
            TimeUnit::Microsecond => "us",
            TimeUnit::Nanosecond => "ns",
        }
    }
}

fn write_fields(f: &mut fmt::Formatter<'_>, fields: &super::Schema) -> fmt::Result {
    f.write_str("struct(")?;
    for (index, field) in fields.columns().iter().enumerate() {
        let comma = if index > 0 { ", " } else { "" };
        write!(f, "{comma}{} {}", FieldName(&field.name), field.kind)?;
    }
    f.write_str(")")
}

/// A field's name; in quotes if it is not a word.
struct FieldName<'a>(&'a str);

impl fmt::Display for FieldName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let in_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
        match !self.0.is_empty() && self.0.chars().all(in_word) {
            true => f.write_str(self.0),
            false => write!(f, "{}", serde_json::Value::from(self.0)),
        }
    }
}
