//! The type of a table's values: all that is needed to read and write one.

use std::borrow::Cow;
use std::sync::Arc;

use forebay_engine::{Source, ValueKind};
use forebay_run::number::Number;
use forebay_run::operation::DeltaKind;
use forebay_run::row::{Datum, ListWriter, RowError, RowWriter, Schema};

use super::error::Error;
use super::operand::{Operand, fitting};
use super::problem::Problem;

/// The value type of a table.
#[derive(Debug)]
pub struct Shape {
    pub table: String,
    pub kind: ValueKind,
    pub schema: Schema,
    /// The type of the numbers, if the values are numbers.
    pub number: Option<Number>,
    delta: Option<DeltaKind>,
}

impl Shape {
    pub fn of(source: Source<'_>) -> Arc<Self> {
        Arc::new(Self {
            table: source.table().to_string(),
            kind: source.kind().clone(),
            schema: source.schema().clone(),
            number: source.number(),
            delta: match source {
                Source::Batch(version) => version.manifest().delta,
                Source::Live(table) => table.options().delta,
            },
        })
    }

    /// Returns the stored bytes of a value.
    pub fn encode<'o>(&self, operand: Operand<'o>) -> Result<Cow<'o, [u8]>, Error> {
        if let Some(number) = self.number {
            return self
                .encode_number(number, &operand)
                .map(|bytes| Cow::Owned(bytes.to_vec()));
        }
        match (&self.kind, operand) {
            (ValueKind::Row, Operand::Row(columns)) => self.encode_row(columns).map(Cow::Owned),
            (ValueKind::List { .. }, Operand::List(items)) => {
                self.encode_list(items).map(Cow::Owned)
            }
            (ValueKind::Bytes { .. }, Operand::Bytes(bytes)) => Ok(Cow::Borrowed(bytes)),
            (_, operand) => Err(self.no_value(&operand)),
        }
    }

    /// Returns the stored bytes of a delta.
    pub fn encode_delta<'o>(&self, operand: Operand<'o>) -> Result<Cow<'o, [u8]>, Error> {
        match (self.delta, operand) {
            // The engine refuses it with its own message.
            (None, _) => Ok(Cow::Borrowed(&[])),
            (_, operand) => self.encode(operand),
        }
    }

    fn encode_number(&self, number: Number, operand: &Operand<'_>) -> Result<[u8; 8], Error> {
        match (number, operand) {
            (Number::I64, Operand::I64(value)) => Ok(value.to_le_bytes()),
            (Number::F64, Operand::F64(value)) if !value.is_nan() => Ok(value.to_le_bytes()),
            (Number::F64, Operand::I64(value)) => Ok((*value as f64).to_le_bytes()),
            _ => Err(self.no_value(operand)),
        }
    }

    fn encode_row(&self, columns: &[(&str, Datum<'_>)]) -> Result<Vec<u8>, Error> {
        for (name, _) in columns {
            if self.schema.column_index(name).is_none() {
                return Err(self.no_column(name));
            }
        }
        let mut writer = RowWriter::new(&self.schema);
        writer.begin();
        for (index, column) in self.schema.columns().iter().enumerate() {
            let given = columns.iter().rev().find(|(name, _)| *name == column.name);
            match given {
                Some((_, datum)) if !datum.is_null() => {
                    let datum = fitting(&self.table, &column.name, &column.kind, datum)?;
                    let set = writer.datum(index, &column.kind, &datum);
                    set.map_err(|source| self.unfit(source))?;
                }
                _ if column.nullable => {}
                _ => {
                    return Err(Problem::NullColumn {
                        table: self.table.clone(),
                        column: column.name.clone(),
                    }
                    .into());
                }
            }
        }
        let mut out = Vec::new();
        writer
            .finish(&mut out)
            .map_err(|source| self.unfit(source))?;
        Ok(out)
    }

    fn encode_list(&self, items: &[Datum<'_>]) -> Result<Vec<u8>, Error> {
        let ValueKind::List { column, item } = &self.kind else {
            return Err(self.no_value(&Operand::List(items)));
        };
        let mut writer = ListWriter::new(item);
        writer.begin();
        for datum in items {
            let datum = fitting(&self.table, column, item, datum)?;
            let pushed = writer.datum(item, &datum);
            pushed.map_err(|source| self.unfit(source))?;
        }
        let mut out = Vec::new();
        writer
            .finish(&mut out)
            .map_err(|source| self.unfit(source))?;
        Ok(out)
    }

    fn no_value(&self, operand: &Operand<'_>) -> Error {
        let (holds, give) = match (self.number, &self.kind) {
            (Some(Number::I64), _) => ("whole numbers", "an i64"),
            (Some(Number::F64), _) => ("numbers", "an f64 that is not NaN"),
            (None, ValueKind::Row) => (
                "rows",
                "columns by their names, as in &[(\"name\", \"Ada\".into())]",
            ),
            (None, ValueKind::List { .. }) => ("lists", "a slice of items"),
            (None, _) => ("bytes", "bytes or text"),
        };
        let (table, given) = (self.table.clone(), operand.to_string());
        Problem::NoValue {
            table,
            holds,
            given,
            give,
        }
        .into()
    }

    pub fn no_column(&self, column: &str) -> Error {
        let columns = self.schema.columns().iter();
        Problem::NoColumn {
            table: self.table.clone(),
            column: column.to_owned(),
            columns: columns.map(|column| column.name.clone()).collect(),
        }
        .into()
    }

    fn unfit(&self, source: RowError) -> Error {
        let table = self.table.clone();
        Problem::Fit { table, source }.into()
    }

    pub fn unreadable(&self, problem: impl ToString) -> Error {
        Problem::Unreadable {
            table: self.table.clone(),
            problem: problem.to_string(),
        }
        .into()
    }
}
