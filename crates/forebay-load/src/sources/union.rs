//! Unites the schemas of files: matches columns and fields by name at any depth, and widens types.
//!
//! The united type holds the values of all files, as docs/reference/conversions.md lists them.
//! Values that it does not hold exactly are found when they are converted. A column or field that a
//! file lacks is null in that file. Columns of text formats whose inferred types disagree are text.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef, Fields, Schema, SchemaRef, TimeUnit};

use super::error::SourceError;
use crate::convert::{GivenType, holds, list_item, split_path};
use crate::near;
use crate::type_name::type_name;
use crate::types::plain_type;
use crate::uuid::{is_uuid, with_uuid_mark};

/// The columns of one file.
#[derive(Debug, Clone)]
pub(super) struct FileColumns {
    pub file: Arc<str>,
    pub fields: Fields,
    /// Whether types were inferred from text, so that text is always possible.
    pub guessed: bool,
    /// Whether its structs may have fields that no row has shown yet.
    pub open: bool,
}

struct MergedSchema {
    field: Field,
    file: Arc<str>,
    guessed: bool,
    files: usize,
}

impl MergedSchema {
    /// Returns the column of the set, which has this many files.
    fn united(&self, files: usize, given: &[GivenType]) -> Field {
        let field = &self.field;
        let nullable = field.is_nullable() || self.files < files;
        let is_given = given.iter().any(|given| given.path == *field.name());
        let unknown = self.guessed && *field.data_type() == DataType::Null && !is_given;
        let data_type = if unknown {
            DataType::Utf8
        } else {
            field.data_type().clone()
        };
        let united = Field::new(field.name(), data_type, nullable);
        match is_uuid(field) {
            true => with_uuid_mark(united),
            false => united,
        }
    }

    /// Adds the column of another file.
    fn join(&mut self, file: &FileColumns, field: &Field) -> Result<(), SourceError> {
        self.files += 1;
        let both_guessed = self.guessed && file.guessed;
        let widened = widen(self.field.data_type(), field.data_type(), both_guessed);
        let widened = widened.ok_or_else(|| SourceError::Conflict {
            column: field.name().clone(),
            first_file: self.file.to_string(),
            first_type: type_name(self.field.data_type()),
            second_file: file.file.to_string(),
            second_type: type_name(field.data_type()),
        })?;
        let nullable = self.field.is_nullable() || field.is_nullable();
        self.guessed = both_guessed;
        let joined = self.field.clone().with_data_type(widened);
        self.field = joined.with_nullable(nullable);
        Ok(())
    }
}

/// Returns the schema that holds the columns of all files, in the order in which they first occur.
/// `given` are types that replace inferred and widened ones.
pub(super) fn unite(files: &[FileColumns], given: &[GivenType]) -> Result<SchemaRef, SourceError> {
    let mut merged: Vec<MergedSchema> = Vec::new();
    // The index of each column among them.
    let mut at = HashMap::new();
    let mut met = vec![false; given.len()];
    let names: HashSet<&str> = (files.iter())
        .flat_map(|file| file.fields.iter().map(|field| field.name().as_str()))
        .collect();
    let column =
        |given: &'_ GivenType| split_path(&given.path, |name| names.contains(name)).0.len();
    let places: Vec<usize> = given.iter().map(column).collect();
    for file in files {
        let mut own = HashSet::new();
        if let Some(twice) = file.fields.iter().find(|field| !own.insert(field.name())) {
            return Err(SourceError::ColumnTwice {
                file: file.file.to_string(),
                column: twice.name().clone(),
            });
        }
        for field in &file.fields {
            let plain = plain_type(field.data_type());
            let mut types = Types {
                column: field.name(),
                given,
                columns: &places,
                met: &mut met,
                open: file.open,
            };
            let data_type = types.set(field.name(), plain);
            let field = field.as_ref().clone().with_data_type(data_type);
            match at.entry(field.name().clone()) {
                Entry::Vacant(entry) => {
                    entry.insert(merged.len());
                    merged.push(MergedSchema {
                        field,
                        file: file.file.clone(),
                        guessed: file.guessed,
                        files: 1,
                    });
                }
                Entry::Occupied(entry) => merged[*entry.get()].join(file, &field)?,
            }
        }
    }
    if let Some(unmet) = met.iter().position(|met| !met) {
        return Err(unknown_column(&merged, &given[unmet].path));
    }
    let fields = merged
        .iter()
        .map(|column| column.united(files.len(), given));
    let fields: Vec<Field> = fields.collect();
    Ok(Arc::new(Schema::new(fields)))
}

/// The given types, which replace others.
struct Types<'a> {
    column: &'a str,
    given: &'a [GivenType],
    /// The length in bytes of the name of each one's column.
    columns: &'a [usize],
    /// Whether each of them was used.
    met: &'a mut [bool],
    /// Whether structs may have fields that no row has shown.
    open: bool,
}

