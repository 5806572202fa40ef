//! Reads columns from directory names: `year=2024/month=01/x.parquet`.
//!
//! Such a column has one value in each file. Its type is int64 if all files have whole numbers in
//! canonical form, without padding. It is date if all have dates, else text. If `--column` gives a
//! type, the text is converted to it.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, Date32Array, Int64Array, RecordBatch, Scalar, StringArray};
use arrow_array::{RecordBatchOptions, new_null_array};
use arrow_ord::cmp::not_distinct;
use arrow_schema::{DataType, Field, Fields, Schema};
use chrono::NaiveDate;
use percent_encoding::percent_decode_str;

use super::error::SourceError;
use crate::convert::{Changes, Converter, Rules};
use crate::type_name::type_name;

/// The directory name that writers use for rows in which the column is null.
const NULL: &str = "__HIVE_DEFAULT_PARTITION__";

/// A column and its value, from one directory name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Partition {
    pub column: String,
    pub value: Option<String>,
}

/// Returns the columns and values of a file's directories, from the outermost to the innermost.
pub(super) fn partitions(dirs: &[String], file: &str) -> Result<Vec<Partition>, SourceError> {
    let mut found: Vec<Partition> = Vec::new();
    for dir in dirs {
        let Some((column, value)) = dir.split_once('=').filter(|(name, _)| !name.is_empty()) else {
            continue;
        };
        let decode = |text| {
            let decoded = percent_decode_str(text).decode_utf8();
            decoded
                .map(|text| text.into_owned())
                .map_err(|_| SourceError::Partition {
                    file: file.to_owned(),
                    dir: dir.clone(),
                    reason: "is no UTF-8",
                })
        };
        let column = decode(column)?;
        let value = Some(decode(value)?).filter(|value| value != NULL);
        if found.iter().any(|other| other.column == column) {
            return Err(SourceError::Partition {
                file: file.to_owned(),
                dir: dir.clone(),
                reason: "names a column that a directory above names too",
            });
        }
        found.push(Partition { column, value });
    }
    Ok(found)
}

/// The columns of all files' directories, with their types.
#[derive(Debug, Default)]
pub(super) struct PartitionTypes(Vec<Field>);

impl PartitionTypes {
    pub fn of<'p>(
        files: impl Iterator<Item = &'p [Partition]> + Clone,
        is_given: impl Fn(&str) -> bool,
    ) -> PartitionTypes {
        let mut names: Vec<&str> = Vec::new();
        for partition in files.clone().flatten() {
            if !names.contains(&partition.column.as_str()) {
                names.push(&partition.column);
            }
        }
        let field = |name: &str| {
            let of_column = files.clone().flatten().filter(|have| have.column == name);
            let values: Vec<Option<&str>> = of_column.map(|have| have.value.as_deref()).collect();
            let texts = || values.iter().flatten().copied();
            let data_type = match texts().next() {
                _ if is_given(name) => DataType::Utf8,
                None => DataType::Utf8,
                Some(_) if texts().all(|text| whole_number(text).is_some()) => DataType::Int64,
                Some(_) if texts().all(|text| day(text).is_some()) => DataType::Date32,
                Some(_) => DataType::Utf8,
            };
            Field::new(name, data_type, values.contains(&None))
        };
        PartitionTypes(names.into_iter().map(field).collect())
    }

    /// Returns the constant columns of a file's directories, beside its own columns.
    pub fn constants(&self, partitions: &[Partition], own: &Fields) -> Constants {
        let mut constants = Constants::default();
        for partition in partitions {
            let field = self
                .0
                .iter()
                .find(|field| *field.name() == partition.column);
            let Some(field) = field else { continue };
            match own.find(field.name()) {
                Some(_) => constants.held.push(partition.clone()),
                None => constants
                    .added
                    .push((field.clone(), partition.value.clone())),
            }
        }
        constants
    }
}

/// The columns that are the same in all rows of a file.
#[derive(Debug, Default)]
pub(super) struct Constants {
    /// The columns that only the directories have.
    added: Vec<(Field, Option<String>)>,
    /// The columns that the file also has.
    held: Vec<Partition>,
}

impl Constants {
    pub fn fields(&self) -> impl Iterator<Item = &Field> {
        self.added.iter().map(|(field, _)| field)
    }

    /// Returns a batch with the directories' columns after its own.
    pub fn add(&self, batch: RecordBatch) -> RecordBatch {
        if self.added.is_empty() {
            return batch;
        }
        let rows = batch.num_rows();
        let mut fields: Vec<Field> = Vec::with_capacity(batch.num_columns() + self.added.len());
        fields.extend(
            batch
                .schema()
                .fields()
                .iter()
                .map(|field| field.as_ref().clone()),
        );
        let mut columns = batch.columns().to_vec();
        for (field, value) in &self.added {
            fields.push(field.clone());
            columns.push(repeated(field.data_type(), value.as_deref(), rows));
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let whole =
            RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options);
        whole.unwrap_or(batch)
    }

    /// Checks that the file's columns agree with its directories. An error names the column that
    /// does not.
    pub fn check(&self, batch: &RecordBatch) -> Result<(), String> {
        for Partition { column, value } in &self.held {
            let Some(have) = batch.column_by_name(column) else {
                continue;
            };
            let shown = value.as_deref().unwrap_or(NULL);
            // Must not begin like the errors that another type of the column would fix.
            let differs = |what: &str| {
                format!(
                    "the directory {column}={shown} does not agree with the column '{column}'{what}"
                )
            };
            let said = as_type(value.as_deref(), have.data_type());
            let said = said.ok_or_else(|| {
                let data_type = type_name(have.data_type());
                differs(&format!(", whose type, {data_type}, cannot hold it"))
            })?;
            let same = not_distinct(have, &Scalar::new(said));
            let same = same.map_err(|error| error.to_string())?;
            if same.true_count() < batch.num_rows() {
                return Err(differs(""));
            }
        }
        Ok(())
    }
}

