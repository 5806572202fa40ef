//! Determines the types of text columns: inferred from a sample of each file, or from all rows.
//!
//! All CSV files of a set share an inferred type for each column name, and all JSON files share one
//! shape. A value of one file therefore counts for the others.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arrow_schema::{DataType, Field, Fields};

use super::infer_csv::Guess;
use super::shape::{MAX_FIELDS, Object, Shape, TooWide, top_columns};
use crate::convert::holds;
use crate::near;
use crate::sources::error::SourceError;
use crate::sources::{Content, File, SourceOptions};

/// The inferred types of the text files of a set.
#[derive(Debug, Default)]
pub struct Guesses {
    csv: HashMap<String, Guess>,
    json: Object,
}

/// The types found in records.
#[derive(Debug)]
pub(in crate::sources) enum SeenType {
    /// One entry for each column, in the file's order.
    Csv(Vec<Guess>),
    Json(Shape),
}

/// Columns whose types are given, so that they are not inferred.
pub(in crate::sources) type GivenColumns = Arc<HashSet<String>>;

pub(in crate::sources) fn given(options: &SourceOptions) -> GivenColumns {
    let given = options.columns.iter().map(|given| &given.path);
    let table = options.table.iter().map(|(name, _)| name);
    Arc::new(given.chain(table).cloned().collect())
}

/// Sets the columns of the text files among `files`.
pub(in crate::sources) fn settle(
    files: &mut [File],
    options: &SourceOptions,
) -> Result<(), SourceError> {
    let guesses = match &options.guesses {
        Some(known) => known.clone(),
        None => {
            let mut guesses = Guesses::default();
            for file in &mut *files {
                if let Content::Text(_, text) = &mut file.content
                    && let Some(seen) = text.sample.take()
                {
                    guesses.add(&file.name, &text.names, seen)?;
                }
            }
            Arc::new(guesses)
        }
    };
    for file in files {
        if let Content::Text(_, text) = &mut file.content {
            text.settle(&guesses);
        }
    }
    Ok(())
}

impl Guesses {
    /// Adds the types found in a part of a file; `names` are the columns of CSV.
    pub(in crate::sources) fn add(
        &mut self,
        file: &str,
        names: &[String],
        seen: SeenType,
    ) -> Result<(), SourceError> {
        match seen {
            SeenType::Csv(seen) => {
                for (name, more) in names.iter().zip(seen) {
                    let have = self.csv.entry(name.clone()).or_default();
                    *have = have.join(more);
                }
                Ok(())
            }
            SeenType::Json(seen) => {
                let mut all = Shape::Object(std::mem::take(&mut self.json));
                let mut room = MAX_FIELDS.saturating_sub(all.width());
                let joined = all.join(seen, &mut room);
                let joined = joined.map_err(|TooWide| too_wide(file, &all));
                if let Shape::Object(object) = all {
                    self.json = object;
                }
                joined
            }
        }
    }

    pub(in crate::sources) fn csv(&self, column: &str) -> Guess {
        self.csv.get(column).copied().unwrap_or_default()
    }

    pub(in crate::sources) fn json(&self) -> &Object {
        &self.json
    }

    /// Returns the columns of JSON files: those found, and given ones that no row has.
    pub(in crate::sources) fn json_columns(&self, given: &HashSet<String>) -> Fields {
        let met = top_columns(&self.json);
        let is_met = |name: &&String| met.iter().any(|field| holds(field.name(), name));
        let mut unmet: Vec<&String> = given.iter().filter(|name| !is_met(name)).collect();
        unmet.sort();
        let unmet = unmet.into_iter();
        let unmet = unmet.map(|name| Arc::new(Field::new(name, DataType::Null, true)));
        met.iter().cloned().chain(unmet).collect()
    }

    /// Returns what a JSON record shows that was not known.
    pub(in crate::sources) fn news(&self, record: Shape) -> Option<String> {
        let Shape::Object(record) = record else {
            return None;
        };
        record.fields().iter().find_map(|(name, shape)| {
            let Some(have) = self.json.get(name) else {
                return Some(format!("there is the field '{name}'"));
            };
            let (path, is_new) = have.lacks(shape)?;
            let dot = if path.is_empty() || path.starts_with('[') {
                ""
            } else {
                "."
            };
            Some(if is_new {
                format!("there is the field '{name}{dot}{path}'")
            } else {
                format!("the column '{name}{dot}{path}' holds a value of another type")
            })
        })
    }
}

/// Returns the error of a file with more fields than the most columns.
pub(in crate::sources) fn too_wide(file: &str, shape: &Shape) -> SourceError {
    let (path, names) = shape.widest();
    let names: Vec<String> = names.iter().map(|name| format!("'{name}'")).collect();
    let column = path.split(['.', '[']).next().unwrap_or_default();
    let advice = if path.is_empty() {
        "write a record for each of them, with its name and value as columns".to_owned()
    } else if path == column {
        let option = near::column_option(&path, "map(text,text)");
        format!("keep them in one column by its type, as in {option}")
    } else {
        format!("give the column '{column}' by --column a type in which '{path}' is a map")
    };
    SourceError::TooManyFields {
        file: file.to_owned(),
        limit: MAX_FIELDS,
        names: names.join(", "),
        advice,
    }
}
