//! Detects columns that hold UUIDs: sixteen bytes, with Arrow's extension type for them.

use arrow_schema::extension::EXTENSION_TYPE_NAME_KEY;
use arrow_schema::{DataType, Field, FieldRef, Schema, SchemaRef};
use parquet::basic::LogicalType;
use parquet::schema::types::SchemaDescriptor;

pub const UUID_BYTES: i32 = 16;
const UUID_EXTENSION: &str = "arrow.uuid";

/// Returns whether a column's source says that it holds UUIDs.
pub fn is_uuid(field: &Field) -> bool {
    *field.data_type() == DataType::FixedSizeBinary(UUID_BYTES)
        && field.extension_type_name() == Some(UUID_EXTENSION)
}

/// Returns the column with the mark that it holds UUIDs.
pub fn with_uuid_mark(field: Field) -> Field {
    let mut metadata = field.metadata().clone();
    metadata.insert(
        EXTENSION_TYPE_NAME_KEY.to_owned(),
        UUID_EXTENSION.to_owned(),
    );
    field.with_metadata(metadata)
}

/// Returns the columns of a Parquet file, with the mark on those that are UUIDs by their logical
/// type.
pub fn with_parquet_marks(schema: &SchemaRef, file: &SchemaDescriptor) -> SchemaRef {
    let is_uuid = |field: &FieldRef| {
        let mut columns = file.root_schema().get_fields().iter();
        let column = columns.find(|column| column.name() == field.name());
        let logical = column.and_then(|column| column.get_basic_info().logical_type_ref());
        logical == Some(&LogicalType::Uuid)
    };
    if !schema.fields().iter().any(is_uuid) {
        return SchemaRef::clone(schema);
    }
    let mark = |field: &FieldRef| match is_uuid(field) {
        true => FieldRef::new(with_uuid_mark(field.as_ref().clone())),
        false => FieldRef::clone(field),
    };
    let fields: Vec<FieldRef> = schema.fields().iter().map(mark).collect();
    SchemaRef::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}
