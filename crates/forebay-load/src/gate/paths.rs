//! Checks the columns that limits of the schema name.

use forebay_engine::Altered;
use forebay_run::row::{Column, Kind, Schema};

use super::columns::GateError;
use super::limit::{Limit, SchemaLimit};

/// Refuses limits of the schema for columns that no version has. For new columns, these are columns
/// that the new rows lack; for types, columns that the `serving` version lacks as well. A job that
/// drops a column keeps its limit on later nights, so limits of columns that are gone are never
/// refused.
pub fn check_paths(
    limits: &[Limit],
    rows: &Schema,
    serving: Option<&Schema>,
) -> Result<(), GateError> {
    let (new, old) = (paths(rows), serving.map(paths));
    for limit in limits {
        let Limit::Schema(SchemaLimit {
            what,
            column: Some(column),
            ..
        }) = limit
        else {
            continue;
        };
        let (place, columns) = match (what, &old) {
            (Altered::ColumnGone, _) => continue,
            (Altered::ColumnNew, _) | (_, None) => ("the rows do not have", new.clone()),
            (_, Some(old)) => {
                let more = old.iter().filter(|path| !new.contains(path));
                let both = new.iter().chain(more).cloned().collect();
                ("neither the rows nor the version that serves have", both)
            }
        };
        if !columns.contains(column) {
            return Err(GateError::UnknownPath {
                limit: limit.to_string(),
                column: column.clone(),
                place,
                columns,
            });
        }
    }
    Ok(())
}

/// Returns the paths of all columns and of those nested in them, as limits name them.
fn paths(schema: &Schema) -> Vec<String> {
    let mut paths = Vec::new();
    of_fields("", schema.columns(), &mut paths);
    paths
}

fn of_fields(path: &str, columns: &[Column], paths: &mut Vec<String>) {
    for column in columns {
        of_kind(inside(path, &column.name), &column.kind, paths);
    }
}

fn of_kind(path: String, kind: &Kind, paths: &mut Vec<String>) {
    paths.push(path.clone());
    match kind {
        Kind::Struct { fields } => of_fields(&path, fields.columns(), paths),
        Kind::List { item, .. } => of_kind(format!("{path}[]"), &item.kind, paths),
        Kind::Map { entries, .. } => {
            for (side, name) in entries.columns().iter().zip(["key", "value"]) {
                of_kind(inside(&path, name), &side.kind, paths);
            }
        }
        _ => {}
    }
}

fn inside(path: &str, name: &str) -> String {
    match path {
        "" => name.to_owned(),
        path => format!("{path}.{name}"),
    }
}
