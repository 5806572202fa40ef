//! Guesses the types of JSON columns from a sample, keeping the order in which names were met.
//!
//! Integers are int64 (uint64 when beyond it and never negative), with fractions float64; numbers, booleans and
//! strings mixed are text. A name without any value in the sample is text.

use std::fmt;

use arrow_schema::{DataType, Field, Fields};
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

/// What the values of a place have been so far.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) enum Shape {
    #[default]
    Null,
    Bool,
    /// Whole numbers: whether some are negative, whether some are beyond int64.
    Int {
        negative: bool,
        beyond: bool,
    },
    Float,
    Text,
    List(Box<Shape>),
    Object(Vec<(String, Shape)>),
}

impl Shape {
    /// What a place is that has values of both.
    pub fn join(self, other: Shape) -> Shape {
        match (self, other) {
            (Shape::Null, any) | (any, Shape::Null) => any,
            (
                Shape::Int {
                    negative: a,
                    beyond: b,
                },
                Shape::Int {
                    negative: c,
                    beyond: d,
                },
            ) => Shape::Int {
                negative: a || c,
                beyond: b || d,
            },
            (Shape::Int { .. } | Shape::Float, Shape::Int { .. } | Shape::Float) => Shape::Float,
            (Shape::Bool, Shape::Bool) => Shape::Bool,
            (Shape::List(a), Shape::List(b)) => Shape::List(Box::new(a.join(*b))),
            (Shape::Object(mut a), Shape::Object(b)) => {
                for (name, shape) in b {
                    add(&mut a, name, shape);
                }
                Shape::Object(a)
            }
            _ => Shape::Text,
        }
    }

    fn data_type(self) -> DataType {
        match self {
            Shape::Null | Shape::Text => DataType::Utf8,
            Shape::Bool => DataType::Boolean,
            Shape::Int { beyond: false, .. } => DataType::Int64,
            Shape::Int {
                negative: false, ..
            } => DataType::UInt64,
            Shape::Int { .. } => DataType::Decimal128(38, 0),
            Shape::Float => DataType::Float64,
            Shape::List(item) => DataType::new_list(item.data_type(), true),
            Shape::Object(fields) => DataType::Struct(columns(fields)),
        }
    }
}

/// The columns of objects with these names; a name met only with nulls is `Null`, to be widened.
pub(super) fn top_columns(fields: Vec<(String, Shape)>) -> Fields {
    let column = |(name, shape): (String, Shape)| match shape {
        Shape::Null => Field::new(name, DataType::Null, true),
        shape => Field::new(name, shape.data_type(), true),
    };
    fields.into_iter().map(column).collect()
}

fn columns(fields: Vec<(String, Shape)>) -> Fields {
    fields
        .into_iter()
        .map(|(name, shape)| Field::new(name, shape.data_type(), true))
        .collect()
}

fn add(fields: &mut Vec<(String, Shape)>, name: String, shape: Shape) {
    match fields.iter_mut().find(|(have, _)| *have == name) {
        Some((_, have)) => *have = std::mem::take(have).join(shape),
        None => fields.push((name, shape)),
    }
}

impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Shape, D::Error> {
        deserializer.deserialize_any(ShapeVisitor)
    }
}

struct ShapeVisitor;

impl<'de> Visitor<'de> for ShapeVisitor {
    type Value = Shape;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Shape, E> {
        Ok(Shape::Null)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Shape, E> {
        Ok(Shape::Bool)
    }

    fn visit_i64<E>(self, value: i64) -> Result<Shape, E> {
        Ok(Shape::Int {
            negative: value < 0,
            beyond: false,
        })
    }

    fn visit_u64<E>(self, value: u64) -> Result<Shape, E> {
        Ok(Shape::Int {
            negative: false,
            beyond: i64::try_from(value).is_err(),
        })
    }

    fn visit_f64<E>(self, _: f64) -> Result<Shape, E> {
        Ok(Shape::Float)
    }

    fn visit_str<E>(self, _: &str) -> Result<Shape, E> {
        Ok(Shape::Text)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Shape, A::Error> {
        let mut all = Shape::Null;
        while let Some(item) = items.next_element::<Shape>()? {
            all = all.join(item);
        }
        Ok(Shape::List(Box::new(all)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Shape, A::Error> {
        let mut fields = Vec::new();
        while let Some((name, shape)) = entries.next_entry::<String, Shape>()? {
            add(&mut fields, name, shape);
        }
        Ok(Shape::Object(fields))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn types(lines: &[&str]) -> String {
        let mut all = Shape::Null;
        for line in lines {
            all = all.join(serde_json::from_str(line).unwrap());
        }
        let Shape::Object(fields) = all else { panic!() };
        let fields = top_columns(fields);
        let shown = |field: &Arc<Field>| format!("{} {}", field.name(), field.data_type());
        fields.iter().map(shown).collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn shapes_join() {
        assert_eq!(
            types(&[r#"{"z":1,"a":"x","n":null}"#, r#"{"z":2.5,"a":1,"b":true}"#]),
            "z Float64, a Utf8, n Null, b Boolean"
        );
        assert_eq!(
            types(&[
                r#"{"u":18446744073709551615,"l":[],"o":{"x":1}}"#,
                r#"{"l":[1,null],"o":{"y":"s"}}"#
            ]),
            r#"u UInt64, l List(Int64), o Struct("x": Int64, "y": Utf8)"#
        );
    }
}
