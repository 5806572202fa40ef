//! Brings a batch to a schema: dictionaries and run ends unwrapped, narrower types widened.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{ArrowError, Field, Schema, SchemaRef};

use crate::types::plain_type;

/// The schema with dictionaries and run ends unwrapped.
pub fn plain_schema(schema: &SchemaRef) -> SchemaRef {
    let plain = |field: &Arc<Field>| {
        field
            .as_ref()
            .clone()
            .with_data_type(plain_type(field.data_type()))
    };
    Arc::new(Schema::new(
        schema.fields().iter().map(plain).collect::<Vec<Field>>(),
    ))
}

/// The batch with its columns, by position, cast to the types of `schema` where they differ. A value
/// that the new type cannot hold is an error.
pub fn conform(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    let same_types = batch.num_columns() == schema.fields().len()
        && (batch.schema_ref().fields().iter())
            .zip(schema.fields())
            .all(|(have, want)| have.data_type() == want.data_type());
    if same_types {
        return Ok(batch.clone());
    }
    if batch.num_columns() != schema.fields().len() {
        let (have, want) = (batch.num_columns(), schema.fields().len());
        return Err(ArrowError::SchemaError(format!(
            "{have} columns instead of {want}"
        )));
    }
    let options = CastOptions {
        safe: false,
        ..CastOptions::default()
    };
    let cast = |(array, field): (&ArrayRef, &Arc<Field>)| {
        if array.data_type() == field.data_type() {
            return Ok(array.clone());
        }
        cast_with_options(array, field.data_type(), &options)
            .map_err(|error| ArrowError::CastError(format!("column '{}': {error}", field.name())))
    };
    let columns: Result<Vec<ArrayRef>, ArrowError> = batch
        .columns()
        .iter()
        .zip(schema.fields())
        .map(cast)
        .collect();
    // Nullability is the schema's promise for all files together: hold this batch to none.
    let fields = schema
        .fields()
        .iter()
        .map(|field| field.as_ref().clone().with_nullable(true));
    let loose = Arc::new(Schema::new(fields.collect::<Vec<Field>>()));
    let rows = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(loose, columns?, &rows)
}
