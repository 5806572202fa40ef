//! Reads a planner's JSON input. Each error names the path of its field.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use thiserror::Error;

/// The error of an input that cannot be planned for.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{path}: {problem}")]
pub struct InputError {
    /// The path of the field, such as `partitions[3].e`; `input` for the whole.
    pub path: String,
    pub problem: String,
}

impl InputError {
    pub fn new(path: impl Into<String>, problem: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            problem: problem.into(),
        }
    }
}

/// Reads one JSON document. Refuses unknown fields, wrong types and malformed text, with their
/// path.
pub fn read<T: DeserializeOwned>(text: &[u8]) -> Result<T, InputError> {
    if text.trim_ascii_start().first() != Some(&b'{') {
        return Err(InputError::new(
            "input",
            "is not a JSON object, which begins with {",
        ));
    }
    let mut reader = serde_json::Deserializer::from_slice(text);
    let value = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        // Malformed text between two fields is in neither: the path names the object around it.
        let path = error.path().to_string();
        let path = match path.strip_suffix('?').unwrap_or(&path) {
            "" | "." => "input",
            path => path.trim_end_matches('.'),
        };
        InputError::new(path, error.inner().to_string())
    })?;
    reader
        .end()
        .map_err(|error| InputError::new("input", error.to_string()))?;
    Ok(value)
}

/// A structure written as an object. Derived readers would also accept a list of its fields in
/// order, and would not detect an extra or misplaced field.
struct Object<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        struct Fields<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Fields<T> {
            type Value = Object<T>;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<Object<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(fields)).map(Object)
            }
        }

        reader.deserialize_map(Fields(PhantomData))
    }
}

/// Reads a list of objects, and refuses anything else.
pub fn objects<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    reader: D,
) -> Result<Vec<T>, D::Error> {
    let list = Vec::<Object<T>>::deserialize(reader)?;
    Ok(list.into_iter().map(|object| object.0).collect())
}

/// Reads [`objects`] in a field that may be missing or null.
pub fn some_objects<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    reader: D,
) -> Result<Option<Vec<T>>, D::Error> {
    let list = Option::<Vec<Object<T>>>::deserialize(reader)?;
    Ok(list.map(|list| list.into_iter().map(|object| object.0).collect()))
}

/// Checks that a number is finite and at least zero.
pub fn amount(value: f64, path: impl FnOnce() -> String) -> Result<f64, InputError> {
    if value.is_finite() && value >= 0.0 {
        // Turns -0 into 0.
        return Ok(value + 0.0);
    }
    let problem = format!("{value} is not a number of at least 0");
    Err(InputError::new(path(), problem))
}

/// Checks that a number is finite and above zero.
pub fn positive(value: f64, path: impl FnOnce() -> String) -> Result<f64, InputError> {
    if value.is_finite() && value > 0.0 {
        return Ok(value);
    }
    let problem = format!("{value} is not a number above 0");
    Err(InputError::new(path(), problem))
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Outer {
        items: Vec<Item>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Item {
        e: f64,
    }

    #[test]
    fn refusals_name_the_field() {
        for (text, path, word) in [
            (r#"{"items":[{"e":1},{"e":"x"}]}"#, "items[1].e", "f64"),
            (r#"{"items":[{"e":NaN}]}"#, "items[0].e", "expected value"),
            (r#"{"items":[{"e":1e999}]}"#, "items[0].e", "out of range"),
            (
                r#"{"items":[{"e":1,"f":2}]}"#,
                "items[0].f",
                "unknown field `f`",
            ),
            (r#"{"items":[{}]}"#, "items[0]", "missing field `e`"),
            (r#"{"items":[]} 1"#, "input", "trailing"),
            (r#"{"items":["#, "items", "EOF"),
            (r#"{"items":[{"e":1},{"e":1 "f":2}]}"#, "items[1]", "line 1"),
            (
                r#"{"items":[{"e":1}]"items":1}"#,
                "input",
                "line 1 column 19",
            ),
            ("[1]", "input", "not a JSON object"),
            ("", "input", "not a JSON object"),
        ] {
            let error = read::<Outer>(text.as_bytes()).expect_err(text);
            assert_eq!(error.path, path, "{text}: {error}");
            assert!(error.problem.contains(word), "{text}: {error}");
        }
        let read: Outer = read(br#"{"items":[{"e":2.5}]}"#).expect("a valid input");
        assert_eq!(read.items[0].e, 2.5);
    }

    #[test]
    fn amounts_are_finite_and_not_negative() {
        let path = || "x".to_owned();
        assert!(amount(-0.0, path).is_ok_and(f64::is_sign_positive));
        for bad in [-1.0, f64::NAN, f64::INFINITY] {
            assert!(amount(bad, path).is_err());
            assert!(positive(bad, path).is_err());
        }
        assert!(positive(0.0, path).is_err());
    }
}
