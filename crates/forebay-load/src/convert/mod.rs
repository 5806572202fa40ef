//! Converts values by one rule for every input path: exactly, or not at all.
//!
//! The caller makes a [`Converter`] for a column before it reads anything. Types that do not
//! convert are refused at that point. Values are converted array by array. A value that does not
//! fit names its row. Fields of structs are matched by name at any depth; a missing field is null.
//! Losses are allowed by column ([`Rules`]), and counted. docs/reference/conversions.md has the
//! complete rule.

mod calendar;
pub(crate) mod cells;
mod leaf;
mod literal;
mod loss;
mod misfit;
mod nested;
mod number;
mod pairs;
pub(crate) mod quick;
mod rules;
pub(crate) mod scalar;
mod time;
mod value;

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::conform;

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, new_null_array};
use arrow_cast::cast;
use arrow_schema::{DataType, FieldRef, Fields};
use forebay_run::row::{Datum, Kind};

use crate::near;
use crate::type_name::type_name;
use crate::types::{TypeError, kind_of};
use leaf::{Account, Leaf};
pub use loss::Loss;
use misfit::Context;
pub(crate) use nested::{Failures, list_item};
use nested::{FieldStep, convert_list, convert_map, convert_struct};
pub use rules::{GivenType, Lossy, Rules};
pub(crate) use rules::{holds, split_path};
pub(crate) use value::shown;

/// An error of a column that cannot become a column of another type.
#[derive(Debug, thiserror::Error)]
pub enum ConvertError {
    #[error(
        "the column '{column}' is {from}, which does not become {to}{}; give it a type by {}, or \
         cast it before",
        hint.map_or(String::new(), |hint| format!(" ({hint})")),
        near::column_option(column, "TYPE")
    )]
    Types {
        column: String,
        from: String,
        to: String,
        hint: Option<&'static str>,
    },
    #[error(
        "'{column}' has the field '{field}', which {to} has not: it would be lost; leave it out of the source, or push \
         the table whole"
    )]
    ExtraField {
        column: String,
        field: String,
        to: String,
    },
    #[error("'{column}' lacks the field '{field}', which must not be null there")]
    MissingField { column: String, field: String },
    #[error(transparent)]
    Type(#[from] TypeError),
}

/// A value that the new type does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    /// The row's index in the array.
    pub row: usize,
    pub reason: String,
}

/// An error of an array that was not converted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// Values that do not fit: at most one for each row, in ascending order of rows.
    Rows(Vec<Failure>),
    /// The rows do not fit together; fewer may.
    Batch(String),
}

/// A converter of arrays of one type to arrays of another.
#[derive(Debug, Clone)]
pub(crate) struct Converter {
    /// The column, or the path within it: `price.gross`, `tags[]`.
    path: Arc<str>,
    from: DataType,
    to: DataType,
    step: Step,
    place: Context,
}

#[derive(Debug, Clone)]
enum Step {
    Same,
    /// Every value is null.
    Nulls,
    /// The same values in another layout.
    Layout,
    /// Dictionaries and run ends: their values are unwrapped first.
    Unwrap(Box<Converter>),
    Leaf {
        leaf: Leaf,
        rule: Option<usize>,
    },
    List(Box<Converter>, FieldRef),
    Struct(Vec<FieldStep>, Fields),
    Map([Box<Converter>; 2]),
}

impl Trouble {
    /// Returns the reason of the first row.
    pub fn reason(self) -> String {
        match self {
            Trouble::Rows(failures) => failures
                .into_iter()
                .next()
                .map_or(String::new(), |first| first.reason),
            Trouble::Batch(reason) => reason,
        }
    }
}

/// Returns the float that equals the number exactly. A text may also have as many digits as it
/// takes to distinguish floats.
pub(crate) fn exact_float64(datum: &Datum<'_>) -> Option<f64> {
    if let Datum::Text(text) = datum
        && let Some(value) = quick::float(text.as_bytes())
    {
        return Some(value);
    }
    value::float64(datum, Loss::None).exact()
}

