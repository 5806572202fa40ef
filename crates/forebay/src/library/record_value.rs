//! Converts records that a program hands over one by one into batches for pushes and loads.

use std::iter::Fuse;
use std::sync::Arc;

use arrow_array::{
    ArrayRef, BinaryArray, Float64Array, Int64Array, RecordBatch, RecordBatchReader, StringArray,
};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use forebay_load::sources::Batches;

/// A type that the value of a record can have. Numbers are stored as numbers in tables with deltas,
/// and as their text in others.
pub trait RecordValue: Sized + sealed::Sealed {
    /// Returns the type of the column.
    #[doc(hidden)]
    fn data_type() -> DataType;

    /// Returns the column of some values.
    #[doc(hidden)]
    fn column(values: Vec<Self>) -> ArrayRef;
}

mod sealed {
    /// Prevents implementations for other types.
    pub trait Sealed {}
}

macro_rules! record_values {
    ($($of:ty, $data_type:ident, $array:ident, $values:ident => $column:expr;)*) => {
        $(impl sealed::Sealed for $of {}

        impl RecordValue for $of {
            fn data_type() -> DataType {
                DataType::$data_type
            }

            fn column($values: Vec<Self>) -> ArrayRef {
                Arc::new($array::from($column))
            }
        })*
    };
}

record_values! {
    Vec<u8>, Binary, BinaryArray, values => values.iter().map(|value| &value[..]).collect::<Vec<_>>();
    &[u8], Binary, BinaryArray, values => values;
    String, Utf8, StringArray, values => values;
    &str, Utf8, StringArray, values => values;
    i64, Int64, Int64Array, values => values;
    f64, Float64, Float64Array, values => values;
}

/// The records of a batch.
const BATCH_RECORDS: usize = 8192;

/// A reader that makes batches of two columns, `key` and `value`.
struct RecordReader<I> {
    records: Fuse<I>,
    schema: SchemaRef,
}

impl<K, V, I> Iterator for RecordReader<I>
where
    I: Iterator<Item = (K, V)>,
    K: AsRef<[u8]>,
    V: RecordValue,
{
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let some = self.records.by_ref().take(BATCH_RECORDS);
        let (keys, values): (Vec<K>, Vec<V>) = some.unzip();
        if keys.is_empty() {
            return None;
        }
        let keys: BinaryArray = keys.iter().map(|key| Some(key.as_ref())).collect();
        let columns: Vec<ArrayRef> = vec![Arc::new(keys), V::column(values)];
        Some(RecordBatch::try_new(Arc::clone(&self.schema), columns))
    }
}

impl<K, V, I> RecordBatchReader for RecordReader<I>
where
    I: Iterator<Item = (K, V)>,
    K: AsRef<[u8]>,
    V: RecordValue,
{
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

/// Returns the batches of records.
pub(super) fn batches_of<K, V, I>(records: I) -> Batches
where
    I: IntoIterator<Item = (K, V)>,
    I::IntoIter: Send + 'static,
    K: AsRef<[u8]>,
    V: RecordValue,
{
    let fields = vec![
        Field::new("key", DataType::Binary, false),
        Field::new("value", V::data_type(), false),
    ];
    let reader = RecordReader {
        records: records.into_iter().fuse(),
        schema: Arc::new(Schema::new(fields)),
    };
    Batches::new("records", None, reader)
}
