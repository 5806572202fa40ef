//! Rows and lists as programs read them.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use forebay_engine::ValueKind;
use forebay_run::row::{Column, Datum, ListView, RowView};

use super::error::Error;
use super::operand::named;
use super::problem::Problem;
use super::shape::Shape;

/// A row of typed columns, which are read one at a time.
///
/// ```
/// # fn read(people: &forebay::BatchTable) -> Result<(), forebay::Error> {
/// if let Some(value) = people.get("17")? {
///     let row = value.as_row().expect("a table of rows");
///     let name: String = row.get("name")?;
///     let age: Option<i64> = row.get("age")?;
///     println!("{name}: {age:?}");
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Row<'v> {
    shape: Arc<Shape>,
    bytes: Cow<'v, [u8]>,
}

impl<'v> Row<'v> {
    pub(super) fn new(shape: Arc<Shape>, bytes: Cow<'v, [u8]>) -> Self {
        Self { shape, bytes }
    }

    /// Returns the columns of every row of the table, in order.
    pub fn columns(&self) -> &[Column] {
        self.shape.schema.columns()
    }

    /// Returns the value of a column as the requested type: an `Option` if it may be null.
    pub fn get<'a, T: FromDatum<'a>>(&'a self, column: &str) -> Result<T, Error> {
        let index = self.shape.schema.column_index(column);
        let index = index.ok_or_else(|| self.shape.no_column(column))?;
        let datum = self.view()?.datum(index);
        let datum = datum.map_err(|error| self.shape.unreadable(error))?;
        T::from_datum(datum).ok_or_else(|| {
            Problem::NotWanted {
                table: self.shape.table.clone(),
                column: column.to_owned(),
                datum: named(&datum),
                wanted: T::NAME,
            }
            .into()
        })
    }

    /// Returns a view of the row, for reading columns by their positions.
    pub fn view(&self) -> Result<RowView<'_>, Error> {
        let view = RowView::new(&self.shape.schema, &self.bytes);
        view.map_err(|error| self.shape.unreadable(error))
    }

    /// Returns the row as a JSON object, as the server answers it.
    pub fn to_json(&self) -> Result<String, Error> {
        let mut out = Vec::new();
        let written = self.view()?.json(&mut out);
        written.map_err(|error| self.shape.unreadable(error))?;
        Ok(String::from_utf8_lossy(&out).into_owned())
    }

    /// Returns the row with its own data, so that it can outlive its table.
    pub fn into_owned(self) -> Row<'static> {
        Row {
            shape: self.shape,
            bytes: Cow::Owned(self.bytes.into_owned()),
        }
    }
}

impl fmt::Debug for Row<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.to_json() {
            Ok(json) => write!(f, "Row({json})"),
            Err(error) => write!(f, "Row({error})"),
        }
    }
}

/// A list of a table of lists.
#[derive(Clone)]
pub struct List<'v> {
    shape: Arc<Shape>,
    bytes: Cow<'v, [u8]>,
}

impl<'v> List<'v> {
    pub(super) fn new(shape: Arc<Shape>, bytes: Cow<'v, [u8]>) -> Self {
        Self { shape, bytes }
    }

    /// Returns a view of the list, for reading its items.
    pub fn view(&self) -> Result<ListView<'_>, Error> {
        let ValueKind::List { item, .. } = &self.shape.kind else {
            return Err(self.shape.unreadable("it is no list"));
        };
        ListView::new(item, &self.bytes).map_err(|error| self.shape.unreadable(error))
    }

    /// Returns all items as the requested type: `Option`s if they may be null.
    pub fn items<'a, T: FromDatum<'a>>(&'a self) -> Result<Vec<T>, Error> {
        let view = self.view()?;
        let item = |index| {
            let datum = view.datum(index);
            let datum = datum.map_err(|error| self.shape.unreadable(error))?;
            T::from_datum(datum).ok_or_else(|| {
                Problem::NotWanted {
                    table: self.shape.table.clone(),
                    column: "item".to_owned(),
                    datum: named(&datum),
                    wanted: T::NAME,
                }
                .into()
            })
        };
        (0..view.len()).map(item).collect()
    }

    /// Returns the list with its own data, so that it can outlive its table.
    pub fn into_owned(self) -> List<'static> {
        List {
            shape: self.shape,
            bytes: Cow::Owned(self.bytes.into_owned()),
        }
    }
}

impl fmt::Debug for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = Vec::new();
        match self.view().map(|view| view.json(&mut out)) {
            Ok(Ok(())) => write!(f, "List({})", String::from_utf8_lossy(&out)),
            _ => f.write_str("List(damaged)"),
        }
    }
}

/// A type that a column or an item can be read as. Whole numbers can be read as any type whose
/// range includes them, and as floats that represent them exactly.
pub trait FromDatum<'a>: Sized {
    /// The type's name in messages.
    const NAME: &'static str;

    /// Returns the value if the datum has this type.
    fn from_datum(datum: Datum<'a>) -> Option<Self>;
}

impl<'a> FromDatum<'a> for Datum<'a> {
    const NAME: &'static str = "datum";

    fn from_datum(datum: Datum<'a>) -> Option<Self> {
        Some(datum)
    }
}

impl<'a, T: FromDatum<'a>> FromDatum<'a> for Option<T> {
    const NAME: &'static str = T::NAME;

    fn from_datum(datum: Datum<'a>) -> Option<Self> {
        match datum {
            Datum::Null => Some(None),
            datum => T::from_datum(datum).map(Some),
        }
    }
}

macro_rules! read_as {
    ($($to:ty, $name:literal: $($datum:pat => $value:expr),*;)*) => {
        $(impl<'a> FromDatum<'a> for $to {
            const NAME: &'static str = $name;

            fn from_datum(datum: Datum<'a>) -> Option<Self> {
                match datum {
                    $($datum => $value,)*
                    _ => None,
                }
            }
        })*
    };
}

read_as! {
    bool, "bool": Datum::Bool(value) => Some(value);
    i32, "i32": Datum::Int(value) => value.try_into().ok(), Datum::UInt(value) => value.try_into().ok();
    i64, "i64": Datum::Int(value) => Some(value), Datum::UInt(value) => value.try_into().ok();
    u32, "u32": Datum::Int(value) => value.try_into().ok(), Datum::UInt(value) => value.try_into().ok();
    u64, "u64": Datum::Int(value) => value.try_into().ok(), Datum::UInt(value) => Some(value);
    f32, "f32": Datum::Float32(value) => Some(value);
    f64, "f64": Datum::Float64(value) => Some(value), Datum::Float32(value) => Some(value.into()),
        Datum::Int(value) => exact(value.into()), Datum::UInt(value) => exact(value.into());
    &'a str, "text": Datum::Text(text) => Some(text);
    String, "text": Datum::Text(text) => Some(text.to_owned());
    &'a [u8], "bytes": Datum::Bytes(bytes) => Some(bytes);
    Vec<u8>, "bytes": Datum::Bytes(bytes) => Some(bytes.to_vec());
}

/// Returns a whole number as a float if the float is exact.
fn exact(value: i128) -> Option<f64> {
    let float = value as f64;
    (float as i128 == value).then_some(float)
}
