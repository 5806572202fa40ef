//! Infers the type that holds all values of a JSON place.
//!
//! Whole numbers are int64; uint64 if some exceed int64 and none is negative; else decimal(38,0).
//! Numbers with fractions are float64. Numbers that these types would round, and numbers mixed with
//! strings or booleans, are text: the numbers as written. A place without any value is text.

use std::collections::HashMap;

use arrow_schema::{DataType, Field, Fields};

use super::infer_number::{Parts, is_float};

/// The most fields of rows, at all depths together. Unlimited names are keys of a map, not columns.
pub(in crate::sources) const MAX_FIELDS: usize = 10_000;
/// The number of fields from which an object uses an index to find names.
const INDEX_FIELDS: usize = 16;
/// The greatest whole number of a decimal(38,0).
const MAX_DECIMAL: u128 = 10_u128.pow(38) - 1;

/// The shape of the values of a place so far.
#[derive(Debug, Clone, PartialEq, Default)]
pub(in crate::sources) enum Shape {
    #[default]
    Null,
    Bool,
    Number(Numbers),
    Text,
    List(Box<Shape>),
    Object(Object),
}

/// The properties of the numbers of a place so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::sources) struct Numbers {
    negative: bool,
    /// Some are whole and exceed int64; with `beyond_u64`, also uint64.
    beyond_i64: bool,
    beyond_u64: bool,
    /// Some are whole, and a float64 would round them.
    rounded: bool,
    /// Some have a point or an exponent.
    fraction: bool,
    /// Some fit no numeric type.
    literal: bool,
}

/// Fields in the order in which they were found.
#[derive(Debug, Clone, PartialEq, Default)]
pub(in crate::sources) struct Object {
    fields: Vec<(String, Shape)>,
    /// Their positions by name, if there are many.
    index: HashMap<String, usize>,
}

/// The error of more than [`MAX_FIELDS`] fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sources) struct TooWide;

impl Numbers {
    /// Parses a text; `None` if it is not a number.
    pub fn of(text: &str) -> Option<Numbers> {
        let parts = Parts::of(text)?;
        let mut numbers = Numbers::default();
        if !parts.is_whole() {
            numbers.fraction = parts.is_exact_float();
            numbers.literal = !numbers.fraction;
            return Some(numbers);
        }
        match text.parse::<i128>() {
            Ok(number) if number.unsigned_abs() <= MAX_DECIMAL => {
                numbers.negative = number < 0;
                numbers.beyond_i64 = i64::try_from(number).is_err();
                numbers.beyond_u64 = numbers.beyond_i64 && u64::try_from(number).is_err();
                numbers.rounded = !is_float(number);
            }
            _ => numbers.literal = true,
        }
        Some(numbers)
    }

    fn join(self, other: Numbers) -> Numbers {
        Numbers {
            negative: self.negative || other.negative,
            beyond_i64: self.beyond_i64 || other.beyond_i64,
            beyond_u64: self.beyond_u64 || other.beyond_u64,
            rounded: self.rounded || other.rounded,
            fraction: self.fraction || other.fraction,
            literal: self.literal || other.literal,
        }
    }

    fn data_type(self) -> DataType {
        if self.literal || (self.fraction && self.rounded) {
            DataType::Utf8
        } else if self.fraction {
            DataType::Float64
        } else if self.beyond_u64 || (self.beyond_i64 && self.negative) {
            DataType::Decimal128(38, 0)
        } else if self.beyond_i64 {
            DataType::UInt64
        } else {
            DataType::Int64
        }
    }
}

impl Object {
    pub fn fields(&self) -> &[(String, Shape)] {
        &self.fields
    }

    pub fn get(&self, name: &str) -> Option<&Shape> {
        self.find(name).map(|at| &self.fields[at].1)
    }

    fn find(&self, name: &str) -> Option<usize> {
        if self.index.is_empty() {
            self.fields.iter().position(|(have, _)| have == name)
        } else {
            self.index.get(name).copied()
        }
    }

    /// Returns the field of a name, which is most likely at index `guess`, and its index. A new
    /// field reduces `room`.
    pub fn field(
        &mut self,
        name: &str,
        guess: usize,
        room: &mut usize,
    ) -> Result<(&mut Shape, usize), TooWide> {
        let at = match self.fields.get(guess) {
            Some((have, _)) if have == name => guess,
            _ => match self.find(name) {
                Some(at) => at,
                None => self.add(name, room)?,
            },
        };
        Ok((&mut self.fields[at].1, at))
    }

