//! Properties of Arrow columns, beside their values, that a table does not store.

use std::collections::BTreeSet;

use arrow_pyarrow::FromPyArrow;
use arrow_schema::{DataType, Field, Schema};
use pyo3::prelude::*;

/// The metadata key of the name of a field's extension type.
const EXTENSION: &str = "ARROW:extension:name";
/// Prefixes of metadata that libraries keep for themselves, which users do not miss.
const OWN: [&str; 5] = ["ARROW:", "PARQUET:", "pandas", "_PL_", "org.apache.spark."];

/// Lists the categories, extension types and metadata of a schema that are not stored.
#[pyfunction]
#[pyo3(name = "not_stored")]
pub fn not_stored_of(schema: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
    Ok(not_stored(&Schema::from_pyarrow_bound(schema)?))
}

/// Lists the same for a schema of Rust's Arrow.
pub fn not_stored(schema: &Schema) -> Vec<String> {
    let mut found = Unstored::default();
    found.keys(schema.metadata().keys());
    for field in schema.fields() {
        found.look(field.name(), field);
    }
    let metadata: Vec<String> = found.metadata.into_iter().collect();
    [
        (
            "categories are not stored; these columns come back as their values",
            found.categories,
        ),
        (
            "extension types are not stored; these columns come back as what they are made of",
            found.extensions,
        ),
        ("metadata of the schema are not stored", metadata),
    ]
    .into_iter()
    .filter(|(_, names)| !names.is_empty())
    .map(|(what, names)| format!("{what}: {}", names.join(", ")))
    .collect()
}

#[derive(Default)]
struct Unstored {
    categories: Vec<String>,
    extensions: Vec<String>,
    metadata: BTreeSet<String>,
}

impl Unstored {
    fn look(&mut self, path: &str, field: &Field) {
        self.keys(field.metadata().keys());
        if let Some(name) = field.metadata().get(EXTENSION) {
            self.extensions.push(format!("{path} ({name})"));
        }
        match field.data_type() {
            DataType::Dictionary(..) => self.categories.push(path.to_owned()),
            DataType::List(item)
            | DataType::LargeList(item)
            | DataType::FixedSizeList(item, _)
            | DataType::ListView(item)
            | DataType::LargeListView(item)
            | DataType::Map(item, _) => self.look(&format!("{path}.[]"), item),
            DataType::Struct(fields) => {
                for field in fields {
                    self.look(&format!("{path}.{}", field.name()), field);
                }
            }
            _ => {}
        }
    }

    fn keys<'a>(&mut self, keys: impl Iterator<Item = &'a String>) {
        let others = keys.filter(|key| !OWN.iter().any(|own| key.starts_with(own)));
        self.metadata.extend(others.cloned());
    }
}
