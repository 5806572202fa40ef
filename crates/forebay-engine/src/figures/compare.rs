//! Compares two values whose versions may have different schemas.
//!
//! Rows are compared column by column, over the columns that both schemas have, by name. The
//! comparison uses the texts that a reader of the field would get, so a widened column compares
//! equal. An added or removed column is reported once, not as a change of every row.

use forebay_run::row::{ListView, RowError, RowView, Schema};

use crate::documents::manifest::{Manifest, ValueKind};
use crate::error::ReadError;
use crate::keys::key_text::show_key;

/// The value of a row's column before and after; `None` is a null.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnChange {
    pub column: String,
    pub before: Option<Vec<u8>>,
    pub after: Option<Vec<u8>>,
}

/// A comparer of the values of one version with those of another.
pub(crate) struct Comparer<'a> {
    before: &'a Manifest,
    after: &'a Manifest,
    /// The parts that can change: the common columns of rows, or the one value.
    pub columns: Vec<String>,
    how: CompareMode,
    texts: [Vec<u8>; 2],
}

enum CompareMode {
    /// The positions of the common columns in the two schemas, and whether the schemas are equal.
    Rows {
        pairs: Vec<(usize, usize)>,
        same_schema: bool,
    },
    /// Values of one kind and type.
    Bytes,
    /// Lists, numbers and bytes of different types, as readers get them.
    Texts,
    /// A row or list never equals a value of another kind.
    Never,
}

impl<'a> Comparer<'a> {
    pub fn new(before: &'a Manifest, after: &'a Manifest) -> Self {
        let mut columns = vec!["value".to_owned()];
        let how = match (&before.value, &after.value) {
            (ValueKind::Row, ValueKind::Row) => {
                let pairs = common(&before.schema, &after.schema);
                let name = |(_, at): &(usize, usize)| after.schema.columns()[*at].name.clone();
                columns = pairs.iter().map(name).collect();
                CompareMode::Rows {
                    pairs,
                    same_schema: before.schema == after.schema,
                }
            }
            (ValueKind::Bytes { .. }, ValueKind::Bytes { .. }) => CompareMode::Bytes,
            (ValueKind::Number { number: a, .. }, ValueKind::Number { number: b, .. })
                if a == b =>
            {
                CompareMode::Bytes
            }
            (ValueKind::List { item: a, .. }, ValueKind::List { item: b, .. }) if a == b => {
                CompareMode::Bytes
            }
            (ValueKind::List { .. }, ValueKind::List { .. })
            | (
                ValueKind::Bytes { .. } | ValueKind::Number { .. },
                ValueKind::Bytes { .. } | ValueKind::Number { .. },
            ) => CompareMode::Texts,
            _ => CompareMode::Never,
        };
        Self {
            before,
            after,
            columns,
            how,
            texts: [Vec::new(), Vec::new()],
        }
    }

    /// Calls `changed` with the index of each column that differs; returns whether one did.
    pub fn compare(
        &mut self,
        key: &[u8],
        before: &[u8],
        after: &[u8],
        mut changed: impl FnMut(usize),
    ) -> Result<bool, ReadError> {
        let single = match &self.how {
            CompareMode::Rows { pairs, same_schema } => {
                if *same_schema && before == after {
                    return Ok(false);
                }
                let rows = self.rows(key, before, after)?;
                let mut any = false;
                for (index, pair) in pairs.iter().enumerate() {
                    let [a, b] = &mut self.texts;
                    if !same_text(&rows, *pair, a, b).map_err(|e| self.unreadable(key, &e))? {
                        any = true;
                        changed(index);
                    }
                }
                return Ok(any);
            }
            CompareMode::Bytes => before == after,
            CompareMode::Texts => {
                shown(self.before, before).map_err(|e| self.unreadable(key, &e))?
                    == shown(self.after, after).map_err(|e| self.unreadable(key, &e))?
            }
            CompareMode::Never => false,
        };
        if !single {
            changed(0);
        }
        Ok(!single)
    }

    /// Returns the texts of one column, as given to `changed`, before and after.
    pub fn change(
        &self,
        key: &[u8],
        column: usize,
        before: &[u8],
        after: &[u8],
    ) -> Result<ColumnChange, ReadError> {
        let (before, after) = match &self.how {
            CompareMode::Rows { pairs, .. } => {
                let (a, b) = self.rows(key, before, after)?;
                let text = |row: &RowView<'_>, column| {
                    let mut text = Vec::new();
                    let found = row
                        .text(column, &mut text)
                        .map_err(|e| self.unreadable(key, &e));
                    found.map(|found| found.then_some(text))
                };
                let pair = pairs[column];
                (text(&a, pair.0)?, text(&b, pair.1)?)
            }
            CompareMode::Bytes | CompareMode::Texts | CompareMode::Never => {
                let show = |manifest, value: &[u8]| {
                    shown(manifest, value).map_err(|e| self.unreadable(key, &e))
                };
                (
                    Some(show(self.before, before)?),
                    Some(show(self.after, after)?),
                )
            }
        };
        Ok(ColumnChange {
            column: self.columns[column].clone(),
            before,
            after,
        })
    }

    fn rows<'v>(
        &self,
        key: &[u8],
        before: &'v [u8],
        after: &'v [u8],
    ) -> Result<(RowView<'v>, RowView<'v>), ReadError>
    where
        'a: 'v,
    {
        let a = RowView::new(&self.before.schema, before);
        let b = RowView::new(&self.after.schema, after);
        let explain = |e| self.unreadable(key, &e);
        Ok((a.map_err(explain)?, b.map_err(explain)?))
    }

    fn unreadable(&self, key: &[u8], error: &RowError) -> ReadError {
        ReadError::Value {
            table: self.after.table.clone(),
            versions: format!("{} or {}", self.before.version, self.after.version),
            key: show_key(key),
            problem: error.to_string(),
        }
    }
}

/// Returns the positions of the columns that both have, in the order of `after`.
fn common(before: &Schema, after: &Schema) -> Vec<(usize, usize)> {
    let place = |(at, column): (usize, &forebay_run::row::Column)| {
        before.column_index(&column.name).map(|found| (found, at))
    };
    after
        .columns()
        .iter()
        .enumerate()
        .filter_map(place)
        .collect()
}

fn same_text(
    (a, b): &(RowView<'_>, RowView<'_>),
    pair: (usize, usize),
    text_a: &mut Vec<u8>,
    text_b: &mut Vec<u8>,
) -> Result<bool, RowError> {
    text_a.clear();
    text_b.clear();
    let found = (a.text(pair.0, text_a)?, b.text(pair.1, text_b)?);
    Ok(found.0 == found.1 && (!found.0 || text_a == text_b))
}

/// Returns a value in the form that a reader gets: rows and lists as JSON, numbers as text, bytes
/// unchanged.
fn shown(manifest: &Manifest, value: &[u8]) -> Result<Vec<u8>, RowError> {
    let mut text = Vec::new();
    match &manifest.value {
        ValueKind::Row => RowView::new(&manifest.schema, value)?.json(&mut text)?,
        ValueKind::List { item, .. } => ListView::new(item, value)?.json(&mut text)?,
        // A value that is not a number is shown unchanged.
        ValueKind::Number { number, .. } if number.write_text(value, &mut text).is_ok() => {}
        ValueKind::Number { .. } | ValueKind::Bytes { .. } => return Ok(value.to_vec()),
    }
    Ok(text)
}