/// Converts a text to one value of a type.
fn as_type(value: Option<&str>, data_type: &DataType) -> Option<ArrayRef> {
    let text: ArrayRef = Arc::new(StringArray::from(vec![value]));
    let converter = Converter::new("", text.data_type(), data_type, &Rules::default()).ok()?;
    converter.convert(&text, &mut Changes::default()).ok()
}

fn repeated(data_type: &DataType, value: Option<&str>, rows: usize) -> ArrayRef {
    let Some(text) = value else {
        return new_null_array(data_type, rows);
    };
    match data_type {
        DataType::Int64 => Arc::new(Int64Array::from_value(
            whole_number(text).unwrap_or_default(),
            rows,
        )),
        DataType::Date32 => {
            let days = day(text).unwrap_or_default();
            Arc::new(Date32Array::from_value(days, rows))
        }
        _ => Arc::new(StringArray::from_iter_values(std::iter::repeat_n(
            text, rows,
        ))),
    }
}

/// Parses a whole number in canonical form.
fn whole_number(text: &str) -> Option<i64> {
    let number: i64 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

/// Parses a day, as days since 1970.
fn day(text: &str) -> Option<i32> {
    let date = NaiveDate::parse_from_str(text, "%Y-%m-%d").ok()?;
    let same = date.format("%Y-%m-%d").to_string() == text;
    let epoch = NaiveDate::from_ymd_opt(1970, 1, 1)?;
    let days = date.signed_duration_since(epoch).num_days();
    same.then_some(i32::try_from(days).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(path: &str) -> Result<Vec<Partition>, SourceError> {
        let dirs: Vec<String> = path.split('/').map(str::to_owned).collect();
        partitions(&dirs, path)
    }

    fn types(paths: &[&str], given: &[&str]) -> Vec<String> {
        let files: Vec<Vec<Partition>> = paths.iter().map(|path| of(path).unwrap()).collect();
        let types = PartitionTypes::of(files.iter().map(Vec::as_slice), |name| {
            given.contains(&name)
        });
        let shown = |field: &Field| {
            let null = if field.is_nullable() { "?" } else { "" };
            format!("{}:{}{null}", field.name(), field.data_type())
        };
        types.0.iter().map(shown).collect()
    }

    #[test]
    fn directories_are_columns() {
        let found = of("a/year=2024/city=S%C3%A3o%20Paulo/=x/note=a=b").unwrap();
        let said: Vec<(&str, Option<&str>)> = (found.iter())
            .map(|have| (have.column.as_str(), have.value.as_deref()))
            .collect();
        let expected = [
            ("year", Some("2024")),
            ("city", Some("São Paulo")),
            ("note", Some("a=b")),
        ];
        assert_eq!(said, expected);
        assert_eq!(of("d=__HIVE_DEFAULT_PARTITION__").unwrap()[0].value, None);
        assert!(
            of("a=1/a=2")
                .unwrap_err()
                .to_string()
                .contains("directory above")
        );
        assert!(of("a=%ff").unwrap_err().to_string().contains("no UTF-8"));
    }

    #[test]
    fn types_are_of_all_values_together() {
        let paths = ["y=2024/m=01/d=2024-01-31", "y=-7/m=12/d=2024-12-01"];
        assert_eq!(types(&paths, &[]), ["y:Int64", "m:Utf8", "d:Date32"]);
        let paths = [
            "y=1/m=__HIVE_DEFAULT_PARTITION__",
            "y=__HIVE_DEFAULT_PARTITION__",
        ];
        assert_eq!(types(&paths, &[]), ["y:Int64?", "m:Utf8?"]);
        assert_eq!(types(&["d=2024-02-30"], &[]), ["d:Utf8"]);
        assert_eq!(types(&["n=9223372036854775808"], &[]), ["n:Utf8"]);
        assert_eq!(types(&["y=1"], &["y"]), ["y:Utf8"]);
    }

    #[test]
    fn a_file_that_contradicts_its_directory_is_detected() {
        let fields = Fields::from(vec![Field::new("year", DataType::Int32, true)]);
        let batch = |values: Vec<Option<i32>>| {
            let column: ArrayRef = Arc::new(arrow_array::Int32Array::from(values));
            RecordBatch::try_new(Arc::new(Schema::new(fields.clone())), vec![column]).unwrap()
        };
        let constants = |path| {
            let found = of(path).unwrap();
            PartitionTypes::of([found.as_slice()].into_iter(), |_| false).constants(&found, &fields)
        };
        let year = constants("year=2024");
        assert_eq!(year.fields().count(), 0);
        assert_eq!(year.check(&batch(vec![Some(2024), Some(2024)])), Ok(()));
        assert!(year.check(&batch(vec![Some(2024), None])).is_err());
        assert!(year.check(&batch(vec![Some(2025)])).is_err());
        assert!(constants("year=x").check(&batch(vec![Some(1)])).is_err());
        let null = constants("year=__HIVE_DEFAULT_PARTITION__");
        assert_eq!(null.check(&batch(vec![None])), Ok(()));
    }
}
