//! Types given for columns on the command line: `NAME:TYPE`.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema};
use forebay_run::row;

use super::error::SourceError;
use crate::type_name::parse_type;
use crate::types::row_schema;

/// Parses `NAME:TYPE`.
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
        assert_eq!(parse("a:decimal(77,2)"), None);
        assert_eq!(parse("a:i64"), None);
        assert_eq!(parse(":int64"), None);
        assert_eq!(parse("a"), None);
    }
}
