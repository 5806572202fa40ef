//! Finds columns that no table stores, before anything is read.

use arrow_schema::{DECIMAL256_MAX_PRECISION, DataType, Field, Fields};
use parquet::schema::types::{SchemaDescriptor, Type};

/// Returns why a file is not read, with the first such column.
pub(super) fn reason(schema: &SchemaDescriptor, fields: &Fields) -> Option<String> {
    let groups = schema.root_schema().get_fields().iter();
    if let Some(column) = groups.clone().find_map(|field| empty_group(field)) {
        return Some(format!(
            "the column '{column}' is a group without fields, which is not stored: write the file without it"
        ));
    }
    let (column, digits) = fields.iter().find_map(|field| wide_decimal(field))?;
    Some(format!(
        "the column '{column}' is a decimal of {digits} digits, and {DECIMAL256_MAX_PRECISION} is the limit: write it as text"
    ))
}

/// Returns the path of the first group without fields.
fn empty_group(of: &Type) -> Option<String> {
    if !of.is_group() {
        return None;
    }
    let fields = of.get_fields();
    if fields.is_empty() {
        return Some(of.name().to_owned());
    }
    let within = fields.iter().find_map(|field| empty_group(field))?;
    Some(format!("{}.{within}", of.name()))
}

fn wide_decimal(field: &Field) -> Option<(String, u8)> {
    let inner = match field.data_type() {
        DataType::Decimal256(digits, _) if *digits > DECIMAL256_MAX_PRECISION => {
            return Some((field.name().clone(), *digits));
        }
        DataType::Struct(fields) => fields.iter().find_map(|field| wide_decimal(field)),
        DataType::List(item) | DataType::LargeList(item) | DataType::Map(item, _) => {
            wide_decimal(item)
        }
        _ => None,
    };
    inner.map(|(path, digits)| (format!("{}.{path}", field.name()), digits))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parquet::schema::parser::parse_message_type;

    use super::*;

    fn of(message: &str, fields: Vec<Field>) -> Option<String> {
        let schema = SchemaDescriptor::new(Arc::new(parse_message_type(message).unwrap()));
        reason(&schema, &fields.into())
    }

    #[test]
    fn the_first_column_is_named() {
        let id = "message m { required int64 id; }";
        assert_eq!(of(id, vec![]), None);
        let wide = Field::new("d", DataType::Decimal256(77, 2), true);
        let nested = Field::new("s", DataType::Struct(vec![wide].into()), true);
        let reason = of(id, vec![nested]).unwrap();
        assert!(
            reason.starts_with("the column 's.d' is a decimal of 77 digits"),
            "{reason}"
        );
        let reason = of(
            "message m { optional group a { optional group b {} } }",
            vec![],
        );
        assert!(
            reason
                .unwrap()
                .starts_with("the column 'a.b' is a group without fields")
        );
    }
}