impl Types<'_> {
    /// Returns the type of the place `path`, with the types given for it or for places within.
    fn set(&mut self, path: &str, data_type: DataType) -> DataType {
        let here = |(given, column): (&GivenType, &usize)| {
            given.path[..*column] == *self.column && holds(path, &given.path)
        };
        if !self.given.iter().zip(self.columns).any(here) {
            return data_type;
        }
        if let Some(at) = self.given.iter().position(|given| given.path == path) {
            self.met[at] = true;
            return self.given[at].data_type.clone();
        }
        match &data_type {
            DataType::Struct(fields) => {
                let fields = fields.iter();
                let set =
                    fields.map(|field| self.within(field, format!("{path}.{}", field.name())));
                let mut fields: Vec<FieldRef> = set.collect();
                if self.open {
                    self.add_fields(path, &mut fields);
                }
                DataType::Struct(fields.into())
            }
            DataType::List(item) | DataType::ListView(item) => {
                DataType::List(self.within(item, format!("{path}[]")))
            }
            DataType::LargeList(item) | DataType::LargeListView(item) => {
                DataType::LargeList(self.within(item, format!("{path}[]")))
            }
            DataType::FixedSizeList(item, length) => {
                DataType::FixedSizeList(self.within(item, format!("{path}[]")), *length)
            }
            _ => data_type,
        }
    }

    fn within(&mut self, field: &FieldRef, path: String) -> FieldRef {
        let data_type = self.set(&path, field.data_type().clone());
        Arc::new(field.as_ref().clone().with_data_type(data_type))
    }

    /// Adds the fields that were given for the struct at `path` and that no row has shown.
    fn add_fields(&mut self, path: &str, fields: &mut Vec<FieldRef>) {
        for (given, met) in self
            .given
            .iter()
            .zip(self.met.iter_mut())
            .filter(|(_, met)| !**met)
        {
            let within = given.path.strip_prefix(path);
            let Some(name) = within.and_then(|rest| rest.strip_prefix('.')) else {
                continue;
            };
            if !name.contains(['.', '[']) {
                *met = true;
                fields.push(Arc::new(Field::new(name, given.data_type.clone(), true)));
            }
        }
    }
}

fn unknown_column(merged: &[MergedSchema], path: &str) -> SourceError {
    let columns = || merged.iter().map(|m| m.field.name().as_str());
    SourceError::UnknownColumn {
        column: path.to_owned(),
        hint: near::hint(path, columns()),
        columns: near::listed(columns()),
    }
}

/// Returns the type that holds the values of both; `None` if there is none. Types inferred from
/// text fall back to text.
pub(super) fn widen(a: &DataType, b: &DataType, guessed: bool) -> Option<DataType> {
    use DataType::{FixedSizeList, Map, Null, Struct};
    Some(match (a, b) {
        _ if a == b => a.clone(),
        (Null, other) | (other, Null) => other.clone(),
        (Struct(a), Struct(b)) => Struct(widen_fields(a, b, guessed)?),
        (Map(a, a_sorted), Map(b, b_sorted)) => {
            Map(widen_entries(a, b, guessed)?, *a_sorted && *b_sorted)
        }
        (FixedSizeList(x, length), FixedSizeList(y, other)) if length == other => {
            FixedSizeList(widen_item(x, y, guessed)?, *length)
        }
        _ => match (list_item(a), list_item(b)) {
            (Some(x), Some(y)) => DataType::LargeList(widen_item(x, y, guessed)?),
            (None, None) if !a.is_nested() && !b.is_nested() => match widen_leaf(a, b) {
                Some(number) if !guessed || a.is_numeric() => number,
                _ if guessed => DataType::Utf8,
                other => other?,
            },
            _ => return None,
        },
    })
}

fn widen_item(a: &FieldRef, b: &FieldRef, guessed: bool) -> Option<FieldRef> {
    let item = widen(a.data_type(), b.data_type(), guessed)?;
    let nullable = a.is_nullable() || b.is_nullable();
    Some(Arc::new(Field::new(a.name(), item, nullable)))
}

/// Widens the entries of both maps, whose fields are matched by position: key and value.
fn widen_entries(a: &FieldRef, b: &FieldRef, guessed: bool) -> Option<FieldRef> {
    let (DataType::Struct(x), DataType::Struct(y)) = (a.data_type(), b.data_type()) else {
        return None;
    };
    let parts = x.iter().zip(y).map(|(x, y)| widen_item(x, y, guessed));
    let parts: Option<Vec<FieldRef>> = parts.collect();
    let entries = a.as_ref().clone();
    Some(Arc::new(
        entries.with_data_type(DataType::Struct(parts?.into())),
    ))
}