    fn add(&mut self, name: &str, room: &mut usize) -> Result<usize, TooWide> {
        *room = room.checked_sub(1).ok_or(TooWide)?;
        let at = self.fields.len();
        self.fields.push((name.to_owned(), Shape::Null));
        if at == INDEX_FIELDS {
            let names = self.fields.iter().enumerate();
            self.index = names.map(|(at, (name, _))| (name.clone(), at)).collect();
        } else if at > INDEX_FIELDS {
            self.index.insert(name.to_owned(), at);
        }
        Ok(at)
    }
}

impl Shape {
    /// Adds another shape to that of the place.
    pub fn join(&mut self, other: Shape, room: &mut usize) -> Result<(), TooWide> {
        match (&mut *self, other) {
            (_, Shape::Null) | (Shape::Text, _) | (Shape::Bool, Shape::Bool) => {}
            (Shape::Number(have), Shape::Number(more)) => *have = have.join(more),
            (Shape::List(have), Shape::List(more)) => have.join(*more, room)?,
            (Shape::Object(have), Shape::Object(more)) => {
                for (at, (name, shape)) in more.fields.into_iter().enumerate() {
                    have.field(&name, at, room)?.0.join(shape, room)?;
                }
            }
            (Shape::Null, Shape::Object(more)) => {
                *self = Shape::Object(Object::default());
                self.join(Shape::Object(more), room)?;
            }
            (Shape::Null, Shape::List(more)) => {
                *self = Shape::List(Box::default());
                self.join(Shape::List(more), room)?;
            }
            (Shape::Null, plain) => *self = plain,
            _ => *self = Shape::Text,
        }
        Ok(())
    }

    /// Returns the number of fields at all depths.
    pub fn width(&self) -> usize {
        match self {
            Shape::List(item) => item.width(),
            Shape::Object(object) => {
                let fields = object.fields.iter();
                fields.map(|(_, shape)| 1 + shape.width()).sum()
            }
            _ => 0,
        }
    }

    pub fn data_type(&self) -> DataType {
        match self {
            Shape::Null | Shape::Text => DataType::Utf8,
            Shape::Bool => DataType::Boolean,
            Shape::Number(numbers) => numbers.data_type(),
            Shape::List(item) => DataType::new_list(item.data_type(), true),
            Shape::Object(object) => DataType::Struct(
                (object.fields.iter())
                    .map(|(name, shape)| Field::new(name, shape.data_type(), true))
                    .collect(),
            ),
        }
    }

    /// Returns the path of a place at which another shape has something that this one does not
    /// hold, and whether that is a missing field.
    pub fn lacks(&self, other: &Shape) -> Option<(String, bool)> {
        match (self, other) {
            (_, Shape::Null) | (Shape::Text, _) | (Shape::Bool, Shape::Bool) => None,
            (Shape::Number(have), Shape::Number(more)) => {
                let changes = have.join(*more).data_type() != have.data_type();
                changes.then(|| (String::new(), false))
            }
            (Shape::List(have), Shape::List(more)) => {
                let (path, field) = have.lacks(more)?;
                Some((format!("[]{}{path}", dot(&path)), field))
            }
            (Shape::Object(have), Shape::Object(more)) => {
                more.fields.iter().find_map(|(name, shape)| {
                    let Some(present) = have.get(name) else {
                        return Some((name.clone(), true));
                    };
                    let (path, field) = present.lacks(shape)?;
                    Some((format!("{name}{}{path}", dot(&path)), field))
                })
            }
            _ => Some((String::new(), false)),
        }
    }

    /// Returns the object with the most fields: its path, and its first names.
    pub fn widest(&self) -> (String, Vec<String>) {
        let (mut widest, mut most) = ((String::new(), Vec::new()), 0);
        self.visit(String::new(), &mut |path, object| {
            if object.fields.len() > most {
                most = object.fields.len();
                let names = object.fields.iter().take(3).map(|(name, _)| name.clone());
                widest = (path.to_owned(), names.collect());
            }
        });
        widest
    }

