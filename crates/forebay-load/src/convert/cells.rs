//! Splits Arrow arrays into typed cells, once a batch.
//!
//! Each cell then costs one branch and one copy.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Date64Type, Decimal32Type, Decimal64Type, Decimal128Type,
    Decimal256Type, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, IntervalDayTimeType, IntervalMonthDayNanoType, IntervalYearMonthType, UInt8Type,
    UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{
    Array, BinaryArray, BinaryViewArray, BooleanArray, FixedSizeBinaryArray, LargeBinaryArray,
    LargeStringArray, RecordBatch, StringArray, StringViewArray,
};
use arrow_buffer::NullBuffer;
use arrow_schema::{DataType, IntervalUnit, TimeUnit};

#[cfg(target_endian = "big")]
compile_error!("rows are little-endian and copied from Arrow's buffers as they are");

/// A typed view of one array.
pub(crate) struct Cells<'a> {
    nulls: Option<&'a NullBuffer>,
    pub values: Values<'a>,
}

pub(crate) enum Values<'a> {
    /// Every value is null.
    Null,
    Bool(&'a BooleanArray),
    /// Values of `width` bytes, little-endian, one after another.
    Fixed {
        bytes: &'a [u8],
        width: usize,
    },
    FixedBinary(&'a FixedSizeBinaryArray),
    Int64(&'a [i64]),
    UInt64(&'a [u64]),
    /// Decimals of 64 bits or more: two's complement of `width` bytes.
    Wide {
        bytes: &'a [u8],
        width: usize,
    },
    Text(&'a StringArray),
    LargeText(&'a LargeStringArray),
    TextView(&'a StringViewArray),
    Binary(&'a BinaryArray),
    LargeBinary(&'a LargeBinaryArray),
    BinaryView(&'a BinaryViewArray),
    /// Lists and maps.
    List {
        bounds: Bounds<'a>,
        items: Box<Cells<'a>>,
    },
    Struct(Vec<Cells<'a>>),
}

/// The ranges of each list's items.
pub(crate) enum Bounds<'a> {
    Small(&'a [i32]),
    Large(&'a [i64]),
    View(&'a [i32], &'a [i32]),
    LargeView(&'a [i64], &'a [i64]),
    Fixed(usize),
}

impl Bounds<'_> {
    #[inline]
    pub fn get(&self, row: usize) -> (usize, usize) {
        match self {
            Bounds::Small(ends) => (ends[row] as usize, ends[row + 1] as usize),
            Bounds::Large(ends) => (ends[row] as usize, ends[row + 1] as usize),
            Bounds::View(starts, sizes) => {
                (starts[row] as usize, (starts[row] + sizes[row]) as usize)
            }
            Bounds::LargeView(starts, sizes) => {
                (starts[row] as usize, (starts[row] + sizes[row]) as usize)
            }
            Bounds::Fixed(length) => (row * length, (row + 1) * length),
        }
    }
}

impl<'a> Cells<'a> {
    /// Returns the columns of a batch; `None` if one has a type that rows cannot hold.
    pub fn of_batch(batch: &'a RecordBatch) -> Option<Vec<Cells<'a>>> {
        batch
            .columns()
            .iter()
            .map(|column| Cells::new(column.as_ref()))
            .collect()
    }

    /// Creates the view of an array; `None` for dictionaries, run ends and unions, which are
    /// refused or unwrapped before.
    pub fn new(array: &'a dyn Array) -> Option<Cells<'a>> {
        Some(Cells {
            nulls: array.nulls(),
            values: values(array)?,
        })
    }

    #[inline]
    pub fn is_null(&self, row: usize) -> bool {
        match self.nulls {
            Some(nulls) => nulls.is_null(row),
            None => matches!(self.values, Values::Null),
        }
    }

    pub fn has_nulls(&self) -> bool {
        self.nulls.is_some_and(|nulls| nulls.null_count() > 0)
    }
}

fn values(array: &dyn Array) -> Option<Values<'_>> {
    Some(match array.data_type() {
        DataType::Null => Values::Null,
        DataType::Boolean => Values::Bool(array.as_boolean()),
        DataType::Int64 => Values::Int64(array.as_primitive::<Int64Type>().values()),
        DataType::UInt64 => Values::UInt64(array.as_primitive::<UInt64Type>().values()),
        DataType::Decimal64(..) => wide::<Decimal64Type>(array),
        DataType::Decimal128(..) => wide::<Decimal128Type>(array),
        DataType::Decimal256(..) => wide::<Decimal256Type>(array),
        DataType::FixedSizeBinary(_) => Values::FixedBinary(array.as_fixed_size_binary()),
        DataType::Utf8 => Values::Text(array.as_string()),
        DataType::LargeUtf8 => Values::LargeText(array.as_string()),
        DataType::Utf8View => Values::TextView(array.as_string_view()),
        DataType::Binary => Values::Binary(array.as_binary()),
        DataType::LargeBinary => Values::LargeBinary(array.as_binary()),
        DataType::BinaryView => Values::BinaryView(array.as_binary_view()),
        DataType::Struct(_) => {
            let fields = array.as_struct().columns().iter();
            Values::Struct(
                fields
                    .map(|field| Cells::new(field.as_ref()))
                    .collect::<Option<_>>()?,
            )
        }
        DataType::List(_)
        | DataType::LargeList(_)
        | DataType::ListView(_)
        | DataType::LargeListView(_)
        | DataType::FixedSizeList(..)
        | DataType::Map(..) => list(array)?,
        _ => fixed_values(array)?,
    })
}

fn fixed_values(array: &dyn Array) -> Option<Values<'_>> {
    Some(match array.data_type() {
        DataType::Int8 => fixed::<Int8Type>(array),
        DataType::Int16 => fixed::<Int16Type>(array),
        DataType::Int32 => fixed::<Int32Type>(array),
        DataType::UInt8 => fixed::<UInt8Type>(array),
        DataType::UInt16 => fixed::<UInt16Type>(array),
        DataType::UInt32 => fixed::<UInt32Type>(array),
        DataType::Float16 => fixed::<Float16Type>(array),
        DataType::Float32 => fixed::<Float32Type>(array),
        DataType::Float64 => fixed::<Float64Type>(array),
        DataType::Decimal32(..) => fixed::<Decimal32Type>(array),
        DataType::Date32 => fixed::<Date32Type>(array),
        DataType::Date64 => fixed::<Date64Type>(array),
        DataType::Interval(IntervalUnit::YearMonth) => fixed::<IntervalYearMonthType>(array),
        DataType::Interval(IntervalUnit::DayTime) => fixed::<IntervalDayTimeType>(array),
        DataType::Interval(IntervalUnit::MonthDayNano) => fixed::<IntervalMonthDayNanoType>(array),
        DataType::Time32(_) | DataType::Time64(_) => time(array)?,
        DataType::Timestamp(..) | DataType::Duration(_) => timestamp(array)?,
        _ => return None,
    })
}

fn fixed<T: ArrowPrimitiveType>(array: &dyn Array) -> Values<'_> {
    let bytes = array.as_primitive::<T>().values().inner().as_slice();
    Values::Fixed {
        bytes,
        width: size_of::<T::Native>(),
    }
}

fn wide<T: ArrowPrimitiveType>(array: &dyn Array) -> Values<'_> {
    let bytes = array.as_primitive::<T>().values().inner().as_slice();
    Values::Wide {
        bytes,
        width: size_of::<T::Native>(),
    }
}

fn time(array: &dyn Array) -> Option<Values<'_>> {
    use arrow_array::types::{
        Time32MillisecondType, Time32SecondType, Time64MicrosecondType, Time64NanosecondType,
    };
    Some(match array.data_type() {
        DataType::Time32(TimeUnit::Second) => fixed::<Time32SecondType>(array),
        DataType::Time32(TimeUnit::Millisecond) => fixed::<Time32MillisecondType>(array),
        DataType::Time64(TimeUnit::Microsecond) => fixed::<Time64MicrosecondType>(array),
        DataType::Time64(TimeUnit::Nanosecond) => fixed::<Time64NanosecondType>(array),
        _ => return None,
    })
}

fn timestamp(array: &dyn Array) -> Option<Values<'_>> {
    use arrow_array::types::{
        DurationMicrosecondType, DurationMillisecondType, DurationNanosecondType,
        DurationSecondType, TimestampMicrosecondType, TimestampMillisecondType,
        TimestampNanosecondType, TimestampSecondType,
    };
    Some(match array.data_type() {
        DataType::Timestamp(TimeUnit::Second, _) => fixed::<TimestampSecondType>(array),
        DataType::Timestamp(TimeUnit::Millisecond, _) => fixed::<TimestampMillisecondType>(array),
        DataType::Timestamp(TimeUnit::Microsecond, _) => fixed::<TimestampMicrosecondType>(array),
        DataType::Timestamp(TimeUnit::Nanosecond, _) => fixed::<TimestampNanosecondType>(array),
        DataType::Duration(TimeUnit::Second) => fixed::<DurationSecondType>(array),
        DataType::Duration(TimeUnit::Millisecond) => fixed::<DurationMillisecondType>(array),
        DataType::Duration(TimeUnit::Microsecond) => fixed::<DurationMicrosecondType>(array),
        DataType::Duration(TimeUnit::Nanosecond) => fixed::<DurationNanosecondType>(array),
        _ => return None,
    })
}

fn list(array: &dyn Array) -> Option<Values<'_>> {
    let (bounds, items): (Bounds<'_>, Cells<'_>) = match array.data_type() {
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            (
                Bounds::Small(list.value_offsets()),
                Cells::new(list.values().as_ref())?,
            )
        }
        DataType::LargeList(_) => {
            let list = array.as_list::<i64>();
            (
                Bounds::Large(list.value_offsets()),
                Cells::new(list.values().as_ref())?,
            )
        }
        DataType::ListView(_) => {
            let list = array.as_list_view::<i32>();
            let bounds = Bounds::View(list.value_offsets(), list.value_sizes());
            (bounds, Cells::new(list.values().as_ref())?)
        }
        DataType::LargeListView(_) => {
            let list = array.as_list_view::<i64>();
            let bounds = Bounds::LargeView(list.value_offsets(), list.value_sizes());
            (bounds, Cells::new(list.values().as_ref())?)
        }
        DataType::FixedSizeList(_, length) => {
            let list = array.as_fixed_size_list();
            (
                Bounds::Fixed(*length as usize),
                Cells::new(list.values().as_ref())?,
            )
        }
        DataType::Map(..) => {
            let map = array.as_map();
            (
                Bounds::Small(map.value_offsets()),
                Cells::new(map.entries())?,
            )
        }
        _ => return None,
    };
    Some(Values::List {
        bounds,
        items: Box::new(items),
    })
}
