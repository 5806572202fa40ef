//! Fits sources to an existing table, for loads and pushes onto a version.
//!
//! The sources take the table's columns and types.

use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef, Schema, SchemaRef};

use super::PushError;
use super::source_reader::OpenSources;
use crate::encode::{OperationChoice, RowEncoder, ValueChoice};
use crate::key::KeyTemplate;
use crate::sources::{Input, SourceError, SourceOptions, SourceSet};

/// Opens sources in which these columns have the given types. Each column is required.
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

/// Creates the encoder of rows of the `stored` columns and `extra` ones, and arranges the sources
/// by it.
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

/// Returns the columns with all of them nullable. Deletes may leave out columns that other rows
/// need, so the encoder checks each row.
pub fn loose(schema: &SchemaRef) -> SchemaRef {
    let fields = schema.fields().iter();
    let loose = fields.map(|field| field.as_ref().clone().with_nullable(true));
    Arc::new(Schema::new(loose.collect::<Vec<Field>>()))
}

/// Returns the column that names the operations of rows.
pub fn text_field(name: &str) -> FieldRef {
    Arc::new(Field::new(name, DataType::Utf8, true))
}

/// Returns the error of a column that would name the operation and also be stored.
pub fn own_operation(name: &str) -> String {
    format!(
        "--op names the column '{name}', which is stored in it: say what rows do in a column besides, \
         or leave --op out"
    )
}

/// Converts an error about a given type into one about a missing column: types are given for each
/// column of the table.
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
