//! Finds integers of more than 64 bits, which Arrow's schemas allow and the library does not read.

use arrow_ipc::{Field, Schema, root_as_message};
use forebay_run::row::read_base64;
use parquet::arrow::ARROW_SCHEMA_META_KEY;
use parquet::file::metadata::FileMetaData;

const BITS: i32 = 64;
/// The optional bytes of an encoded schema before its length.
const MARK: [u8; 4] = [0xff; 4];

/// Returns the reason why a schema is not read, with the first such column.
pub(super) fn named(reason: String, schema: Schema<'_>) -> String {
    match column(schema) {
        Some(column) => format!("the column '{column}': {reason}"),
        None => reason,
    }
}

/// Returns the same reason for the schema that the writer of a Parquet file stored in it.
pub(super) fn named_in(reason: String, file: &FileMetaData) -> String {
    let entries = file.key_value_metadata().into_iter().flatten();
    let mut schemas = entries.filter(|entry| entry.key == ARROW_SCHEMA_META_KEY);
    let mut found = || {
        let bytes = read_base64(schemas.next()?.value.as_ref()?.as_bytes())?;
        let bytes = bytes.strip_prefix(&MARK).unwrap_or(&bytes);
        let message = root_as_message(bytes.get(4..)?).ok()?;
        Some(named(reason.clone(), message.header_as_schema()?))
    };
    found().unwrap_or(reason)
}

fn column(schema: Schema<'_>) -> Option<String> {
    schema.fields()?.iter().find_map(path)
}

/// Returns the path of the first such place in a field.
fn path(field: Field<'_>) -> Option<String> {
    let name = field.name().unwrap_or_default();
    if field.type_as_int().is_some_and(|int| int.bitWidth() > BITS) {
        return Some(name.to_owned());
    }
    let within = field.children()?.iter().find_map(path)?;
    Some(format!("{name}.{within}"))
}
