//! Types that a Parquet file has no name for, and that Arrow's schema beside it tells: seconds,
//! intervals without months.
//!
//! Parquet counts from milliseconds on, so a column of seconds is stored in these. Whoever wrote it
//! says so in the schema that goes with the file, and its values are whole seconds; those that are
//! not do not convert, and make bad rows.

use std::sync::Arc;

use arrow_ipc::convert::try_schema_from_ipc_buffer;
use arrow_schema::{DataType, Field, Fields, IntervalUnit, Schema, SchemaRef, TimeUnit};
use forebay_run::row::read_base64;
use parquet::arrow::ARROW_SCHEMA_META_KEY;
use parquet::file::metadata::FileMetaData;

/// The columns of a file, with the types that its writer told where the file's are only finer.
pub(super) fn told(schema: &SchemaRef, metadata: &FileMetaData) -> SchemaRef {
    let Some(told) = told_schema(metadata) else {
        return schema.clone();
    };
    let fields = schema.fields().iter();
    let fields = fields.map(|field| match told.field_with_name(field.name()) {
        Ok(told) => told_field(field, told),
        Err(_) => field.clone(),
    });
    Arc::new(Schema::new(fields.collect::<Fields>()))
}

/// What a damaged or unknown schema told is passed over, as readers of Parquet do.
fn told_schema(metadata: &FileMetaData) -> Option<Schema> {
    let entries = metadata.key_value_metadata()?.iter();
    let mut schemas = entries.filter(|entry| entry.key == ARROW_SCHEMA_META_KEY);
    let bytes = read_base64(schemas.next()?.value.as_ref()?.as_bytes())?;
    try_schema_from_ipc_buffer(&bytes).ok()
}

fn told_field(file: &Arc<Field>, told: &Field) -> Arc<Field> {
    let data_type = told_type(file.data_type(), told.data_type());
    Arc::new(file.as_ref().clone().with_data_type(data_type))
}

fn told_type(file: &DataType, told: &DataType) -> DataType {
    use DataType::{FixedSizeList, Interval, LargeList, List, Map, Struct, Time32, Timestamp};
    use IntervalUnit::{DayTime, MonthDayNano};
    use TimeUnit::{Millisecond, Second};
    match (file, told) {
        (Timestamp(Millisecond, zone), Timestamp(Second, of)) if zone.is_some() == of.is_some() => {
            told.clone()
        }
        (Time32(Millisecond), Time32(Second)) => told.clone(),
        (Interval(MonthDayNano), Interval(DayTime)) => told.clone(),
        (List(item), List(told)) => List(told_field(item, told)),
        (LargeList(item), LargeList(told)) => LargeList(told_field(item, told)),
        (FixedSizeList(item, length), FixedSizeList(told, _)) => {
            FixedSizeList(told_field(item, told), *length)
        }
        (Struct(fields), Struct(told)) => {
            let of = |field: &Arc<Field>| match told.find(field.name()) {
                Some((_, told)) => told_field(field, told),
                None => field.clone(),
            };
            Struct(fields.iter().map(of).collect())
        }
        (Map(entries, sorted), Map(told, _)) => match (entries.data_type(), told.data_type()) {
            (Struct(fields), Struct(told)) if fields.len() == told.len() => {
                let pairs = fields.iter().zip(told);
                let fields = pairs.map(|(field, told)| told_field(field, told)).collect();
                let entries = entries.as_ref().clone().with_data_type(Struct(fields));
                Map(Arc::new(entries), *sorted)
            }
            _ => file.clone(),
        },
        _ => file.clone(),
    }
}
