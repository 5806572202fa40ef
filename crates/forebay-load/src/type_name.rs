//! Parses and prints type names.
//!
//! Examples: `int64`, `decimal(12,2)`, `list(text)`, `struct(net float64, gross float64)`.

use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef, Fields, IntervalUnit, TimeUnit};

use crate::types::kind_of;

/// Returns a type's name, as [`parse_type`] reads it; it omits encodings and large layouts.
pub fn type_name(data_type: &DataType) -> String {
    match kind_of("", data_type) {
        Ok(kind) => kind.to_string(),
        // Such types cannot be stored.
        Err(_) => data_type.to_string().to_ascii_lowercase(),
    }
}

/// Parses a type's name.
pub fn parse_type(text: &str) -> Option<DataType> {
    let (data_type, rest) = TypeReader { depth: 0 }.data_type(text.trim())?;
    rest.is_empty().then_some(data_type)
}

/// The most nested types in a name.
const MAX_DEPTH: usize = 64;

struct TypeReader {
    depth: usize,
}

impl TypeReader {
    /// Parses a type, and returns the rest of the text without leading blanks.
    fn data_type<'t>(&self, text: &'t str) -> Option<(DataType, &'t str)> {
        let end = text
            .find(|c: char| !c.is_ascii_alphanumeric())
            .unwrap_or(text.len());
        let (word, rest) = text.split_at(end);
        let rest = rest.trim_start();
        let Some(inside) = rest.strip_prefix('(') else {
            return Some((plain(word)?, rest));
        };
        if self.depth > MAX_DEPTH {
            return None;
        }
        let deeper = TypeReader {
            depth: self.depth + 1,
        };
        let (data_type, rest) = match word {
            "list" => deeper.list(inside)?,
            "struct" => deeper.fields(inside)?,
            "map" => deeper.map(inside)?,
            _ => {
                let (arguments, rest) = inside.split_once(')')?;
                (with_arguments(word, arguments)?, rest)
            }
        };
        Some((data_type, rest.trim_start()))
    }

    /// Parses `TYPE)` or `TYPE,LENGTH)`.
    fn list<'t>(&self, text: &'t str) -> Option<(DataType, &'t str)> {
        let (item, rest) = self.data_type(text.trim_start())?;
        if let Some(rest) = rest.strip_prefix(')') {
            return Some((DataType::new_list(item, true), rest));
        }
        let (length, rest) = rest.strip_prefix(',')?.split_once(')')?;
        let length = length.trim().parse().ok().filter(|length| *length >= 0)?;
        Some((DataType::new_fixed_size_list(item, length, true), rest))
    }

    /// Parses `NAME TYPE, ...)`.
    fn fields<'t>(&self, mut text: &'t str) -> Option<(DataType, &'t str)> {
        let mut fields: Vec<Field> = Vec::new();
        loop {
            text = text.trim_start();
            if let (true, Some(rest)) = (fields.is_empty(), text.strip_prefix(')')) {
                return Some((DataType::Struct(Fields::empty()), rest));
            }
            let (name, rest) = name(text)?;
            let (data_type, rest) = self.data_type(rest.trim_start())?;
            if fields.iter().any(|field| *field.name() == name) {
                return None;
            }
            fields.push(Field::new(name, data_type, true));
            if let Some(rest) = rest.strip_prefix(')') {
                return Some((DataType::Struct(fields.into()), rest));
            }
            text = rest.strip_prefix(',')?;
        }
    }

    /// Parses `KEY, VALUE)`.
    fn map<'t>(&self, text: &'t str) -> Option<(DataType, &'t str)> {
        let (key, rest) = self.data_type(text.trim_start())?;
        let (value, rest) = self.data_type(rest.strip_prefix(',')?.trim_start())?;
        let fields: Vec<FieldRef> = vec![
            Arc::new(Field::new("key", key, false)),
            Arc::new(Field::new("value", value, true)),
        ];
        let entries = Field::new("entries", DataType::Struct(fields.into()), false);
        Some((
            DataType::Map(Arc::new(entries), false),
            rest.strip_prefix(')')?,
        ))
    }
}

/// Parses a field's name, as a word or as a JSON string.
fn name(text: &str) -> Option<(String, &str)> {
    if !text.starts_with('"') {
        let end = text.find(|c: char| c.is_whitespace() || matches!(c, ',' | '(' | ')'))?;
        return (end > 0).then(|| (text[..end].to_owned(), &text[end..]));
    }
    let mut read = serde_json::Deserializer::from_str(text).into_iter::<String>();
    let name = read.next()?.ok()?;
    Some((name, &text[read.byte_offset()..]))
}

