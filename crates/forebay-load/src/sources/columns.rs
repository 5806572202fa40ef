//! Parses types given for columns on the command line: `NAME:TYPE` or `NAME:TYPE:HOW`.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema};
use forebay_run::row;

use super::error::SourceError;
use crate::convert::{GivenType, Loss, Rules, holds, split_path};
use crate::type_name::{parse_type, type_name};
use crate::types::{plain_type, row_schema};

/// Parses `NAME:TYPE`, or `NAME:TYPE:HOW` with the allowed loss. Names may contain colons.
pub fn parse_column(text: &str) -> Result<GivenType, SourceError> {
    let bad = || SourceError::ColumnType {
        text: text.to_owned(),
    };
    let lossy = text.rsplit_once(':');
    let lossy = lossy.and_then(|(rest, how)| Some((rest, how.parse().ok()?)));
    // The word null is also a type.
    let lossy = lossy.filter(|(rest, _)| rest.contains(':'));
    let (rest, loss) = lossy.unwrap_or((text, Loss::None));
    // The first colon from the end that is followed by a type: types may contain colons.
    let colons = rest.rmatch_indices(':');
    let mut parsed = colons.filter_map(|(at, _)| Some((&rest[..at], parse_type(&rest[at + 1..])?)));
    match parsed.next() {
        Some((name, data_type)) if !name.is_empty() && loss.suits(&data_type) => Ok(GivenType {
            path: name.to_owned(),
            data_type,
            loss,
        }),
        _ => Err(bad()),
    }
}

/// Returns the types given for columns, and the losses allowed in them. The types of an existing
/// table apply, and other types given for its columns must agree with them.
pub(super) fn settle(
    given: &[GivenType],
    table: &[(String, DataType)],
    is_column: impl Fn(&str) -> bool,
) -> Result<(Vec<GivenType>, Rules), SourceError> {
    let all = given;
    let typed = table
        .iter()
        .map(|(name, data_type)| GivenType::exact(name, data_type.clone()));
    let mut settled: Vec<GivenType> = typed.collect();
    for (index, given) in given.iter().enumerate() {
        let column = split_path(&given.path, &is_column).0;
        let within = |other: &GivenType| {
            let same = split_path(&other.path, &is_column).0 == column;
            same && (holds(&given.path, &other.path) || holds(&other.path, &given.path))
        };
        if let Some(other) = all.iter().take(index).find(|other| within(other)) {
            return Err(SourceError::GivenTwice {
                column: given.path.clone(),
                other: other.path.clone(),
            });
        }
        match type_within(table, &given.path) {
            None => settled.push(given.clone()),
            Some(there) if plain_type(&there) == plain_type(&given.data_type) => {}
            Some(there) => {
                return Err(SourceError::TableType {
                    column: given.path.clone(),
                    given: type_name(&given.data_type),
                    there: type_name(&there),
                });
            }
        }
    }
    Ok((settled, Rules::of_given(given, is_column)))
}

/// Returns the losses allowed in places of a table's columns, with the types there. Places that the
/// table lacks are ignored.
pub(super) fn given_within(
    table: &[(String, DataType)],
    losses: &[(String, Loss)],
) -> Vec<GivenType> {
    let given = losses.iter().filter_map(|(path, loss)| {
        Some(GivenType {
            path: path.clone(),
            data_type: type_within(table, path)?,
            loss: *loss,
        })
    });
    given.collect()
}

fn type_within(table: &[(String, DataType)], path: &str) -> Option<DataType> {
    let find = |name: &str| table.iter().find(|(column, _)| column == name);
    let (column, rest) = split_path(path, |name| find(name).is_some());
    type_at(&find(column)?.1, rest)
}

/// Returns the type at a place within a column: any number of `.field` and `[]`.
fn type_at(data_type: &DataType, path: &str) -> Option<DataType> {
    if path.is_empty() {
        return Some(data_type.clone());
    }
    if let Some(rest) = path.strip_prefix("[]") {
        return match data_type {
            DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
                type_at(item.data_type(), rest)
            }
            _ => None,
        };
    }
    let (DataType::Struct(fields), Some(rest)) = (data_type, path.strip_prefix('.')) else {
        return None;
    };
    fields.iter().find_map(|field| {
        let rest = rest.strip_prefix(field.name().as_str())?;
        type_at(field.data_type(), rest)
    })
}

/// Returns the schema of rows with these columns, all nullable.
pub fn parse_schema(columns: &[String]) -> Result<row::Schema, SourceError> {
    let field = |text: &String| {
        let GivenType {
            path,
            data_type,
            loss,
        } = parse_column(text)?;
        if loss != Loss::None {
            let problem = format!(
                "'{text}' says what values may lose, and a column of a table has a type alone"
            );
            return Err(SourceError::Columns { problem });
        }
        Ok(Field::new(path, data_type, true))
    };
    let fields: Vec<Field> = columns
        .iter()
        .map(field)
        .collect::<Result<_, SourceError>>()?;
    row_schema(&Arc::new(Schema::new(fields))).map_err(|problem| SourceError::Columns {
        problem: problem.to_string(),
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
        let parse = |text| {
            let GivenType {
                path,
                data_type,
                loss,
            } = parse_column(text).ok()?;
            Some((path, data_type, loss))
        };
        let exact = |path: &str, data_type| Some((path.to_owned(), data_type, Loss::None));
        assert_eq!(parse("a:int"), exact("a", DataType::Int64));
        assert_eq!(parse("a:b:text"), exact("a:b", DataType::Utf8));
        assert_eq!(
            parse("a:decimal(12, 2)"),
            exact("a", DataType::Decimal128(12, 2))
        );
        let round = Some(("a".to_owned(), DataType::Int32, Loss::Round));
        assert_eq!(parse("a:int32:round"), round);
        let colon = DataType::Struct(vec![Field::new("b:c", DataType::Int8, true)].into());
        assert_eq!(parse("a:struct(\"b:c\" int8)"), exact("a", colon));
        for text in [
            "a:decimal(77,2)",
            "a:i64",
            ":int64",
            "a",
            "a:int64:up",
            "a:text:round",
            "a:float32:truncate",
            "a:int64:",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
