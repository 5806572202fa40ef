//! Reads the indexes that pandas stores as a range in a file's metadata instead of as a column.

use arrow_schema::Metadata;
use serde::Deserialize;

/// The key of that metadata in schemas.
const KEY: &str = "pandas";

#[derive(Deserialize)]
struct PandasMetadata {
    index_columns: Vec<Index>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Index {
    Range {
        kind: String,
        name: String,
    },
    /// An index that is a column, or has no name.
    Other(serde::de::IgnoredAny),
}

/// Returns the names of such indexes; none if the metadata is not understood.
pub(super) fn range_indexes(metadata: &Metadata) -> Vec<String> {
    let text = metadata.get(KEY).map_or("", String::as_str);
    let Ok(metadata) = serde_json::from_str::<PandasMetadata>(text) else {
        return Vec::new();
    };
    let names = metadata.index_columns.into_iter().map(|index| match index {
        Index::Range { kind, name } if kind == "range" => Some(name),
        _ => None,
    });
    names.flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_with_names_are_found() {
        let named = |text: &str| range_indexes(&[(KEY, text)].into());
        let range =
            r#"{"index_columns": [{"kind": "range", "name": "id", "start": 0}], "columns": []}"#;
        assert_eq!(named(range), ["id"]);
        for other in [
            r#"{"index_columns": [{"kind": "range", "name": null, "start": 0}]}"#,
            r#"{"index_columns": ["id"]}"#,
            r#"{"index_columns": 7}"#,
            "",
        ] {
            assert_eq!(named(other), [""; 0], "{other}");
        }
    }
}
