//! The type of a table's values: all that is needed to read and write one.

use forebay_engine::{Source, ValueKind};
use forebay_load::export::{ExportValues, TableColumns};
use forebay_run::Order;
use forebay_run::number::Number;
use forebay_run::row::Schema;

/// The value type of a table.
#[derive(Debug)]
pub struct Shape {
    pub kind: ValueKind,
    pub schema: Schema,
    /// The type of the numbers, if the values are numbers.
    pub number: Option<Number>,
    /// The template of the keys; `None` if they do not come from columns, as in a live table.
    pub key: Option<String>,
    pub order: Order,
}

impl Shape {
    pub fn of(source: Source<'_>) -> Self {
        Self {
            kind: source.kind().clone(),
            schema: source.schema().clone(),
            number: source.number(),
            key: match source {
                Source::Batch(version) => Some(version.manifest().key.clone()),
                Source::Live(_) => None,
            },
            order: source.order(),
        }
    }

    /// Returns the columns of records as rows of Arrow; `only` those of these names.
    pub fn table_columns<'a>(
        &'a self,
        binary: bool,
        only: Option<&'a [String]>,
    ) -> TableColumns<'a> {
        TableColumns {
            values: ExportValues::new(&self.kind, &self.schema, self.number),
            key: self.key.as_deref(),
            binary,
            only,
        }
    }

    /// Returns the positions of a row's columns with these names.
    pub fn fields(&self, names: &[String]) -> Vec<usize> {
        let places = names.iter().map(|name| self.schema.column_index(name));
        places.flatten().collect()
    }

    /// Returns `bytes`, `number`, `row` or `list`.
    pub fn kind_name(&self) -> &'static str {
        match (self.number, &self.kind) {
            (Some(_), _) | (None, ValueKind::Number { .. }) => "number",
            (None, ValueKind::Row) => "row",
            (None, ValueKind::List { .. }) => "list",
            (None, ValueKind::Bytes { .. }) => "bytes",
        }
    }
}