/// The number of changed values, by rule.
#[derive(Debug, Clone, Default)]
pub(crate) struct Changes(Vec<u64>);

impl Changes {
    fn add(&mut self, rule: Option<usize>, values: u64) {
        let Some(rule) = rule else { return };
        if self.0.len() <= rule {
            self.0.resize(rule + 1, 0);
        }
        self.0[rule] += values;
    }
}

impl Converter {
    /// Creates a converter from a column of type `from` to one of type `to`.
    pub fn new(
        column: &str,
        from: &DataType,
        to: &DataType,
        rules: &Rules,
    ) -> Result<Converter, ConvertError> {
        let place = Context::default();
        Scope {
            column,
            rules,
            place,
        }
        .converter(column, from, to)
    }

    /// Creates a converter from texts that hold JSON values, numbers as well as strings.
    pub fn of_json(
        column: &str,
        from: &DataType,
        to: &DataType,
        rules: &Rules,
    ) -> Result<Converter, ConvertError> {
        let place = Context {
            json: true,
            in_map: false,
        };
        Scope {
            column,
            rules,
            place,
        }
        .converter(column, from, to)
    }

    pub fn from(&self) -> &DataType {
        &self.from
    }

    /// Converts an array of the type `from`; `changes` counts the values that the conversion
    /// changed.
    pub fn convert(&self, array: &ArrayRef, changes: &mut Changes) -> Result<ArrayRef, Trouble> {
        match &self.step {
            Step::Same => Ok(Arc::clone(array)),
            Step::Nulls => Ok(new_null_array(&self.to, array.len())),
            Step::Layout => self.cast(array, &self.to),
            Step::Unwrap(then) => then.convert(&self.cast(array, &then.from)?, changes),
            Step::Leaf { leaf, rule } => self.leaf(leaf, *rule, array, changes),
            Step::List(items, field) => convert_list(self, items, field, array, changes),
            Step::Struct(steps, fields) => convert_struct(self, steps, fields, array, changes),
            Step::Map(parts) => convert_map(self, parts, array, changes),
        }
    }

    /// Converts with the Arrow library, for types in which every value is the same.
    fn cast(&self, array: &ArrayRef, to: &DataType) -> Result<ArrayRef, Trouble> {
        let reason = |error| format!("the column '{}' cannot be read: {error}", self.path);
        cast(array, to).map_err(|error| Trouble::Batch(reason(error)))
    }

    fn leaf(
        &self,
        leaf: &Leaf,
        rule: Option<usize>,
        array: &ArrayRef,
        changes: &mut Changes,
    ) -> Result<ArrayRef, Trouble> {
        if leaf.from == Kind::Text
            && let Some(texts) = array.as_any().downcast_ref()
            && let Some(read) = quick::read(texts, &self.to)
        {
            return Ok(read);
        }
        let mut account = Account::default();
        let Some(converted) = leaf.convert(array.as_ref(), &mut account) else {
            return Err(Trouble::Batch(format!(
                "the column '{}' is not {} as announced",
                self.path,
                type_name(&self.from)
            )));
        };
        changes.add(rule, account.changed);
        if account.misfits.is_empty() {
            return Ok(converted);
        }
        let failure = |(row, shown): (usize, String)| Failure {
            row,
            reason: self.misfit(leaf, &array.slice(row, 1), &shown),
        };
        Err(Trouble::Rows(
            account.misfits.into_iter().map(failure).collect(),
        ))
    }
}

/// The column for which converters are made.
#[derive(Clone, Copy)]
struct Scope<'a> {
    column: &'a str,
    rules: &'a Rules,
    place: Context,
}

