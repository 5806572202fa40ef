//! What the values of a table are: all that is needed to read and write one.

use forebay_engine::{Source, ValueKind};
use forebay_load::export::{ExportValues, TableColumns};
use forebay_run::Order;
use forebay_run::number::Number;
use forebay_run::row::Schema;

/// See the module's text.
#[derive(Debug)]
pub struct Shape {
    pub kind: ValueKind,
    pub schema: Schema,
    /// What the values are, where they are numbers.
    pub number: Option<Number>,
    /// The template of the keys; `None` where they come from anywhere, as in a live table.
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

    /// The columns that records are as rows of Arrow; `only` those of these names.
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

    /// Which columns of a row have these names.
    pub fn fields(&self, names: &[String]) -> Vec<usize> {
        let places = names.iter().map(|name| self.schema.column_index(name));
        places.flatten().collect()
    }

    /// `bytes`, `number`, `row` or `list`.
    pub fn kind_name(&self) -> &'static str {
        match (self.number, &self.kind) {
            (Some(_), _) | (None, ValueKind::Number { .. }) => "number",
            (None, ValueKind::Row) => "row",
            (None, ValueKind::List { .. }) => "list",
            (None, ValueKind::Bytes { .. }) => "bytes",
        }
    }
}
