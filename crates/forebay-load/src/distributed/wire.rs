//! WireRecords on their way from the tasks that encode them to those that write them: columns that
//! any engine can shuffle.

use std::sync::{Arc, LazyLock};

use arrow_array::builder::{BinaryBuilder, Int32Builder, Int64Builder};
use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{Array, ArrayRef, BinaryArray, Int32Array, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema, SchemaRef};

use super::DistributedError;

/// The row of a control row.
pub(super) const CONTROL_ROW: i64 = -1;

static SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| {
    Arc::new(Schema::new(vec![
        Field::new("partition", DataType::Int32, false),
        Field::new("key", DataType::Binary, true),
        Field::new("record", DataType::Binary, false),
        Field::new("source", DataType::Int64, false),
        Field::new("row", DataType::Int64, false),
    ]))
});

/// The columns of records under way: `partition`; `key`, null in a control row; `record`; `source`
/// and `row`, by which records of one key are told apart by age. The row of a control row is -1.
pub fn record_schema() -> SchemaRef {
    SCHEMA.clone()
}

/// Puts records into a batch.
pub(super) struct WireRecords {
    partition: Int32Builder,
    key: BinaryBuilder,
    record: BinaryBuilder,
    source: i64,
    row: Int64Builder,
    key_bytes: usize,
    record_bytes: usize,
}

impl WireRecords {
    /// `rows` is about how many there will be.
    pub fn new(source: u32, rows: usize) -> Self {
        Self {
            partition: Int32Builder::with_capacity(rows),
            key: BinaryBuilder::with_capacity(rows, 0),
            record: BinaryBuilder::with_capacity(rows, 0),
            source: i64::from(source),
            row: Int64Builder::with_capacity(rows),
            key_bytes: 0,
            record_bytes: 0,
        }
    }

    pub fn push(
        &mut self,
        partition: usize,
        key: Option<&[u8]>,
        record: &[u8],
        row: i64,
    ) -> Result<(), DistributedError> {
        self.key_bytes += key.map_or(0, <[u8]>::len);
        self.record_bytes += record.len();
        // The offsets of these columns have 32 bits.
        if self.key_bytes.max(self.record_bytes) > i32::MAX as usize {
            return Err(DistributedError::Source {
                source_number: self.source,
                problem: "a batch makes records of more than 2 GiB: hand smaller batches over"
                    .to_owned(),
            });
        }
        // There are 16,384 partitions at most.
        self.partition.append_value(partition as i32);
        self.key.append_option(key);
        self.record.append_value(record);
        self.row.append_value(row);
        Ok(())
    }

    pub fn finish(mut self) -> Result<RecordBatch, DistributedError> {
        let row = self.row.finish();
        let columns: Vec<ArrayRef> = vec![
            Arc::new(self.partition.finish()),
            Arc::new(self.key.finish()),
            Arc::new(self.record.finish()),
            Arc::new(Int64Array::from_value(self.source, row.len())),
            Arc::new(row),
        ];
        let batch = RecordBatch::try_new(record_schema(), columns);
        batch.map_err(|error| DistributedError::Batch(error.to_string()))
    }
}

/// A batch of records, its columns by name.
pub(super) struct Arrived {
    partition: Int32Array,
    key: BinaryArray,
    record: BinaryArray,
    source: Int64Array,
    row: Int64Array,
}

/// One of them.
pub(super) struct WireRecord<'a> {
    pub partition: i32,
    pub key: Option<&'a [u8]>,
    pub record: &'a [u8],
    pub source: i64,
    pub row: i64,
}

impl Arrived {
    pub fn new(batch: &RecordBatch) -> Result<Self, DistributedError> {
        let column = |at: usize| -> Result<ArrayRef, DistributedError> {
            let field = SCHEMA.field(at);
            let (name, wanted) = (field.name(), field.data_type());
            let array = batch.column_by_name(name);
            let array = array.ok_or_else(|| {
                DistributedError::Batch(format!("it has no column '{name}' of type {wanted}"))
            })?;
            if !field.is_nullable() && array.null_count() > 0 {
                return Err(DistributedError::Batch(format!(
                    "its column '{name}' has nulls"
                )));
            }
            if array.data_type() == wanted {
                return Ok(array.clone());
            }
            let cast = arrow_cast::cast(array, wanted);
            cast.map_err(|error| DistributedError::Batch(format!("its column '{name}': {error}")))
        };
        Ok(Self {
            partition: column(0)?.as_primitive::<Int32Type>().clone(),
            key: column(1)?.as_binary::<i32>().clone(),
            record: column(2)?.as_binary::<i32>().clone(),
            source: column(3)?.as_primitive::<Int64Type>().clone(),
            row: column(4)?.as_primitive::<Int64Type>().clone(),
        })
    }

    pub fn len(&self) -> usize {
        self.partition.len()
    }

    /// REQUIRES an index below the length.
    pub fn get(&self, index: usize) -> WireRecord<'_> {
        WireRecord {
            partition: self.partition.value(index),
            key: (!self.key.is_null(index)).then(|| self.key.value(index)),
            record: self.record.value(index),
            source: self.source.value(index),
            row: self.row.value(index),
        }
    }
}

/// The columns of samples: `key`, and the `bytes` that it stands for.
pub(super) fn sample_batch(
    keys: BinaryArray,
    bytes: Int64Array,
) -> Result<RecordBatch, DistributedError> {
    let schema = Schema::new(vec![
        Field::new("key", DataType::Binary, false),
        Field::new("bytes", DataType::Int64, false),
    ]);
    let columns: Vec<ArrayRef> = vec![Arc::new(keys), Arc::new(bytes)];
    let batch = RecordBatch::try_new(Arc::new(schema), columns);
    batch.map_err(|error| DistributedError::Batch(error.to_string()))
}

/// Takes such a batch apart.
pub(super) fn samples_of(
    batch: &RecordBatch,
    samples: &mut Vec<(Vec<u8>, u64)>,
) -> Result<(), DistributedError> {
    let bad = |problem: &str| DistributedError::Batch(format!("the samples: {problem}"));
    let column = |name: &str, wanted: DataType| -> Result<ArrayRef, DistributedError> {
        let array = batch.column_by_name(name);
        let array = array.ok_or_else(|| bad(&format!("there is no column '{name}'")))?;
        if array.null_count() > 0 {
            return Err(bad(&format!("the column '{name}' has nulls")));
        }
        arrow_cast::cast(array, &wanted).map_err(|error| bad(&error.to_string()))
    };
    let (keys, bytes) = (
        column("key", DataType::Binary)?,
        column("bytes", DataType::Int64)?,
    );
    let (keys, bytes) = (keys.as_binary::<i32>(), bytes.as_primitive::<Int64Type>());
    for (key, bytes) in keys.iter().flatten().zip(bytes.values()) {
        let bytes = u64::try_from(*bytes).map_err(|_| bad("a sample of less than nothing"))?;
        samples.push((key.to_vec(), bytes));
    }
    Ok(())
}