impl Scope<'_> {
    /// Creates the converter for the place `path` in the column.
    fn converter(
        self,
        path: &str,
        from: &DataType,
        to: &DataType,
    ) -> Result<Converter, ConvertError> {
        let step = self.step(path, from, to)?;
        Ok(Converter {
            path: Arc::from(path),
            from: from.clone(),
            to: to.clone(),
            step,
            place: self.place,
        })
    }

    /// Returns the step that turns one type into another.
    fn step(self, path: &str, from: &DataType, to: &DataType) -> Result<Step, ConvertError> {
        use DataType::{Dictionary, Map, Null, RunEndEncoded, Struct};
        // Times of day are checked one by one: some sources hold times outside a day.
        if from == to && !has_times(from) {
            return Ok(Step::Same);
        }
        let unwrapped = |from: &DataType| self.converter(path, from, to).map(Box::new);
        Ok(match (from, to) {
            (Null, _) => Step::Nulls,
            (Dictionary(_, values), _) => Step::Unwrap(unwrapped(values)?),
            (RunEndEncoded(_, values), _) => Step::Unwrap(unwrapped(values.data_type())?),
            (Struct(have), Struct(want)) => {
                Step::Struct(nested::field_steps(self, path, have, want)?, want.clone())
            }
            (Map(..), Map(..)) => self.map_step(path, from, to)?,
            _ => match (list_item(from), list_item(to)) {
                (Some(item), Some(new_item)) => {
                    let path = format!("{path}[]");
                    let items = self.converter(&path, item.data_type(), new_item.data_type())?;
                    Step::List(Box::new(items), Arc::clone(new_item))
                }
                (None, None) => self.leaf_step(path, from, to)?,
                _ => return Err(refused(path, from, to)),
            },
        })
    }

    fn map_step(self, path: &str, from: &DataType, to: &DataType) -> Result<Step, ConvertError> {
        let (DataType::Map(have, is_sorted), DataType::Map(want, sorted)) = (from, to) else {
            return Err(refused(path, from, to));
        };
        let entries = nested::entry_types(have).zip(nested::entry_types(want));
        let Some(([key, value], [new_key, new_value])) = entries.filter(|_| *is_sorted || !sorted)
        else {
            return Err(refused(path, from, to));
        };
        let mut scope = self;
        scope.place.in_map = true;
        let part = |name: &str, from: &FieldRef, to: &FieldRef| {
            let path = format!("{path}.{name}");
            let converter = scope.converter(&path, from.data_type(), to.data_type());
            converter.map(Box::new)
        };
        Ok(Step::Map([
            part("key", &key, &new_key)?,
            part("value", &value, &new_value)?,
        ]))
    }

    fn leaf_step(self, path: &str, from: &DataType, to: &DataType) -> Result<Step, ConvertError> {
        if pairs::same_but_for_layout(from, to) {
            return Ok(Step::Layout);
        }
        let rule = self.rules.of(self.column, path);
        let loss = rule.map_or(Loss::None, |rule| self.rules.loss(rule));
        let (kind, target) = (kind_of(path, from)?, kind_of(path, to)?);
        if !pairs::converts(&kind, &target, loss) {
            return Err(refused(path, from, to));
        }
        let leaf = Leaf {
            from: kind,
            to: to.clone(),
            loss,
        };
        Ok(Step::Leaf { leaf, rule })
    }
}

/// Returns whether a type is or contains a time of day. Lists whose layouts tables do not use do
/// not count.
fn has_times(data_type: &DataType) -> bool {
    use DataType::{FixedSizeList, LargeList, List};
    match data_type {
        DataType::Time32(_) | DataType::Time64(_) => true,
        DataType::Struct(fields) => fields.iter().any(|field| has_times(field.data_type())),
        DataType::Map(entries, _) => has_times(entries.data_type()),
        List(item) | LargeList(item) | FixedSizeList(item, _) => has_times(item.data_type()),
        _ => false,
    }
}

fn refused(path: &str, from: &DataType, to: &DataType) -> ConvertError {
    ConvertError::Types {
        column: path.to_owned(),
        from: type_name(from),
        to: type_name(to),
        hint: pairs::hint(from, to),
    }
}
