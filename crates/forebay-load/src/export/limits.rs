//! Finds what a format cannot express, before anything is written.

use forebay_run::row::{Column, Kind};

use super::{ExportError, ExportFormat};
use crate::type_name::type_name;
use crate::types::arrow_type;

/// The most digits of a decimal.
const MAX_DIGITS: u16 = 76;

/// Refuses columns that the format cannot express; returns notes about the others.
pub(super) fn check(format: ExportFormat, columns: &[Column]) -> Result<Vec<String>, ExportError> {
    let mut notes = Vec::new();
    for column in columns {
        if format == ExportFormat::Csv && column.name.is_empty() {
            let reason = "has no name, and a CSV header cannot say that";
            return Err(refusal(format, "", &column.kind, reason));
        }
        visit(&column.name, &column.kind, &mut |path, kind| {
            if let Some(reason) = missing(format, kind) {
                return Err(refusal(format, path, kind, reason));
            }
            notes.extend(note(format, path, kind));
            Ok(())
        })?;
    }
    Ok(notes)
}

fn refusal(format: ExportFormat, path: &str, kind: &Kind, reason: &'static str) -> ExportError {
    ExportError::Type {
        column: path.to_owned(),
        data_type: type_name(&arrow_type(kind)),
        reason,
        instead: match format {
            ExportFormat::Parquet => "an .arrow, .jsonl or .csv file",
            _ => "an .arrow file",
        },
    }
}

/// Calls `each` with a column and all that is nested in it.
fn visit(
    path: &str,
    kind: &Kind,
    each: &mut dyn FnMut(&str, &Kind) -> Result<(), ExportError>,
) -> Result<(), ExportError> {
    each(path, kind)?;
    match kind {
        Kind::List { item, .. } => visit(&format!("{path}[]"), &item.kind, each),
        Kind::Struct { fields } => fields
            .columns()
            .iter()
            .try_for_each(|field| visit(&format!("{path}.{}", field.name), &field.kind, each)),
        Kind::Map { entries, .. } => entries
            .columns()
            .iter()
            .try_for_each(|field| visit(&format!("{path}.{}", field.name), &field.kind, each)),
        _ => Ok(()),
    }
}

/// Returns why the format cannot express a kind, ignoring nested kinds.
fn missing(format: ExportFormat, kind: &Kind) -> Option<&'static str> {
    match (format, kind) {
        (ExportFormat::Arrow | ExportFormat::ArrowStream, _) => None,
        (
            ExportFormat::Parquet,
            Kind::IntervalMonths | Kind::IntervalDayTime | Kind::IntervalMonthDayNano,
        ) => {
            Some("is an interval: that of Parquet has no sign and no nanoseconds, and few read it")
        }
        (ExportFormat::Parquet, Kind::Struct { fields }) if fields.is_empty() => {
            Some("is a struct without fields, which Parquet lacks")
        }
        (ExportFormat::Parquet, Kind::FixedBinary { width: 0 }) => {
            Some("is binary of width 0, which Parquet lacks")
        }
        (
            ExportFormat::Parquet,
            Kind::List {
                length: Some(0), ..
            },
        ) => Some("has lists of the fixed size 0, which Parquet lacks"),
        (
            ExportFormat::Parquet,
            Kind::Decimal {
                precision,
                scale: scale @ ..0,
                ..
            },
        ) if u16::from(*precision) + u16::from(scale.unsigned_abs()) > MAX_DIGITS => {
            Some("has a negative scale, which Parquet lacks, and too many digits for the scale 0")
        }
        _ => None,
    }
}

/// Returns a note about a column that the format expresses only in part.
fn note(format: ExportFormat, path: &str, kind: &Kind) -> Option<String> {
    if format != ExportFormat::Parquet {
        return None;
    }
    let data_type = type_name(&arrow_type(kind));
    match kind {
        Kind::Duration { .. } => Some(format!(
            "column '{path}' ({data_type}) is written as whole numbers, which only readers of Arrow's schema take for \
             durations: Parquet has none"
        )),
        Kind::Decimal {
            scale: scale @ ..0, ..
        } => Some(format!(
            "column '{path}' ({data_type}) is written with the scale 0: Parquet has no negative ones ({scale})"
        )),
        _ => None,
    }
}
