//! Packed rows of typed columns; the schema is stored separately.
//!
//! ## Row
//!
//! ```text
//! row   = head, ends, data
//! head  = bits, fixed slots
//! bits  = [2: width of an end, only with two or more variable columns] [1 a nullable column: not null] [1 a boolean]
//! ends  = where each variable column but the last ends in data; 1, 2 or 4 bytes each (codes 0, 1, 2)
//! data  = the variable columns' bytes, in order; the last ends where the row does
//! ```
//!
//! Bits fill bytes from the lowest, and each group is in the order of the columns. All integers are
//! little-endian. A null uses its slot (zeroes) if fixed and no bytes if variable.
//!
//! ## List
//!
//! ```text
//! list  = nothing when empty, else: flags, count, [not null: a bit an item], items
//! flags = 2 bits: width of an end; then a bit: not-null bits follow
//! count = LEB128
//! items = a bit each | fixed slots | ends (but the last's), data
//! ```
//!
//! Lists whose items take no bytes (nulls, binaries of width 0) always have the not-null bits. So a
//! count never exceeds eight times the number of bytes.
//!
//! ## Values
//!
//! 64-bit integers are variable: little-endian without the leading bytes that repeat the sign (for
//! unsigned, without leading zeroes), so zero takes no byte. Decimals of 64 bits and more likewise.
//! A struct is a row, a map a list of rows (key, value). Floats, dates, times, timestamps,
//! durations and narrower integers are fixed. A month-day-nano interval is months (4 bytes), days
//! (4), nanoseconds (8); a day-time interval days (4), milliseconds (4).
//!
//! A reader checks every length against the available bytes. Any bytes result in values or a
//! [`RowError`], never a panic.

mod base64;
mod datum;
mod decimal;
mod given;
mod json;
mod kind_name;
mod list;
mod list_writer;
mod pack;
mod schema;
mod text;
mod time;
mod view;
mod writer;

#[cfg(test)]
mod tests;

pub use base64::{read_base64, read_binary_text, write_base64, write_binary_text};
pub use datum::{Datum, f16_to_f32};
pub use decimal::{write_decimal, write_decimal256};
pub use json::{write_bytes as write_json_bytes, write_string as write_json_string};
pub use list::ListView;
pub use list_writer::ListWriter;
pub use schema::{Column, Kind, Schema, TimeUnit};
pub(crate) use text::write_not_finite;
pub use time::{civil_from_days, write_date, write_time, write_timestamp};
pub use view::RowView;
pub use writer::RowWriter;

/// The reason that bytes are not a row of the schema, or values do not fit one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RowError {
    #[error(
        "a row of {got} bytes is shorter than its schema's {need}: it was written with another schema"
    )]
    Cut { need: usize, got: usize },
    #[error("a value's field ends at byte {end}, outside its row or list of {bytes} bytes")]
    Field { end: usize, bytes: usize },
    #[error("a list's header does not fit its {bytes} bytes")]
    List { bytes: usize },
    #[error("a value of {got} bytes where its type has at most {limit}")]
    Width { got: usize, limit: usize },
    #[error("a text value is not UTF-8")]
    NotUtf8,
    #[error("a row or list of {bytes} bytes is larger than the 4 GiB that one value can hold")]
    TooLarge { bytes: usize },
    #[error("a row's column {column} is of another type than the value given")]
    Type { column: usize },
}