    fn visit(&self, path: String, seen: &mut impl FnMut(&str, &Object)) {
        match self {
            Shape::List(item) => item.visit(format!("{path}[]"), seen),
            Shape::Object(object) => {
                seen(&path, object);
                for (name, shape) in &object.fields {
                    shape.visit(format!("{path}{}{name}", dot(&path)), seen);
                }
            }
            _ => {}
        }
    }
}

/// Returns the separator between a path and a name.
fn dot(path: &str) -> &'static str {
    if path.is_empty() || path.starts_with('[') {
        ""
    } else {
        "."
    }
}

/// Returns the columns of objects with these names. A name found only with nulls is `Null`, to be
/// widened.
pub(in crate::sources) fn top_columns(object: &Object) -> Fields {
    let column = |(name, shape): &(String, Shape)| match shape {
        Shape::Null => Field::new(name, DataType::Null, true),
        shape => Field::new(name, shape.data_type(), true),
    };
    object.fields.iter().map(column).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(texts: &[&str]) -> String {
        let mut all = Shape::Null;
        for text in texts {
            let numbers = Numbers::of(text).expect(text);
            all.join(Shape::Number(numbers), &mut 0).unwrap();
        }
        all.data_type().to_string()
    }

    #[test]
    fn numbers_get_the_type_that_holds_them() {
        for (texts, data_type) in [
            (&["1", "-2"][..], "Int64"),
            (&["18446744073709551615"], "UInt64"),
            (&["18446744073709551615", "-1"], "Decimal128(38, 0)"),
            (&["18446744073709551616"], "Decimal128(38, 0)"),
            (
                &["99999999999999999999999999999999999999"],
                "Decimal128(38, 0)",
            ),
            (&["100000000000000000000000000000000000000"], "Utf8"),
            (&["1", "1.5"], "Float64"),
            (&["9007199254740992", "1.5"], "Float64"),
            (&["9007199254740993", "1.5"], "Utf8"),
            (&["0.1234567890123456789"], "Utf8"),
            (&["1e400", "1"], "Utf8"),
        ] {
            assert_eq!(numbers(texts), data_type, "{texts:?}");
        }
        assert_eq!(Numbers::of("1-2"), None);
    }

    fn object(fields: &[(&str, Shape)]) -> Shape {
        let mut object = Object::default();
        for (name, shape) in fields {
            *object.field(name, 0, &mut 100).unwrap().0 = shape.clone();
        }
        Shape::Object(object)
    }

    #[test]
    fn a_missing_field_has_a_path() {
        let list = |item| Shape::List(Box::new(item));
        let int = Shape::Number(Numbers::of("1").unwrap());
        let half = Shape::Number(Numbers::of("0.5").unwrap());
        let have = object(&[
            ("a", int.clone()),
            ("l", list(object(&[("x", int.clone())]))),
        ]);
        let lacks = |other: &Shape| have.lacks(other);
        assert_eq!(lacks(&object(&[("a", Shape::Null)])), None);
        assert_eq!(
            lacks(&object(&[("a", half.clone())])),
            Some(("a".into(), false))
        );
        assert_eq!(
            lacks(&object(&[("b", Shape::Null)])),
            Some(("b".into(), true))
        );
        let deep = object(&[("l", list(object(&[("y", int)])))]);
        assert_eq!(lacks(&deep), Some(("l[].y".into(), true)));
        let deep = object(&[("l", list(object(&[("x", half)])))]);
        assert_eq!(lacks(&deep), Some(("l[].x".into(), false)));
    }

    #[test]
    fn names_without_end_are_refused_and_found_fast() {
        let mut room = MAX_FIELDS;
        let mut object = Object::default();
        for number in 0..MAX_FIELDS {
            object
                .field(&format!("k{number}"), usize::MAX, &mut room)
                .unwrap();
        }
        assert!(
            object
                .field("k77", 3, &mut room)
                .is_ok_and(|(_, at)| at == 77)
        );
        assert!(object.field("another", 0, &mut room) == Err(TooWide));
        let shape = Shape::Object(object);
        assert_eq!(shape.width(), MAX_FIELDS);
        let mut other = Shape::Null;
        assert_eq!(other.join(shape.clone(), &mut 5), Err(TooWide));
        let (path, names) = shape.widest();
        assert_eq!((path.as_str(), names.len()), ("", 3));
    }
}
