//! What the values of a table are: all that is needed to read and write one.

use forebay_engine::{Source, ValueKind};
use forebay_load::export::ExportValues;
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
    /// The template of the keys.
    pub key: String,
    pub order: Order,
}

impl Shape {
    pub fn of(source: Source<'_>) -> Self {
        Self {
            kind: source.kind().clone(),
            schema: source.schema().clone(),
            number: source.number(),
            key: match source {
                Source::Batch(version) => version.manifest().key.clone(),
                Source::Live(_) => "{key}".to_owned(),
            },
            order: source.order(),
        }
    }

    pub fn export_values(&self) -> ExportValues<'_> {
        ExportValues::new(&self.kind, &self.schema, self.number)
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
