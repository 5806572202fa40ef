//! Types given for columns on the command line: `NAME:TYPE`.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, TimeUnit};
use forebay_run::row;

use super::error::SourceError;
use crate::types::row_schema;

/// Parses `NAME:TYPE`. Types: bool, int8 to int64, uint8 to uint64, float32, float64, text, binary, date,
/// timestamp (no zone, microseconds), timestamptz (UTC, microseconds), decimal(P,S).
pub fn parse_column(text: &str) -> Result<(String, DataType), SourceError> {
    let bad = || SourceError::ColumnType {
        text: text.to_owned(),
    };
    let (name, type_text) = text.rsplit_once(':').ok_or_else(bad)?;
    let data_type = parse_type(type_text).ok_or_else(bad)?;
    if name.is_empty() {
        Err(bad())
    } else {
        Ok((name.to_owned(), data_type))
    }
}

/// The schema of rows whose columns are given so; any of them may be null.
pub fn parse_schema(columns: &[String]) -> Result<row::Schema, SourceError> {
    let field = |text: &String| {
        let (name, data_type) = parse_column(text)?;
        Ok(Field::new(name, data_type, true))
    };
    let fields: Vec<Field> = columns
        .iter()
        .map(field)
        .collect::<Result<_, SourceError>>()?;
    row_schema(&Arc::new(Schema::new(fields))).map_err(|problem| SourceError::ColumnType {
        text: problem.to_string(),
    })
}

fn parse_type(text: &str) -> Option<DataType> {
    Some(match text {
        "bool" => DataType::Boolean,
        "int8" => DataType::Int8,
        "int16" => DataType::Int16,
        "int32" => DataType::Int32,
        "int64" | "int" => DataType::Int64,
        "uint8" => DataType::UInt8,
        "uint16" => DataType::UInt16,
        "uint32" => DataType::UInt32,
        "uint64" => DataType::UInt64,
        "float32" => DataType::Float32,
        "float64" | "float" => DataType::Float64,
        "text" | "string" => DataType::Utf8,
        "binary" => DataType::Binary,
        "date" => DataType::Date32,
        "timestamp" => DataType::Timestamp(TimeUnit::Microsecond, None),
        "timestamptz" => DataType::Timestamp(TimeUnit::Microsecond, Some(Arc::from("UTC"))),
        _ => {
            let inside = text.strip_prefix("decimal(")?.strip_suffix(')')?;
            let (precision, scale) = inside.split_once(',')?;
            let (precision, scale) = (precision.trim().parse().ok()?, scale.trim().parse().ok()?);
            let fits = matches!(precision, 1_u8..=38) && i16::from(scale) <= i16::from(precision);
            fits.then_some(DataType::Decimal128(precision, scale))?
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_is_its_columns_each_once() {
        let columns = |texts: &[&str]| {
            parse_schema(&texts.iter().map(|t| (*t).to_owned()).collect::<Vec<_>>())
        };
        let schema = columns(&["a:text", "b:int64"]).unwrap();
        assert_eq!(schema.column_index("b"), Some(1));
        assert!(schema.columns().iter().all(|column| column.nullable));
        assert!(columns(&["a:text", "a:int64"]).is_err() && columns(&["a"]).is_err());
    }

    #[test]
    fn columns_parse() {
        let parse = |text| parse_column(text).ok();
        assert_eq!(parse("a:int"), Some(("a".into(), DataType::Int64)));
        assert_eq!(parse("a:b:text"), Some(("a:b".into(), DataType::Utf8)));
        assert_eq!(
            parse("a:decimal(12, 2)"),
            Some(("a".into(), DataType::Decimal128(12, 2)))
        );
        assert_eq!(parse("a:decimal(39,2)"), None);
        assert_eq!(parse("a:i64"), None);
        assert_eq!(parse(":int64"), None);
        assert_eq!(parse("a"), None);
    }
}
