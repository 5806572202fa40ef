//! Compares the schemas of two versions: columns, their types, the kind of values, keys, order.
//!
//! The gate before a swap and `diff` use the words of this module. Columns and the fields of
//! structs are identified by name, at any depth: `price.vat` is a field, `prices[]` the items of a
//! list, `sizes.key` and `sizes.value` those of a map. Nullability is not compared, because nulls
//! are counted separately.

use std::fmt;

use forebay_run::Order;
use forebay_run::error::{named_column, without_controls};
use forebay_run::number::Number;
use forebay_run::row::{Column, Kind, Schema};

use crate::documents::manifest::{Manifest, ValueKind};

/// The kind of change of a part of the schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Altered {
    ColumnGone,
    ColumnNew,
    /// To a type in which readers may get other answers for existing values.
    TypeChanged,
    /// To a type that can hold all old values and gives the same answers.
    TypeWidened,
    /// The kind of a value: a row, the bytes of a column, a number, a list.
    ValueKind,
    KeyTemplate,
    /// From ordered to hashed, which has no ranges.
    OrderLost,
    OrderGained,
}

/// One difference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alteration {
    pub what: Altered,
    /// The column's path; `None` if the difference concerns the table.
    pub column: Option<String>,
    pub before: Option<String>,
    pub after: Option<String>,
}

/// All differences. Those of columns are first, in the order of the older version and then of the
/// newer one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SchemaChange {
    pub alterations: Vec<Alteration>,
}

impl Altered {
    pub const ALL: [Altered; 8] = [
        Altered::ColumnGone,
        Altered::ColumnNew,
        Altered::TypeChanged,
        Altered::TypeWidened,
        Altered::ValueKind,
        Altered::KeyTemplate,
        Altered::OrderLost,
        Altered::OrderGained,
    ];

    /// Returns its name in limits and in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Altered::ColumnGone => "column-gone",
            Altered::ColumnNew => "column-new",
            Altered::TypeChanged => "type-changed",
            Altered::TypeWidened => "type-widened",
            Altered::ValueKind => "value-kind",
            Altered::KeyTemplate => "key-template",
            Altered::OrderLost => "order-lost",
            Altered::OrderGained => "order-gained",
        }
    }

    /// Returns whether it concerns one column.
    pub fn is_of_column(self) -> bool {
        matches!(
            self,
            Altered::ColumnGone | Altered::ColumnNew | Altered::TypeChanged | Altered::TypeWidened
        )
    }
}

impl fmt::Display for Alteration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |text: &Option<String>| without_controls(text.as_deref().unwrap_or_default());
        let (before, after) = (text(&self.before), text(&self.after));
        let column = named_column(self.column.as_deref().unwrap_or_default());
        match self.what {
            Altered::ColumnGone => write!(f, "column {column} is gone ({before})"),
            Altered::ColumnNew => write!(f, "column {column} is new ({after})"),
            Altered::TypeChanged => {
                write!(f, "column {column} changed its type: {before} to {after}")
            }
            Altered::TypeWidened => {
                write!(f, "column {column} has a wider type: {before} to {after}")
            }
            Altered::ValueKind => write!(f, "the values changed: {before} to {after}"),
            Altered::KeyTemplate => write!(f, "the key template changed: '{before}' to '{after}'"),
            Altered::OrderLost | Altered::OrderGained => {
                write!(f, "the order changed: {before} to {after}")
            }
        }
    }
}

impl SchemaChange {
    pub fn between(before: &Manifest, after: &Manifest) -> Self {
        let mut change = Self::default();
        change.values(before, after);
        if before.key != after.key {
            change.of_table(Altered::KeyTemplate, &before.key, &after.key);
        }
        if before.order != after.order {
            let what = match after.order {
                Order::Hashed => Altered::OrderLost,
                Order::Ordered => Altered::OrderGained,
            };
            change.of_table(what, order_name(before.order), order_name(after.order));
        }
        change
    }

    pub fn is_none(&self) -> bool {
        self.alterations.is_empty()
    }

    /// Returns the paths of the columns with these changes.
    pub fn columns(&self, what: &[Altered]) -> Vec<&str> {
        let found = self.alterations.iter();
        let found = found.filter(|alteration| what.contains(&alteration.what));
        found.filter_map(|found| found.column.as_deref()).collect()
    }

    /// If values are not rows, readers see no columns other than those of the values.
    fn values(&mut self, before: &Manifest, after: &Manifest) {
        use ValueKind::{Bytes, List, Number, Row};
        match (&before.value, &after.value) {
            (Row, Row) => self.fields("", &before.schema, &after.schema),
            (Bytes { column: was }, Bytes { column: is }) if was == is => {
                let column = (find(&before.schema, is), find(&after.schema, is));
                if let (Some(was), Some(now)) = column {
                    self.kinds(is, &was.kind, &now.kind);
                }
            }
            (
                List {
                    column: was,
                    item: a,
                },
                List {
                    column: is,
                    item: b,
                },
            ) if was == is => {
                self.kinds(&format!("{is}[]"), a, b);
            }
            (Number { .. }, Number { .. }) if before.value == after.value => {}
            _ => {
                let (before, after) = (value_name(before), value_name(after));
                self.of_table(Altered::ValueKind, &before, &after);
            }
        }
    }

