//! Defines the columns of an exported file and the origins of their values.

use forebay_engine::ValueKind;
use forebay_run::number::Number;
use forebay_run::row::{Column, Datum, Kind, ListView, RowError, RowView, Schema};

use crate::key::{Form, KeyTemplate, TemplatePart};
use crate::near;

/// The form of a table's values.
#[derive(Debug, Clone, Copy)]
pub enum ExportValues<'a> {
    Rows(&'a Schema),
    Bytes,
    /// Numbers of eight bytes.
    Numbers(Number),
    /// Lists of items of a kind; with `length`, all of that length.
    Lists {
        item: &'a Kind,
        length: Option<u32>,
    },
}

impl<'a> ExportValues<'a> {
    /// Creates the form from a table's value kind, its columns, and its number type, if its values
    /// are numbers.
    pub fn new(kind: &'a ValueKind, schema: &'a Schema, number: Option<Number>) -> Self {
        match (kind, number) {
            (_, Some(number)) => ExportValues::Numbers(number),
            (ValueKind::Row, None) => ExportValues::Rows(schema),
            (ValueKind::List { item, column }, None) => ExportValues::Lists {
                item,
                length: list_length(column, schema),
            },
            (ValueKind::Bytes { .. } | ValueKind::Number { .. }, None) => ExportValues::Bytes,
        }
    }
}

/// The choice of columns made from a table's records.
#[derive(Debug, Clone, Copy)]
pub struct TableColumns<'a> {
    pub values: ExportValues<'a>,
    /// The template of the keys; `None` if keys may be arbitrary.
    pub key: Option<&'a str>,
    /// Keys are binary. Otherwise they are text, and a key that is not UTF-8 is an error.
    pub binary: bool,
    /// Only the columns of these names, in their order; `None` for all.
    pub only: Option<&'a [String]>,
}

impl TableColumns<'_> {
    /// Returns the columns.
    pub fn columns(&self) -> Result<Vec<Column>, NoSuchColumn> {
        self.layout().map(|layout| layout.columns)
    }

    pub(super) fn layout(&self) -> Result<Layout, NoSuchColumn> {
        let key_kind = if self.binary {
            Kind::Binary
        } else {
            Kind::Text
        };
        let layout = Layout::new(self.values, self.key, key_kind, Kind::Binary);
        match self.only {
            Some(names) => layout.only(names),
            None => Ok(layout),
        }
    }
}

/// The columns of a file, with the origins of their values.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    pub columns: Vec<Column>,
    /// The origin of each column.
    origins: Vec<CellOrigin>,
    values: LayoutValues,
}

/// The origin of a column's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CellOrigin {
    Key,
    /// The whole value.
    Value,
    /// A column of the rows.
    Field(usize),
}

#[derive(Debug, Clone)]
enum LayoutValues {
    Rows(Schema),
    Bytes,
    Numbers(Number),
    Lists(Kind),
}

impl Layout {
    /// Creates a layout. `key` is the template of all keys, if there is one. `key_kind` and
    /// `bytes_kind` are text or binary: the kinds of keys, and of values of bytes.
    pub fn new(
        export: ExportValues<'_>,
        key: Option<&str>,
        key_kind: Kind,
        bytes_kind: Kind,
    ) -> Layout {
        let (values, mut columns) = match export {
            ExportValues::Rows(schema) => (
                LayoutValues::Rows(schema.clone()),
                schema.columns().to_vec(),
            ),
            ExportValues::Bytes => (LayoutValues::Bytes, value_column(bytes_kind)),
            ExportValues::Numbers(number) => {
                let kind = match number {
                    Number::I64 => Kind::Int64,
                    Number::F64 => Kind::Float64,
                };
                (LayoutValues::Numbers(number), value_column(kind))
            }
            ExportValues::Lists { item, length } => {
                let item_column = Box::new(Column::new("item", item.clone(), true));
                let kind = Kind::List {
                    item: item_column,
                    length,
                };
                (LayoutValues::Lists(item.clone()), value_column(kind))
            }
        };
        let mut origins = match &values {
            LayoutValues::Rows(_) => (0..columns.len()).map(CellOrigin::Field).collect(),
            _ => vec![CellOrigin::Value],
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
            origins.insert(0, CellOrigin::Key);
        }
        Layout {
            columns,
            origins,
            values,
        }
    }

