//! Sources of a table that is there, for pushes onto a version and loads: they take the table's
//! columns and types.

use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef, Schema, SchemaRef};

use super::PushError;
use super::looking::OpenSources;
use crate::encode::{OperationChoice, RowEncoder, ValueChoice};
use crate::key::KeyTemplate;
use crate::sources::{Input, SourceError, SourceOptions, SourceSet};

/// Opens sources in which these columns have the types given here. Each of them is needed.
pub fn open_typed(
    sources: &Input,
    options: &SourceOptions,
    columns: impl IntoIterator<Item = FieldRef>,
) -> Result<SourceSet, PushError> {
    let named = |field: FieldRef| (field.name().clone(), field.data_type().clone());
    let options = SourceOptions {
        table: columns.into_iter().map(named).collect(),
        ..options.clone()
    };
    SourceSet::open(sources, &options).map_err(lacking)
}

/// Makes what encodes rows of the `stored` columns, which come beside `extra` ones, and arranges
/// the sources by it.
pub fn fit(
    mut sources: SourceSet,
    stored: Vec<FieldRef>,
    extra: Vec<FieldRef>,
    key: &KeyTemplate,
    value: &ValueChoice,
    choice: &OperationChoice,
) -> Result<OpenSources, PushError> {
    let stored = Arc::new(Schema::new(stored));
    let encoder = RowEncoder::beside(&stored, extra, key, value, Some(choice))?;
    sources.arrange(loose(encoder.batch_schema()))?;
    Ok((sources, encoder))
}

/// The columns as batches may have them: deletes may leave out what other rows need; the encoder
/// holds rows to it one by one.
pub fn loose(schema: &SchemaRef) -> SchemaRef {
    let fields = schema.fields().iter();
    let loose = fields.map(|field| field.as_ref().clone().with_nullable(true));
    Arc::new(Schema::new(loose.collect::<Vec<Field>>()))
}

/// The column that says what rows do.
pub fn text_field(name: &str) -> FieldRef {
    Arc::new(Field::new(name, DataType::Utf8, true))
}

/// What is wrong with a column that would say what rows do, and be stored as well.
pub fn own_operation(name: &str) -> String {
    format!(
        "--op names the column '{name}', which is stored in it: say what rows do in a column besides, \
         or leave --op out"
    )
}

/// A type is given for each column of the table, so that a missing one shows there.
fn lacking(error: SourceError) -> PushError {
    match error {
        SourceError::UnknownColumn {
            column,
            columns,
            hint,
        } => PushError::Onto {
            problem: format!(
                "the sources have no column '{column}', which it needs; they have: {columns}{hint}"
            ),
        },
        other => other.into(),
    }
}