    fn fields(&mut self, path: &str, before: &Schema, after: &Schema) {
        for was in before.columns() {
            let name = inside(path, &was.name);
            match find(after, &was.name) {
                Some(is) => self.kinds(&name, &was.kind, &is.kind),
                None => self.of_column(Altered::ColumnGone, &name, Some(&was.kind), None),
            }
        }
        for is in after.columns() {
            if find(before, &is.name).is_none() {
                let name = inside(path, &is.name);
                self.of_column(Altered::ColumnNew, &name, None, Some(&is.kind));
            }
        }
    }

    fn kinds(&mut self, path: &str, before: &Kind, after: &Kind) {
        match (before, after) {
            (Kind::Struct { fields: was }, Kind::Struct { fields: is }) => {
                self.fields(path, was, is);
            }
            (Kind::Map { entries: was, .. }, Kind::Map { entries: is, .. }) => {
                let pairs = was.columns().iter().zip(is.columns());
                for ((was, is), name) in pairs.zip(["key", "value"]) {
                    self.kinds(&inside(path, name), &was.kind, &is.kind);
                }
            }
            (
                Kind::List {
                    item: was,
                    length: a,
                },
                Kind::List {
                    item: is,
                    length: b,
                },
            ) if a == b || b.is_none() => {
                if a != b {
                    self.of_column(Altered::TypeWidened, path, Some(before), Some(after));
                }
                self.kinds(&format!("{path}[]"), &was.kind, &is.kind);
            }
            _ if before == after => {}
            _ if decimal(before).is_some() && decimal(before) == decimal(after) => {}
            _ => {
                let what = match widens(before, after) {
                    true => Altered::TypeWidened,
                    false => Altered::TypeChanged,
                };
                self.of_column(what, path, Some(before), Some(after));
            }
        }
    }

    fn of_column(
        &mut self,
        what: Altered,
        path: &str,
        before: Option<&Kind>,
        after: Option<&Kind>,
    ) {
        self.alterations.push(Alteration {
            what,
            column: Some(path.to_owned()),
            before: before.map(ToString::to_string),
            after: after.map(ToString::to_string),
        });
    }

    fn of_table(&mut self, what: Altered, before: &str, after: &str) {
        self.alterations.push(Alteration {
            what,
            column: None,
            before: Some(before.to_owned()),
            after: Some(after.to_owned()),
        });
    }
}

fn inside(path: &str, name: &str) -> String {
    match path {
        "" => name.to_owned(),
        path => format!("{path}.{name}"),
    }
}

fn find<'s>(schema: &'s Schema, name: &str) -> Option<&'s Column> {
    schema.columns().get(schema.column_index(name)?)
}

fn order_name(order: Order) -> &'static str {
    match order {
        Order::Hashed => "hashed",
        Order::Ordered => "ordered",
    }
}

fn value_name(manifest: &Manifest) -> String {
    match &manifest.value {
        ValueKind::Row => "whole rows".to_owned(),
        ValueKind::Bytes { column } => format!("the bytes of column {column}"),
        ValueKind::Number {
            column,
            number: Number::I64,
        } => format!("the whole numbers of column {column}"),
        ValueKind::Number {
            column,
            number: Number::F64,
        } => format!("the floats of column {column}"),
        ValueKind::List { column, .. } => format!("the lists of column {column}"),
    }
}

/// Returns whether `after` contains each value of `before`, and readers get it in the same form. A
/// time in a finer unit has more digits, and an integer that became a float has a point: those are
/// other forms.
fn widens(before: &Kind, after: &Kind) -> bool {
    if let (Some((was, a)), Some((is, b))) = (decimal(before), decimal(after)) {
        return a == b && was < is;
    }
    match (before, after) {
        (Kind::Null, _) => true,
        (Kind::Float16, Kind::Float32 | Kind::Float64) | (Kind::Float32, Kind::Float64) => true,
        (Kind::Date32, Kind::Date64) => true,
        (Kind::FixedBinary { .. }, Kind::Binary) => true,
        // All zoned times are shown in UTC.
        (
            Kind::Timestamp {
                unit: was,
                zone: Some(_),
            },
            Kind::Timestamp {
                unit: is,
                zone: Some(_),
            },
        ) => was == is,
        (
            _,
            Kind::Decimal {
                precision,
                scale: 0,
                ..
            },
        ) => {
            let digits = before.integer();
            let digits = digits.map(|(signed, bits)| digits_of(signed, bits));
            digits.is_some_and(|digits| digits <= *precision)
        }
        _ => match (before.integer(), after.integer()) {
            (Some((was_signed, was)), Some((is_signed, is))) => {
                was < is && (is_signed || !was_signed)
            }
            _ => false,
        },
    }
}

/// Returns the precision and scale of a decimal. The stored width is not visible to readers.
fn decimal(kind: &Kind) -> Option<(u8, i8)> {
    match kind {
        Kind::Decimal {
            precision, scale, ..
        } => Some((*precision, *scale)),
        _ => None,
    }
}

/// Returns the number of digits of the longest integer of so many bits.
fn digits_of(signed: bool, bits: u32) -> u8 {
    match (signed, bits) {
        (_, 8) => 3,
        (_, 16) => 5,
        (_, 32) => 10,
        (true, _) => 19,
        (false, _) => 20,
    }
}

#[cfg(test)]
#[path = "schema_change_tests.rs"]
mod tests;
