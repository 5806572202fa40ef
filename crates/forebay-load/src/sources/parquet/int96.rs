//! Detects overflow of the 96-bit timestamps of old writers.
//!
//! Their range exceeds that of a timestamp in nanoseconds, and the decoder wraps around beyond it.
//! Such columns are therefore decoded a second time, as seconds, and compared.

use arrow_array::cast::AsArray;
use arrow_array::types::{TimestampNanosecondType, TimestampSecondType};
use arrow_array::{Array, RecordBatch};
use arrow_schema::{DataType, Fields, TimeUnit};
use parquet::basic::Type;
use parquet::schema::types::SchemaDescriptor;

use super::retype::retyped_fields;

const SECOND_NS: i64 = 1_000_000_000;

/// Returns the columns that hold such timestamps.
pub(super) fn columns(schema: &SchemaDescriptor, columns: &[usize]) -> Vec<usize> {
    let holds = |column: &&usize| {
        let mut leaves = 0..schema.num_columns();
        leaves.any(|leaf| {
            schema.get_column_root_idx(leaf) == **column
                && schema.column(leaf).physical_type() == Type::INT96
        })
    };
    columns.iter().filter(holds).copied().collect()
}

/// Returns the types with seconds in place of nanoseconds.
pub(super) fn in_seconds(fields: &Fields) -> Fields {
    let nanoseconds = DataType::Timestamp(TimeUnit::Nanosecond, None);
    let seconds = DataType::Timestamp(TimeUnit::Second, None);
    retyped_fields(fields, &|own| {
        (*own == nanoseconds).then(|| seconds.clone())
    })
}

/// Checks that the columns of `seconds` equal those of the same names in `batch`; returns the name
/// of one that wraps around.
pub(super) fn check(batch: &RecordBatch, seconds: &RecordBatch) -> Result<(), String> {
    for (field, column) in seconds.schema_ref().fields().iter().zip(seconds.columns()) {
        let same = batch
            .column_by_name(field.name())
            .is_none_or(|own| same(own.as_ref(), column.as_ref()));
        if !same {
            return Err(format!(
                "its column '{}' has a time of 96 bits (INT96) outside the years 1677 to 2262, which cannot be read \
                 exactly; have it written as a timestamp of microseconds",
                field.name()
            ));
        }
    }
    Ok(())
}

fn same(own: &dyn Array, seconds: &dyn Array) -> bool {
    match (own.data_type(), seconds.data_type()) {
        (
            DataType::Timestamp(TimeUnit::Nanosecond, _),
            DataType::Timestamp(TimeUnit::Second, _),
        ) => {
            let own = own.as_primitive::<TimestampNanosecondType>().iter();
            let seconds = seconds.as_primitive::<TimestampSecondType>().iter();
            own.zip(seconds).all(|pair| match pair {
                (Some(own), Some(seconds)) => own.div_euclid(SECOND_NS) == seconds,
                (own, seconds) => own.is_none() == seconds.is_none(),
            })
        }
        (DataType::Struct(_), DataType::Struct(_)) => {
            let columns = own.as_struct().columns().iter();
            let mut pairs = columns.zip(seconds.as_struct().columns());
            pairs.all(|(own, seconds)| same(own.as_ref(), seconds.as_ref()))
        }
        (DataType::List(_), DataType::List(_)) => {
            let (own, seconds) = (own.as_list::<i32>(), seconds.as_list::<i32>());
            same(own.values().as_ref(), seconds.values().as_ref())
        }
        (DataType::Map(..), DataType::Map(..)) => {
            same(own.as_map().entries(), seconds.as_map().entries())
        }
        _ => true,
    }
}
