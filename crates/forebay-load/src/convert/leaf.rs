//! Converts values that are not nested.

use std::sync::Arc;

use arrow_array::builder::{
    BinaryBuilder, BooleanBuilder, FixedSizeBinaryBuilder, LargeBinaryBuilder, LargeStringBuilder,
    PrimitiveBuilder, StringBuilder,
};
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Date64Type, Decimal32Type, Decimal64Type, Decimal128Type,
    Decimal256Type, DecimalType, DurationMicrosecondType, DurationMillisecondType,
    DurationNanosecondType, DurationSecondType, Float16Type, Float32Type, Float64Type, Int8Type,
    Int16Type, Int32Type, Int64Type, IntervalDayTime, IntervalDayTimeType, IntervalMonthDayNano,
    IntervalMonthDayNanoType, IntervalYearMonthType, Time32MillisecondType, Time32SecondType,
    Time64MicrosecondType, Time64NanosecondType, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef};
use arrow_buffer::i256;
use arrow_schema::{DataType, IntervalUnit, TimeUnit};
use forebay_run::row::{Datum, Kind};

use super::cells::Cells;
use super::loss::{Fit, Loss};
use super::scalar::scalar;
use super::time::DAY_NS;
use super::value;

/// A value that did not fit: its index in the array, and its text.
pub(super) type Misfit = (usize, String);

/// A converter of arrays of one type to another.
#[derive(Debug, Clone)]
pub(super) struct Leaf {
    pub from: Kind,
    pub to: DataType,
    pub loss: Loss,
}

/// The account of an array's conversion.
#[derive(Debug, Default)]
pub(super) struct Account {
    pub misfits: Vec<Misfit>,
    /// The number of values that the conversion changed, as its rule allows.
    pub changed: u64,
}

impl Account {
    /// Returns the converted value; null if it did not fit.
    #[inline]
    fn settle<T>(&mut self, fit: Fit<T>, loss: Loss, index: usize, datum: &Datum<'_>) -> Option<T> {
        match fit {
            Fit::Exact(value) => Some(value),
            Fit::Changed(value) => {
                self.changed += 1;
                Some(value)
            }
            Fit::Misfit => {
                if loss == Loss::Null {
                    self.changed += 1;
                } else {
                    self.misfits.push((index, value::shown(datum)));
                }
                None
            }
        }
    }
}

/// An array's values, with the account of its conversion.
struct LeafValues<'a> {
    leaf: &'a Leaf,
    cells: &'a Cells<'a>,
    rows: usize,
    account: &'a mut Account,
}

impl Leaf {
    /// Returns the array in the new type. Values that do not fit are null, whether or not the rule
    /// allows that.
    pub fn convert(&self, array: &dyn Array, account: &mut Account) -> Option<ArrayRef> {
        let cells = Cells::new(array)?;
        let rows = array.len();
        let mut values = LeafValues {
            leaf: self,
            cells: &cells,
            rows,
            account,
        };
        values.all()
    }
}