fn widen_leaf(a: &DataType, b: &DataType) -> Option<DataType> {
    use DataType::{Date32, Date64, Duration, Float16, Float32, Float64, Timestamp};
    Some(match (a, b) {
        _ if integer(a).is_some() && integer(b).is_some() => {
            wider_integer(integer(a)?, integer(b)?)?
        }
        (Float16, Float32) | (Float32, Float16) => Float32,
        // The result does not depend on the order of files: three types give the same as the union
        // of any two of them with the third.
        (Float16 | Float32 | Float64, other) | (other, Float16 | Float32 | Float64)
            if other.is_floating() || is_whole(other) =>
        {
            Float64
        }
        _ if is_text(a) && is_text(b) => DataType::LargeUtf8,
        _ if is_binary(a) && is_binary(b) => DataType::LargeBinary,
        (Timestamp(u, zone), Timestamp(v, other)) if zone.is_some() == other.is_some() => {
            let zone = if zone == other {
                zone.clone()
            } else {
                Some(Arc::from("UTC"))
            };
            Timestamp(finer(*u, *v), zone)
        }
        (Date32, Date64) | (Date64, Date32) => Date64,
        (Date32, Timestamp(unit, None)) | (Timestamp(unit, None), Date32) => Timestamp(*unit, None),
        (Date64, Timestamp(unit, None)) | (Timestamp(unit, None), Date64) => {
            Timestamp(finer(*unit, TimeUnit::Millisecond), None)
        }
        (Duration(u), Duration(v)) => Duration(finer(*u, *v)),
        (DataType::Time32(u) | DataType::Time64(u), DataType::Time32(v) | DataType::Time64(v)) => {
            match finer(*u, *v) {
                unit @ (TimeUnit::Second | TimeUnit::Millisecond) => DataType::Time32(unit),
                unit => DataType::Time64(unit),
            }
        }
        _ => wider_decimal(a, b)?,
    })
}

/// Returns whether the type is an integer, or the decimal that holds those of 64 bits with and
/// without a sign.
fn is_whole(data_type: &DataType) -> bool {
    integer(data_type).is_some() || matches!(data_type, DataType::Decimal128(..=20, 0))
}

/// Returns the bits, and whether the type is signed.
fn integer(data_type: &DataType) -> Option<(u8, bool)> {
    Some(match data_type {
        DataType::Int8 => (8, true),
        DataType::Int16 => (16, true),
        DataType::Int32 => (32, true),
        DataType::Int64 => (64, true),
        DataType::UInt8 => (8, false),
        DataType::UInt16 => (16, false),
        DataType::UInt32 => (32, false),
        DataType::UInt64 => (64, false),
        _ => return None,
    })
}

/// Returns the wider integer. Unsigned with signed needs a signed type with more bits; none has
/// more than 64.
fn wider_integer(a: (u8, bool), b: (u8, bool)) -> Option<DataType> {
    let signed = a.1 || b.1;
    let bits = |(bits, has_sign): (u8, bool)| if signed && !has_sign { bits * 2 } else { bits };
    Some(match (bits(a).max(bits(b)), signed) {
        (8, true) => DataType::Int8,
        (16, true) => DataType::Int16,
        (32, true) => DataType::Int32,
        (64, true) => DataType::Int64,
        (128, true) => DataType::Decimal128(20, 0),
        (8, false) => DataType::UInt8,
        (16, false) => DataType::UInt16,
        (32, false) => DataType::UInt32,
        (64, false) => DataType::UInt64,
        _ => return None,
    })
}

fn wider_decimal(a: &DataType, b: &DataType) -> Option<DataType> {
    let (whole_a, scale_a) = decimal(a)?;
    let (whole_b, scale_b) = decimal(b)?;
    let scale = scale_a.max(scale_b);
    let precision = whole_a.max(whole_b) + i16::from(scale);
    match u8::try_from(precision).ok()? {
        precision @ 0..=38 => Some(DataType::Decimal128(precision.max(1), scale)),
        precision @ 39..=76 => Some(DataType::Decimal256(precision, scale)),
        _ => None,
    }
}

/// Returns the digits before the point, and the scale, of a decimal or integer.
fn decimal(data_type: &DataType) -> Option<(i16, i8)> {
    match data_type {
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale) => {
            Some((i16::from(*precision) - i16::from(*scale), *scale))
        }
        other => integer(other).map(|(bits, _)| (if bits == 64 { 20 } else { 10 }, 0)),
    }
}

fn finer(a: TimeUnit, b: TimeUnit) -> TimeUnit {
    let rank = |unit| match unit {
        TimeUnit::Second => 0,
        TimeUnit::Millisecond => 1,
        TimeUnit::Microsecond => 2,
        TimeUnit::Nanosecond => 3,
    };
    if rank(a) >= rank(b) { a } else { b }
}

fn is_text(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View
    )
}

fn is_binary(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView
    )
}

/// Unites the fields of both, by name; a field that only one struct has is nullable.
fn widen_fields(a: &Fields, b: &Fields, guessed: bool) -> Option<Fields> {
    let mut fields: Vec<Field> = Vec::with_capacity(a.len());
    for field in a {
        let Some((_, other)) = b.find(field.name()) else {
            fields.push(field.as_ref().clone().with_nullable(true));
            continue;
        };
        let widened = widen(field.data_type(), other.data_type(), guessed)?;
        fields.push(Field::new(
            field.name(),
            widened,
            field.is_nullable() || other.is_nullable(),
        ));
    }
    let new = b.iter().filter(|field| a.find(field.name()).is_none());
    fields.extend(new.map(|field| field.as_ref().clone().with_nullable(true)));
    Some(Fields::from(fields))
}
