//! Finds types that Parquet cannot express, but Arrow's schema in the file does.
//!
//! These are seconds, and intervals without months.
//!
//! Parquet has no unit coarser than milliseconds, so it stores a column of seconds in these. The
//! writer records the type in the schema in the file, and the values are whole seconds. Values that
//! are not do not convert, and make bad rows.

use std::sync::Arc;

use arrow_ipc::convert::try_schema_from_ipc_buffer;
use arrow_schema::{DataType, Field, Fields, IntervalUnit, Schema, SchemaRef, TimeUnit};
use forebay_run::row::read_base64;
use parquet::arrow::ARROW_SCHEMA_META_KEY;
use parquet::file::metadata::FileMetaData;

/// Returns the columns of a file, with the types recorded by its writer if the file's types are
/// only finer.
pub(super) fn reported(schema: &SchemaRef, metadata: &FileMetaData) -> SchemaRef {
    let Some(reported) = reported_schema(metadata) else {
        return schema.clone();
    };
    let fields = schema.fields().iter();
    let fields = fields.map(|field| match reported.field_with_name(field.name()) {
        Ok(reported) => reported_field(field, reported),
        Err(_) => field.clone(),
    });
    Arc::new(Schema::new(fields.collect::<Fields>()))
}

/// Returns the writer's schema. A damaged or unknown schema is ignored, as readers of Parquet do.
fn reported_schema(metadata: &FileMetaData) -> Option<Schema> {
    let entries = metadata.key_value_metadata()?.iter();
    let mut schemas = entries.filter(|entry| entry.key == ARROW_SCHEMA_META_KEY);
    let bytes = read_base64(schemas.next()?.value.as_ref()?.as_bytes())?;
    try_schema_from_ipc_buffer(&bytes).ok()
}

fn reported_field(file: &Arc<Field>, reported: &Field) -> Arc<Field> {
    let data_type = reported_type(file.data_type(), reported.data_type());
    Arc::new(file.as_ref().clone().with_data_type(data_type))
}

fn reported_type(file: &DataType, reported: &DataType) -> DataType {
    use DataType::{FixedSizeList, Interval, LargeList, List, Map, Struct, Time32, Timestamp};
    use IntervalUnit::{DayTime, MonthDayNano};
    use TimeUnit::{Millisecond, Second};
    match (file, reported) {
        (Timestamp(Millisecond, zone), Timestamp(Second, of)) if zone.is_some() == of.is_some() => {
            reported.clone()
        }
        (Time32(Millisecond), Time32(Second)) => reported.clone(),
        (Interval(MonthDayNano), Interval(DayTime)) => reported.clone(),
        (List(item), List(reported)) => List(reported_field(item, reported)),
        (LargeList(item), LargeList(reported)) => LargeList(reported_field(item, reported)),
        (FixedSizeList(item, length), FixedSizeList(reported, _)) => {
            FixedSizeList(reported_field(item, reported), *length)
        }
        (Struct(fields), Struct(reported)) => {
            let of = |field: &Arc<Field>| match reported.find(field.name()) {
                Some((_, reported)) => reported_field(field, reported),
                None => field.clone(),
            };
            Struct(fields.iter().map(of).collect())
        }
        (Map(entries, sorted), Map(reported, _)) => {
            match (entries.data_type(), reported.data_type()) {
                (Struct(fields), Struct(reported)) if fields.len() == reported.len() => {
                    let pairs = fields.iter().zip(reported);
                    let fields = pairs
                        .map(|(field, reported)| reported_field(field, reported))
                        .collect();
                    let entries = entries.as_ref().clone().with_data_type(Struct(fields));
                    Map(Arc::new(entries), *sorted)
                }
                _ => file.clone(),
            }
        }
        _ => file.clone(),
    }
}