impl LeafValues<'_> {
    fn each<T>(&mut self, fit: impl Fn(&Datum<'_>) -> Fit<T>, mut put: impl FnMut(Option<T>)) {
        for row in 0..self.rows {
            match scalar(self.cells, &self.leaf.from, row) {
                Ok(Datum::Null) => put(None),
                Ok(datum) => {
                    let fit = fit(&datum);
                    put(self.account.settle(fit, self.leaf.loss, row, &datum));
                }
                Err(error) => {
                    self.account.misfits.push((row, error.to_string()));
                    put(None);
                }
            }
        }
    }

    fn primitive<T: ArrowPrimitiveType>(
        &mut self,
        fit: impl Fn(&Datum<'_>) -> Fit<T::Native>,
    ) -> ArrayRef {
        let data_type = self.leaf.to.clone();
        let mut builder = PrimitiveBuilder::<T>::with_capacity(self.rows).with_data_type(data_type);
        self.each(fit, |value| builder.append_option(value));
        Arc::new(builder.finish())
    }

    fn integers<T: ArrowPrimitiveType>(&mut self) -> ArrayRef
    where
        T::Native: TryFrom<i128>,
    {
        let loss = self.leaf.loss;
        self.primitive::<T>(|datum| {
            value::whole(datum, loss).and_then(|value| T::Native::try_from(value).ok())
        })
    }

    fn decimals<T: DecimalType + ArrowPrimitiveType>(
        &mut self,
        precision: u8,
        scale: i8,
        narrow: impl Fn(i256) -> Option<T::Native>,
    ) -> ArrayRef {
        let loss = self.leaf.loss;
        let limit = i256::from_i128(10).checked_pow(u32::from(precision));
        let within = |value: i256| {
            let below = limit.is_none_or(|limit| value.wrapping_abs() < limit);
            below.then_some(value)
        };
        self.primitive::<T>(|datum| {
            let scaled = value::scaled(datum, i32::from(scale), loss);
            scaled.and_then(within).and_then(&narrow)
        })
    }

    /// Converts times and durations, in units of `unit_ns`.
    fn times<T: ArrowPrimitiveType>(
        &mut self,
        unit_ns: i64,
        nanoseconds: impl Fn(&Datum<'_>, Loss) -> Fit<i128>,
    ) -> ArrayRef
    where
        T::Native: TryFrom<i128>,
    {
        let loss = self.leaf.loss;
        self.primitive::<T>(|datum| {
            let counted = |value| super::time::counted(value, unit_ns, loss);
            let value = nanoseconds(datum, loss).then(counted);
            value.and_then(|value| T::Native::try_from(value).ok())
        })
    }

    fn all(&mut self) -> Option<ArrayRef> {
        use value::{float16, float32, float64, moment_ns};
        let loss = self.leaf.loss;
        Some(match self.leaf.to.clone() {
            DataType::Int8 => self.integers::<Int8Type>(),
            DataType::Int16 => self.integers::<Int16Type>(),
            DataType::Int32 => self.integers::<Int32Type>(),
            DataType::Int64 => self.integers::<Int64Type>(),
            DataType::UInt8 => self.integers::<UInt8Type>(),
            DataType::UInt16 => self.integers::<UInt16Type>(),
            DataType::UInt32 => self.integers::<UInt32Type>(),
            DataType::UInt64 => self.integers::<UInt64Type>(),
            DataType::Float16 => self.primitive::<Float16Type>(|datum| float16(datum, loss)),
            DataType::Float32 => self.primitive::<Float32Type>(|datum| float32(datum, loss)),
            DataType::Float64 => self.primitive::<Float64Type>(|datum| float64(datum, loss)),
            DataType::Decimal32(precision, scale) => {
                let narrow = |value: i256| i32::try_from(value.to_i128()?).ok();
                self.decimals::<Decimal32Type>(precision, scale, narrow)
            }
            DataType::Decimal64(precision, scale) => {
                let narrow = |value: i256| i64::try_from(value.to_i128()?).ok();
                self.decimals::<Decimal64Type>(precision, scale, narrow)
            }
            DataType::Decimal128(precision, scale) => {
                self.decimals::<Decimal128Type>(precision, scale, i256::to_i128)
            }
            DataType::Decimal256(precision, scale) => {
                self.decimals::<Decimal256Type>(precision, scale, Some)
            }
            DataType::Date32 => {
                self.times::<Date32Type>(DAY_NS, |datum, loss| moment_ns(datum, false, loss))
            }
            DataType::Date64 => {
                // A date is midnight, even if its milliseconds say more.
                self.times::<Date64Type>(1_000_000, |datum, loss| {
                    let day = |ns| super::time::counted(ns, DAY_NS, loss);
                    let days = moment_ns(datum, false, loss).then(day);
                    days.and_then(|days| days.checked_mul(i128::from(DAY_NS)))
                })
            }
            DataType::Interval(unit) => self.intervals(unit),
            DataType::Boolean => self.booleans(),
            DataType::Utf8
            | DataType::LargeUtf8
            | DataType::Binary
            | DataType::LargeBinary
            | DataType::FixedSizeBinary(_) => return self.bytes(),
            DataType::Timestamp(unit, ref zone) => self.timestamps(unit, zone.is_some()),
            DataType::Time32(unit) | DataType::Time64(unit) => self.clock(unit),
            DataType::Duration(unit) => self.durations(unit),
            _ => return None,
        })
    }

    fn timestamps(&mut self, unit: TimeUnit, zoned: bool) -> ArrayRef {
        let unit_ns = super::time::unit_ns(unit);
        let read = move |datum: &Datum<'_>, loss| value::moment_ns(datum, zoned, loss);
        match unit {
            TimeUnit::Second => self.times::<TimestampSecondType>(unit_ns, read),
            TimeUnit::Millisecond => self.times::<TimestampMillisecondType>(unit_ns, read),
            TimeUnit::Microsecond => self.times::<TimestampMicrosecondType>(unit_ns, read),
            TimeUnit::Nanosecond => self.times::<TimestampNanosecondType>(unit_ns, read),
        }
    }

    fn clock(&mut self, unit: TimeUnit) -> ArrayRef {
        let unit_ns = super::time::unit_ns(unit);
        // A rounded value stays within its day.
        let read = |datum: &Datum<'_>, loss| {
            let nanoseconds = value::time_ns(datum);
            nanoseconds.then(|ns| match super::time::counted(ns, unit_ns, loss) {
                Fit::Changed(units) if units * i128::from(unit_ns) >= i128::from(DAY_NS) => {
                    Fit::Misfit
                }
                _ => Fit::Exact(ns),
            })
        };
        match unit {
            TimeUnit::Second => self.times::<Time32SecondType>(unit_ns, read),
            TimeUnit::Millisecond => self.times::<Time32MillisecondType>(unit_ns, read),
            TimeUnit::Microsecond => self.times::<Time64MicrosecondType>(unit_ns, read),
            TimeUnit::Nanosecond => self.times::<Time64NanosecondType>(unit_ns, read),
        }
    }

    fn durations(&mut self, unit: TimeUnit) -> ArrayRef {
        let unit_ns = super::time::unit_ns(unit);
        let read = |datum: &Datum<'_>, _| value::duration_ns(datum);
        match unit {
            TimeUnit::Second => self.times::<DurationSecondType>(unit_ns, read),
            TimeUnit::Millisecond => self.times::<DurationMillisecondType>(unit_ns, read),
            TimeUnit::Microsecond => self.times::<DurationMicrosecondType>(unit_ns, read),
            TimeUnit::Nanosecond => self.times::<DurationNanosecondType>(unit_ns, read),
        }
    }

    fn intervals(&mut self, unit: IntervalUnit) -> ArrayRef {
        match unit {
            IntervalUnit::YearMonth => self.primitive::<IntervalYearMonthType>(|datum| {
                Fit::of(value::span(datum).and_then(|(months, days, ns)| {
                    let only = days == 0 && ns == 0;
                    i32::try_from(months).ok().filter(|_| only)
                }))
            }),
            IntervalUnit::DayTime => self.primitive::<IntervalDayTimeType>(|datum| {
                Fit::of(value::span(datum).and_then(|(months, days, ns)| {
                    let only = months == 0 && ns % 1_000_000 == 0;
                    let milliseconds = i32::try_from(ns / 1_000_000).ok()?;
                    let days = i32::try_from(days).ok()?;
                    only.then(|| IntervalDayTime::new(days, milliseconds))
                }))
            }),
            IntervalUnit::MonthDayNano => self.primitive::<IntervalMonthDayNanoType>(|datum| {
                Fit::of(value::span(datum).and_then(|(months, days, ns)| {
                    Some(IntervalMonthDayNano::new(
                        months.try_into().ok()?,
                        days.try_into().ok()?,
                        ns.try_into().ok()?,
                    ))
                }))
            }),
        }
    }

    fn booleans(&mut self) -> ArrayRef {
        let mut builder = BooleanBuilder::with_capacity(self.rows);
        self.each(
            |datum| Fit::of(value::truth(datum)),
            |value| builder.append_option(value),
        );
        Arc::new(builder.finish())
    }

    /// Converts text and binary.
    fn bytes(&mut self) -> Option<ArrayRef> {
        let fixed = |width: i32| {
            move |datum: &Datum<'_>| {
                Fit::of(value::bytes(datum))
                    .and_then(|bytes| (usize::try_from(width) == Ok(bytes.len())).then_some(bytes))
            }
        };
        let text = |datum: &Datum<'_>| Fit::of(value::text(datum));
        let binary = |datum: &Datum<'_>| Fit::of(value::bytes(datum));
        Some(match self.leaf.to {
            DataType::Utf8 => {
                let mut builder = StringBuilder::new();
                self.each(text, |value| builder.append_option(value));
                Arc::new(builder.finish())
            }
            DataType::LargeUtf8 => {
                let mut builder = LargeStringBuilder::new();
                self.each(text, |value| builder.append_option(value));
                Arc::new(builder.finish())
            }
            DataType::Binary => {
                let mut builder = BinaryBuilder::new();
                self.each(binary, |value| builder.append_option(value));
                Arc::new(builder.finish())
            }
            DataType::LargeBinary => {
                let mut builder = LargeBinaryBuilder::new();
                self.each(binary, |value| builder.append_option(value));
                Arc::new(builder.finish())
            }
            DataType::FixedSizeBinary(width) => {
                let mut builder = FixedSizeBinaryBuilder::new(width);
                let mut sound = true;
                self.each(fixed(width), |value| match value {
                    Some(value) => sound &= builder.append_value(value).is_ok(),
                    None => builder.append_null(),
                });
                if !sound {
                    return None;
                }
                Arc::new(builder.finish())
            }
            _ => return None,
        })
    }
}
