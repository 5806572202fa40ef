//! Defines the columns in which records travel from encoding tasks to writing tasks.
//!
//! Any engine can shuffle them.

use std::sync::{Arc, LazyLock};

use arrow_array::builder::{BinaryBuilder, Int32Builder, Int64Builder};
use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{Array, ArrayRef, BinaryArray, Int32Array, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema, SchemaRef};

use super::DistributedError;

/// The sequence number of a control row.
pub(super) const CONTROL_SEQUENCE: i64 = -1;

static SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| {
    Arc::new(Schema::new(vec![
        Field::new("partition", DataType::Int32, false),
        Field::new("records", DataType::Binary, false),
        Field::new("source", DataType::Int64, false),
        Field::new("sequence", DataType::Int64, false),
    ]))
});

/// Returns the columns of records in transit: `partition`; `records`, a chunk of them, or the
/// content of a control row; `source` and `sequence`, which order records of one key by age. The
/// sequence of a control row is -1.
pub fn record_schema() -> SchemaRef {
    SCHEMA.clone()
}

/// A builder of batches from a source's chunks and control rows.
#[derive(Debug)]
pub(super) struct WireRows {
    partition: Int32Builder,
    records: BinaryBuilder,
    source: i64,
    sequence: Int64Builder,
    bytes: usize,
}

impl WireRows {
    pub fn new(source: u32) -> Self {
        Self {
            partition: Int32Builder::new(),
            records: BinaryBuilder::new(),
            source: i64::from(source),
            sequence: Int64Builder::new(),
            bytes: 0,
        }
    }

    /// Returns the bytes pushed so far.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// REQUIRES less than 2 GiB in all: the offsets of the column have 32 bits.
    pub fn push(&mut self, partition: usize, records: &[u8], sequence: i64) {
        // There are 16,384 partitions at most.
        self.partition.append_value(partition as i32);
        self.records.append_value(records);
        self.sequence.append_value(sequence);
        self.bytes += records.len();
    }

    pub fn finish(mut self) -> Result<RecordBatch, DistributedError> {
        let sequence = self.sequence.finish();
        let columns: Vec<ArrayRef> = vec![
            Arc::new(self.partition.finish()),
            Arc::new(self.records.finish()),
            Arc::new(Int64Array::from_value(self.source, sequence.len())),
            Arc::new(sequence),
        ];
        let batch = RecordBatch::try_new(record_schema(), columns);
        batch.map_err(|error| DistributedError::Batch(error.to_string()))
    }
}

/// A received batch of chunks and control rows, its columns by name.
pub(super) struct Arrived {
    partition: Int32Array,
    records: BinaryArray,
    source: Int64Array,
    sequence: Int64Array,
}

/// A row of a received batch.
pub(super) struct WireRow<'a> {
    pub partition: i32,
    pub records: &'a [u8],
    pub source: i64,
    pub sequence: i64,
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
            if array.null_count() > 0 {
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
            records: column(1)?.as_binary::<i32>().clone(),
            source: column(2)?.as_primitive::<Int64Type>().clone(),
            sequence: column(3)?.as_primitive::<Int64Type>().clone(),
        })
    }

    pub fn len(&self) -> usize {
        self.partition.len()
    }

    /// REQUIRES an index below the length.
    pub fn get(&self, index: usize) -> WireRow<'_> {
        WireRow {
            partition: self.partition.value(index),
            records: self.records.value(index),
            source: self.source.value(index),
            sequence: self.sequence.value(index),
        }
    }
}

/// Builds a batch of samples: columns `key`, and the number of `bytes` that each key represents.
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

/// Reads such a batch.
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