fn plain(word: &str) -> Option<DataType> {
    Some(match word {
        "null" => DataType::Null,
        "bool" => DataType::Boolean,
        "int8" => DataType::Int8,
        "int16" => DataType::Int16,
        "int32" => DataType::Int32,
        "int64" | "int" => DataType::Int64,
        "uint8" => DataType::UInt8,
        "uint16" => DataType::UInt16,
        "uint32" => DataType::UInt32,
        "uint64" => DataType::UInt64,
        "float16" => DataType::Float16,
        "float32" => DataType::Float32,
        "float64" | "float" => DataType::Float64,
        "text" | "string" => DataType::Utf8,
        "binary" => DataType::Binary,
        "date" => DataType::Date32,
        "date64" => DataType::Date64,
        "interval" => DataType::Interval(IntervalUnit::MonthDayNano),
        "time" | "timestamp" | "timestamptz" | "duration" => return with_arguments(word, "us"),
        _ => return None,
    })
}

fn with_arguments(word: &str, arguments: &str) -> Option<DataType> {
    let parts: Vec<&str> = arguments.split(',').map(str::trim).collect();
    let unit = |text: &str| {
        Some(match text {
            "s" => TimeUnit::Second,
            "ms" => TimeUnit::Millisecond,
            "us" => TimeUnit::Microsecond,
            "ns" => TimeUnit::Nanosecond,
            _ => return None,
        })
    };
    Some(match (word, &parts[..]) {
        ("binary", [width]) => {
            DataType::FixedSizeBinary(width.parse().ok().filter(|width| *width > 0)?)
        }
        ("time", [each]) => match unit(each)? {
            each @ (TimeUnit::Second | TimeUnit::Millisecond) => DataType::Time32(each),
            each => DataType::Time64(each),
        },
        ("timestamp", [each]) => DataType::Timestamp(unit(each)?, None),
        ("timestamptz", [each]) => DataType::Timestamp(unit(each)?, Some(Arc::from("UTC"))),
        ("timestamptz", [each, zone]) if !zone.is_empty() => {
            DataType::Timestamp(unit(each)?, Some(Arc::from(*zone)))
        }
        ("duration", [each]) => DataType::Duration(unit(each)?),
        ("interval", ["months"]) => DataType::Interval(IntervalUnit::YearMonth),
        ("interval", ["days"]) => DataType::Interval(IntervalUnit::DayTime),
        ("decimal" | "decimal32" | "decimal64" | "decimal256", [precision, scale]) => {
            decimal(word, precision.parse().ok()?, scale.parse().ok()?)?
        }
        _ => return None,
    })
}

fn decimal(word: &str, precision: u8, scale: i8) -> Option<DataType> {
    let (most, data_type): (u8, fn(u8, i8) -> DataType) = match word {
        "decimal32" => (9, DataType::Decimal32),
        "decimal64" => (18, DataType::Decimal64),
        "decimal" if precision <= 38 => (38, DataType::Decimal128),
        _ => (76, DataType::Decimal256),
    };
    let fits = (1..=most).contains(&precision) && i16::from(scale) <= i16::from(precision);
    fits.then(|| data_type(precision, scale))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for name in [
            "int64",
            "uint8",
            "float16",
            "text",
            "binary(16)",
            "time(ms)",
            "timestamp(s)",
            "timestamptz(ns)",
            "timestamptz(us,Europe/Berlin)",
            "duration(ms)",
            "interval",
            "interval(months)",
            "decimal(12,2)",
            "decimal(76,-3)",
            "decimal32(9,2)",
            "list(list(int32),4)",
            "struct(net float64, \"a b\" list(text))",
            "struct()",
            "map(text, struct(a int8))",
        ] {
            let data_type = parse_type(name).unwrap_or_else(|| panic!("{name}"));
            assert_eq!(type_name(&data_type), name);
        }
    }

    #[test]
    fn invalid_names_are_no_types() {
        for text in [
            "",
            "i64",
            "decimal",
            "decimal(39,40)",
            "decimal(77,0)",
            "list",
            "list(",
            "list()",
            "list(int64,-1)",
            "struct(a)",
            "struct(a int64",
            "struct(a int64, a text)",
            "map(text)",
            "time(h)",
            "int64)",
            "timestamptz(us,)",
        ] {
            assert_eq!(parse_type(text), None, "{text}");
        }
        assert_eq!(
            parse_type(&format!("{}int8{}", "list(".repeat(500), ")".repeat(500))),
            None
        );
    }
}
