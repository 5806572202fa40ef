//! Converts values to the numbers that profiles measure: the value itself, or its length.

use arrow_array::cast::AsArray;
use arrow_array::{
    Array, ArrowPrimitiveType, OffsetSizeTrait, PrimitiveArray, downcast_primitive_array,
};
use arrow_buffer::{IntervalDayTime, IntervalMonthDayNano, NullBuffer, i256};
use arrow_schema::DataType;
use half::f16;

/// A number of any width that converts to the nearest 64-bit float.
pub(super) trait Numeric: Copy {
    fn number(self) -> f64;
}

macro_rules! numeric {
    ($($kind:ty),*) => {
        $(impl Numeric for $kind {
            #[inline(always)]
            fn number(self) -> f64 {
                self as f64
            }
        })*
    };
}

numeric!(i8, i16, i32, i64, i128, u8, u16, u32, u64, f32, f64);

impl Numeric for f16 {
    fn number(self) -> f64 {
        self.to_f64()
    }
}

impl Numeric for i256 {
    fn number(self) -> f64 {
        let (low, high) = self.to_parts();
        // Two halves of 128 bits.
        high as f64 * 2f64.powi(128) + low as f64
    }
}

impl Numeric for IntervalDayTime {
    fn number(self) -> f64 {
        f64::NAN
    }
}

impl Numeric for IntervalMonthDayNano {
    fn number(self) -> f64 {
        f64::NAN
    }
}

/// Returns the value of one unit of a decimal.
pub(super) fn unit(kind: &DataType) -> f64 {
    match kind {
        DataType::Decimal32(_, scale)
        | DataType::Decimal64(_, scale)
        | DataType::Decimal128(_, scale)
        | DataType::Decimal256(_, scale) => 10f64.powi(-i32::from(*scale)),
        _ => 1.0,
    }
}

/// Appends the numbers or lengths of an array's values, without nulls. It appends nothing if the
/// type has neither.
pub(super) fn append_numbers(array: &dyn Array, out: &mut Vec<f64>) {
    if super::measured(array.data_type()).is_none() {
        return;
    }
    let nulls = array.nulls().filter(|nulls| nulls.null_count() > 0);
    downcast_primitive_array! {
        array => primitive(array, nulls, out),
        kind => match kind {
            DataType::Boolean => {
                let values = array.as_boolean().values();
                append(values.iter().map(|value| f64::from(u8::from(value))), nulls, out);
            }
            DataType::Utf8 => spans(array.as_string::<i32>().value_offsets(), nulls, out),
            DataType::LargeUtf8 => spans(array.as_string::<i64>().value_offsets(), nulls, out),
            DataType::Binary => spans(array.as_binary::<i32>().value_offsets(), nulls, out),
            DataType::LargeBinary => spans(array.as_binary::<i64>().value_offsets(), nulls, out),
            DataType::List(_) => spans(array.as_list::<i32>().value_offsets(), nulls, out),
            DataType::LargeList(_) => spans(array.as_list::<i64>().value_offsets(), nulls, out),
            DataType::Map(..) => spans(array.as_map().value_offsets(), nulls, out),
            DataType::ListView(_) => {
                let sizes = array.as_list_view::<i32>().value_sizes().iter();
                append(sizes.map(|size| f64::from(*size)), nulls, out);
            }
            DataType::LargeListView(_) => {
                let sizes = array.as_list_view::<i64>().value_sizes().iter();
                append(sizes.map(|size| *size as f64), nulls, out);
            }
            // The low half of a view is the length.
            DataType::Utf8View => {
                let views = array.as_string_view().views().iter();
                append(views.map(|view| f64::from(*view as u32)), nulls, out);
            }
            DataType::BinaryView => {
                let views = array.as_binary_view().views().iter();
                append(views.map(|view| f64::from(*view as u32)), nulls, out);
            }
            DataType::FixedSizeBinary(length) | DataType::FixedSizeList(_, length) => {
                let lengths = (0..array.len()).map(|_| f64::from(*length));
                append(lengths, nulls, out);
            }
            _ => {}
        }
    }
}

fn primitive<T: ArrowPrimitiveType>(
    array: &PrimitiveArray<T>,
    nulls: Option<&NullBuffer>,
    out: &mut Vec<f64>,
) where
    T::Native: Numeric,
{
    let values = array.values().iter();
    match unit(array.data_type()) {
        1.0 => append(values.map(|value| value.number()), nulls, out),
        unit => append(values.map(|value| value.number() * unit), nulls, out),
    }
}

fn spans<O: OffsetSizeTrait>(offsets: &[O], nulls: Option<&NullBuffer>, out: &mut Vec<f64>) {
    let lengths = offsets
        .windows(2)
        .map(|pair| (pair[1].as_usize() - pair[0].as_usize()) as f64);
    append(lengths, nulls, out);
}

fn append(numbers: impl Iterator<Item = f64>, nulls: Option<&NullBuffer>, out: &mut Vec<f64>) {
    match nulls {
        None => out.extend(numbers),
        Some(nulls) => {
            let valid = numbers.zip(nulls.iter()).filter(|(_, valid)| *valid);
            out.extend(valid.map(|(number, _)| number));
        }
    }
}
