//! Decodes Parquet's intervals: months, days and milliseconds, each unsigned.
//!
//! The decoder returns either days and milliseconds, or months. The columns are therefore decoded
//! twice, and combined.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{IntervalDayTimeType, IntervalMonthDayNanoType, IntervalYearMonthType};
use arrow_array::{
    Array, ArrayRef, FixedSizeListArray, GenericListArray, MapArray, OffsetSizeTrait,
    PrimitiveArray, RecordBatch, StructArray,
};
use arrow_buffer::IntervalMonthDayNano;
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Fields, IntervalUnit, Schema};

use super::retype::{retyped, retyped_fields};

const DAY_TIME: DataType = DataType::Interval(IntervalUnit::DayTime);
const WHOLE: DataType = DataType::Interval(IntervalUnit::MonthDayNano);
const MILLISECOND_NS: i64 = 1_000_000;

/// Returns the types with whole intervals in place of days and milliseconds.
pub(super) fn whole(fields: &Fields) -> Fields {
    retyped_fields(fields, &|own| (*own == DAY_TIME).then_some(WHOLE))
}

/// Returns the types with months in place of days and milliseconds.
pub(super) fn in_months(fields: &Fields) -> Fields {
    let months = DataType::Interval(IntervalUnit::YearMonth);
    retyped_fields(fields, &|own| (*own == DAY_TIME).then(|| months.clone()))
}

/// Returns the columns that are decoded as days and milliseconds although `declared` has whole
/// intervals.
pub(super) fn columns(decoded: &Fields, declared: &Fields, columns: &[usize]) -> Vec<usize> {
    let holds = |column: &&usize| {
        let own = decoded[**column].data_type();
        let type_of = |own: &DataType| (*own == DAY_TIME).then_some(WHOLE);
        retyped(own, &type_of) != *own && has_whole(declared[**column].data_type())
    };
    columns.iter().filter(holds).copied().collect()
}

fn has_whole(data_type: &DataType) -> bool {
    retyped(data_type, &|own| (*own == WHOLE).then_some(DataType::Null)) != *data_type
}

/// Returns the batch with the months from the columns of the same names.
pub(super) fn with_months(
    batch: &RecordBatch,
    months: &RecordBatch,
) -> Result<RecordBatch, ArrowError> {
    let (mut fields, mut columns) = (Vec::new(), Vec::new());
    for (field, column) in batch.schema_ref().fields().iter().zip(batch.columns()) {
        let column = match months.column_by_name(field.name()) {
            Some(months) => joined(column, months)?,
            None => Arc::clone(column),
        };
        fields.push(with_type_of(field, &column));
        columns.push(column);
    }
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)
}

fn with_type_of(field: &FieldRef, array: &dyn Array) -> FieldRef {
    Arc::new(Field::clone(field).with_data_type(array.data_type().clone()))
}

fn joined(own: &ArrayRef, months: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    Ok(match own.data_type() {
        DataType::Interval(IntervalUnit::DayTime) => {
            let own = own.as_primitive::<IntervalDayTimeType>();
            let months = months.as_primitive::<IntervalYearMonthType>();
            let whole = own.iter().zip(months).map(|(own, months)| {
                let own = own?;
                let milliseconds = i64::from(own.milliseconds.cast_unsigned());
                let nanoseconds = milliseconds * MILLISECOND_NS;
                Some(IntervalMonthDayNano::new(months?, own.days, nanoseconds))
            });
            Arc::new(PrimitiveArray::<IntervalMonthDayNanoType>::from_iter(whole))
        }
        DataType::Struct(_) => Arc::new(joined_struct(own.as_struct(), months.as_struct())?),
        DataType::List(_) => joined_list::<i32>(own, months)?,
        DataType::LargeList(_) => joined_list::<i64>(own, months)?,
        DataType::FixedSizeList(item, length) => {
            let list = own.as_fixed_size_list();
            let items = joined(list.values(), months.as_fixed_size_list().values())?;
            let item = with_type_of(item, &items);
            Arc::new(FixedSizeListArray::try_new(
                item,
                *length,
                items,
                list.nulls().cloned(),
            )?)
        }
        DataType::Map(entries, sorted) => {
            let map = own.as_map();
            let joined = joined_struct(map.entries(), months.as_map().entries())?;
            let entries = with_type_of(entries, &joined);
            let (offsets, nulls) = (map.offsets().clone(), map.nulls().cloned());
            Arc::new(MapArray::try_new(entries, offsets, joined, nulls, *sorted)?)
        }
        _ => Arc::clone(own),
    })
}

fn joined_struct(own: &StructArray, months: &StructArray) -> Result<StructArray, ArrowError> {
    let pairs = own.columns().iter().zip(months.columns());
    let columns: Vec<ArrayRef> = pairs
        .map(|(own, months)| joined(own, months))
        .collect::<Result<_, _>>()?;
    let fields = own.fields().iter().zip(&columns);
    let fields = fields
        .map(|(field, column)| with_type_of(field, column))
        .collect();
    StructArray::try_new(fields, columns, own.nulls().cloned())
}

fn joined_list<O: OffsetSizeTrait>(
    own: &ArrayRef,
    months: &ArrayRef,
) -> Result<ArrayRef, ArrowError> {
    let list = own.as_list::<O>();
    let items = joined(list.values(), months.as_list::<O>().values())?;
    let (DataType::List(item) | DataType::LargeList(item)) = own.data_type() else {
        return Ok(Arc::clone(own));
    };
    let item = with_type_of(item, &items);
    let (offsets, nulls) = (list.offsets().clone(), list.nulls().cloned());
    Ok(Arc::new(GenericListArray::<O>::try_new(
        item, offsets, items, nulls,
    )?))
}