    /// Keeps only the columns of these names, in their order.
    pub fn only(self, names: &[String]) -> Result<Layout, NoSuchColumn> {
        let place_of = |name: &String| {
            let place = self.columns.iter().position(|column| column.name == *name);
            place.ok_or_else(|| NoSuchColumn::new(name, &self.columns))
        };
        let places: Vec<usize> = names.iter().map(place_of).collect::<Result<_, _>>()?;
        Ok(Layout {
            columns: places.iter().map(|at| self.columns[*at].clone()).collect(),
            origins: places.iter().map(|at| self.origins[*at]).collect(),
            values: self.values,
        })
    }

    /// Makes all columns nullable, for keys that may have no value.
    pub fn nullable(mut self) -> Layout {
        for column in &mut self.columns {
            column.nullable = true;
        }
        self
    }

    /// Returns whether the column at this index holds the keys themselves.
    pub fn is_key(&self, place: usize) -> bool {
        self.origins.get(place) == Some(&CellOrigin::Key)
    }

    /// Returns the column that holds the keys themselves, if there is one.
    pub fn key_column(&self) -> Option<&Column> {
        let place = self.origins.iter().position(|at| *at == CellOrigin::Key)?;
        self.columns.get(place)
    }

    /// Calls `put` with each column's position and value.
    pub fn record<E: From<RowError>>(
        &self,
        key: &[u8],
        value: &[u8],
        mut put: impl FnMut(usize, &Datum<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let row = match &self.values {
            LayoutValues::Rows(schema) => Some(RowView::new(schema, value)?),
            _ => None,
        };
        for (place, origin) in self.origins.iter().enumerate() {
            match (origin, &row) {
                (CellOrigin::Key, _) => put(place, &Datum::Bytes(key))?,
                (CellOrigin::Field(index), Some(row)) => put(place, &row.datum(*index)?)?,
                _ => put(place, &self.values.datum(value)?)?,
            }
        }
        Ok(())
    }
}

impl LayoutValues {
    /// Returns the whole value.
    fn datum<'a>(&'a self, value: &'a [u8]) -> Result<Datum<'a>, RowError> {
        Ok(match self {
            LayoutValues::Bytes => Datum::Bytes(value),
            LayoutValues::Numbers(number) => number_datum(*number, value)?,
            LayoutValues::Lists(item) => Datum::List(ListView::new(item, value)?),
            LayoutValues::Rows(schema) => Datum::Row(RowView::new(schema, value)?),
        })
    }
}

/// Returns the common length of all lists of a column, if its type has one.
fn list_length(column: &str, schema: &Schema) -> Option<u32> {
    match schema.columns()[schema.column_index(column)?].kind {
        Kind::List { length, .. } => length,
        _ => None,
    }
}

fn value_column(kind: Kind) -> Vec<Column> {
    vec![Column::new("value", kind, false)]
}

/// An error of a requested column that does not exist.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("there is no column '{name}'{hint}; there are: {known}")]
pub struct NoSuchColumn {
    name: String,
    /// A suggestion of the intended name.
    hint: String,
    known: String,
}

impl NoSuchColumn {
    fn new(name: &str, columns: &[Column]) -> NoSuchColumn {
        let known: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
        NoSuchColumn {
            name: name.to_owned(),
            hint: near::hint(name, known.iter().copied()),
            known: known.join(", "),
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

/// Returns whether all columns of a template are columns of the rows.
fn key_is_in(template: &str, schema: &Schema) -> bool {
    let template = template.parse::<KeyTemplate>();
    template.is_ok_and(|key| {
        key.columns()
            .all(|column| schema.column_index(column).is_some())
    })
}

/// Returns whether keys of a template over columns of a schema may be invalid UTF-8.
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
