//! The columns of an exported file, and where their values come from.

use forebay_engine::ValueKind;
use forebay_run::number::Number;
use forebay_run::row::{Column, Datum, Kind, ListView, RowError, RowView, Schema};

use crate::key::{Form, KeyTemplate, TemplatePart};

/// What the values of a table are.
#[derive(Debug, Clone, Copy)]
pub enum ExportValues<'a> {
    Rows(&'a Schema),
    Bytes,
    /// Numbers of eight bytes.
    Numbers(Number),
    /// Lists of items of a kind.
    Lists(&'a Kind),
}

impl<'a> ExportValues<'a> {
    /// Of a table: what its values are, its columns, and the number that a value is, if it is one.
    pub fn new(kind: &'a ValueKind, schema: &'a Schema, number: Option<Number>) -> Self {
        match (kind, number) {
            (_, Some(number)) => ExportValues::Numbers(number),
            (ValueKind::Row, None) => ExportValues::Rows(schema),
            (ValueKind::List { item, .. }, None) => ExportValues::Lists(item),
            (ValueKind::Bytes { .. } | ValueKind::Number { .. }, None) => ExportValues::Bytes,
        }
    }
}

/// The columns of the file and where they come from.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    pub columns: Vec<Column>,
    /// Whether the first column is the key.
    pub with_key: bool,
    values: LayoutValues,
}

#[derive(Debug, Clone)]
enum LayoutValues {
    Rows(Schema),
    Bytes,
    Numbers(Number),
    Lists(Kind),
}

impl Layout {
    /// `key` is the template that makes all keys, if there is one. `key_kind` and `bytes_kind` are
    /// text or binary: what keys are, and values of bytes.
    pub fn new(
        export: ExportValues<'_>,
        key: Option<&str>,
        key_kind: Kind,
        bytes_kind: Kind,
    ) -> Layout {
        let value = |kind| vec![Column::new("value", kind, false)];
        let (values, mut columns) = match export {
            ExportValues::Rows(schema) => (
                LayoutValues::Rows(schema.clone()),
                schema.columns().to_vec(),
            ),
            ExportValues::Bytes => (LayoutValues::Bytes, value(bytes_kind)),
            ExportValues::Numbers(number) => {
                let kind = match number {
                    Number::I64 => Kind::Int64,
                    Number::F64 => Kind::Float64,
                };
                (LayoutValues::Numbers(number), value(kind))
            }
            ExportValues::Lists(item) => {
                let item_column = Box::new(Column::new("item", item.clone(), true));
                let kind = Kind::List {
                    item: item_column,
                    length: None,
                };
                (LayoutValues::Lists(item.clone()), value(kind))
            }
        };
        let with_key = match export {
            ExportValues::Rows(schema) => key.is_none_or(|key| !key_is_in(key, schema)),
            _ => true,
        };
        if with_key {
            let mut name = "key".to_owned();
            while columns.iter().any(|column| column.name == name) {
                name.insert(0, '_');
            }
            columns.insert(0, Column::new(name, key_kind, false));
        }
        Layout {
            columns,
            with_key,
            values,
        }
    }

    /// Calls `put` with each column's position and value.
    pub fn record<E: From<RowError>>(
        &self,
        key: &[u8],
        value: &[u8],
        mut put: impl FnMut(usize, &Datum<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let first = usize::from(self.with_key);
        if self.with_key {
            put(0, &Datum::Bytes(key))?;
        }
        match &self.values {
            LayoutValues::Bytes => put(first, &Datum::Bytes(value)),
            LayoutValues::Numbers(number) => put(first, &number_datum(*number, value)?),
            LayoutValues::Lists(item) => put(first, &Datum::List(ListView::new(item, value)?)),
            LayoutValues::Rows(schema) => {
                let row = RowView::new(schema, value)?;
                for index in 0..row.len() {
                    put(first + index, &row.datum(index)?)?;
                }
                Ok(())
            }
        }
    }
}

fn number_datum(number: Number, value: &[u8]) -> Result<Datum<'static>, RowError> {
    let bytes: [u8; 8] = value.try_into().map_err(|_| RowError::Width {
        got: value.len(),
        limit: 8,
    })?;
    Ok(match number {
        Number::I64 => Datum::Int(i64::from_le_bytes(bytes)),
        Number::F64 => Datum::Float64(f64::from_le_bytes(bytes)),
    })
}

/// Whether all columns of a template are columns of the rows.
fn key_is_in(template: &str, schema: &Schema) -> bool {
    let template = template.parse::<KeyTemplate>();
    template.is_ok_and(|key| {
        key.columns()
            .all(|column| schema.column_index(column).is_some())
    })
}

/// Whether keys of a template over columns of a schema may be other than UTF-8.
pub(super) fn keys_are_binary(template: &str, schema: &Schema) -> bool {
    let binary = |part: &TemplatePart| match part {
        TemplatePart::Literal(_) => false,
        TemplatePart::Column { form, name } => {
            *form == Form::BigEndian || column_is_binary(name, schema)
        }
    };
    let template = template.parse::<KeyTemplate>();
    template.is_ok_and(|key| key.parts().iter().any(binary))
}

pub(super) fn column_is_binary(name: &str, schema: &Schema) -> bool {
    let kind = schema
        .column_index(name)
        .map(|index| &schema.columns()[index].kind);
    matches!(kind, Some(Kind::Binary | Kind::FixedBinary { .. }))
}
