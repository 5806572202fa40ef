//! The typed schema of a table's rows, and the position of each column in a row.
//!
//! A schema is stored once, in the manifest of a version; rows contain no types. Columns have four
//! classes ([`RowSlot`]): nothing, a bit, a fixed number of bytes, or a variable number of bytes.
//! 64-bit integers and wide decimals are variable. They are stored without their leading sign
//! bytes, because most are small.

use serde::{Deserialize, Serialize};

/// The unit of a time, timestamp or duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TimeUnit {
    Second,
    /// 10^-3 seconds.
    Millisecond,
    /// 10^-6 seconds.
    Microsecond,
    /// 10^-9 seconds.
    Nanosecond,
}

impl TimeUnit {
    /// Digits after the decimal point of a second: 0, 3, 6 or 9.
    pub fn digits(self) -> u32 {
        match self {
            TimeUnit::Second => 0,
            TimeUnit::Millisecond => 3,
            TimeUnit::Microsecond => 6,
            TimeUnit::Nanosecond => 9,
        }
    }

    /// Units in a second.
    pub fn per_second(self) -> i64 {
        10_i64.pow(self.digits())
    }
}

/// The type of a column or of a list's items.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Every value is null.
    Null,
    /// True or false.
    Bool,
    /// A signed integer of 8 bits.
    Int8,
    /// Of 16 bits.
    Int16,
    /// Of 32 bits.
    Int32,
    /// Of 64 bits.
    Int64,
    /// An unsigned integer of 8 bits.
    #[serde(rename = "uint8")]
    UInt8,
    /// Of 16 bits, unsigned.
    #[serde(rename = "uint16")]
    UInt16,
    /// Of 32 bits, unsigned.
    #[serde(rename = "uint32")]
    UInt32,
    /// Of 64 bits, unsigned.
    #[serde(rename = "uint64")]
    UInt64,
    /// A float of 16 bits.
    Float16,
    /// Of 32 bits.
    Float32,
    /// Of 64 bits.
    Float64,
    /// An integer of `bits` (32, 64, 128 or 256) times 10^-scale; the scale may be negative.
    Decimal { precision: u8, scale: i8, bits: u16 },
    /// Days since 1970-01-01, 32 bits.
    Date32,
    /// Milliseconds since 1970-01-01, 64 bits.
    Date64,
    /// Time of day; seconds and milliseconds in 32 bits, the finer units in 64.
    Time { unit: TimeUnit },
    /// Units since 1970-01-01T00:00:00, in UTC if there is a zone (kept to restore the type), else
    /// in no stated zone.
    Timestamp {
        unit: TimeUnit,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        zone: Option<String>,
    },
    /// A number of units.
    Duration { unit: TimeUnit },
    /// Months.
    IntervalMonths,
    /// Days and milliseconds.
    IntervalDayTime,
    /// Months, days and nanoseconds.
    IntervalMonthDayNano,
    /// UTF-8.
    Text,
    /// Bytes.
    Binary,
    /// A fixed number of bytes.
    FixedBinary { width: u32 },
    /// Values of one kind.
    List {
        item: Box<Column>,
        /// The length of every list, for a fixed-size list.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        length: Option<u32>,
    },
    /// Named fields.
    Struct { fields: Schema },
    /// A list of rows of two columns, the key and the value.
    Map { entries: Schema, sorted: bool },
}

/// The layout of a value of a kind in a row or list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowSlot {
    Nothing,
    Bit,
    Fixed(usize),
    Variable,
}

impl Kind {
    pub(super) fn slot(&self) -> RowSlot {
        match self {
            Kind::Null => RowSlot::Nothing,
            Kind::Bool => RowSlot::Bit,
            Kind::Int8 | Kind::UInt8 => RowSlot::Fixed(1),
            Kind::Int16 | Kind::UInt16 | Kind::Float16 => RowSlot::Fixed(2),
            Kind::Int32 | Kind::UInt32 | Kind::Float32 => RowSlot::Fixed(4),
            Kind::Decimal { bits: 32, .. } => RowSlot::Fixed(4),
            Kind::Date32 | Kind::IntervalMonths => RowSlot::Fixed(4),
            Kind::Time {
                unit: TimeUnit::Second | TimeUnit::Millisecond,
            } => RowSlot::Fixed(4),
            Kind::Float64 | Kind::Date64 | Kind::Time { .. } => RowSlot::Fixed(8),
            Kind::Timestamp { .. } | Kind::Duration { .. } => RowSlot::Fixed(8),
            Kind::IntervalDayTime => RowSlot::Fixed(8),
            Kind::IntervalMonthDayNano => RowSlot::Fixed(16),
            Kind::FixedBinary { width } => RowSlot::Fixed(*width as usize),
            Kind::Int64 | Kind::UInt64 | Kind::Decimal { .. } => RowSlot::Variable,
            Kind::Text | Kind::Binary => RowSlot::Variable,
            Kind::List { .. } | Kind::Struct { .. } | Kind::Map { .. } => RowSlot::Variable,
        }
    }

    /// Returns whether an integer type is signed, and its bits; `None` for other types.
    pub fn integer(&self) -> Option<(bool, u32)> {
        Some(match self {
            Kind::Int8 => (true, 8),
            Kind::Int16 => (true, 16),
            Kind::Int32 => (true, 32),
            Kind::Int64 => (true, 64),
            Kind::UInt8 => (false, 8),
            Kind::UInt16 => (false, 16),
            Kind::UInt32 => (false, 32),
            Kind::UInt64 => (false, 64),
            _ => return None,
        })
    }

    pub fn is_float(&self) -> bool {
        matches!(self, Kind::Float16 | Kind::Float32 | Kind::Float64)
    }

    /// Returns whether it is an integer, float or decimal.
    pub fn is_number(&self) -> bool {
        self.integer().is_some() || self.is_float() || matches!(self, Kind::Decimal { .. })
    }

    /// Returns whether it is a list, struct or map, which single texts show as JSON.
    pub fn is_nested(&self) -> bool {
        matches!(
            self,
            Kind::List { .. } | Kind::Struct { .. } | Kind::Map { .. }
        )
    }
}

/// A named, typed column of a row, field of a struct or item of a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    /// Unique within its row or struct.
    pub name: String,
    /// The type of its values.
    pub kind: Kind,
    /// Whether values may be null.
    pub nullable: bool,
}

impl Column {
    /// Returns a column of that name and type.
    pub fn new(name: impl Into<String>, kind: Kind, nullable: bool) -> Column {
        Column {
            name: name.into(),
            kind,
            nullable,
        }
    }
}

/// The position of a column in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The "not null" bit; `None` if the column is never null.
    pub valid_bit: Option<u32>,
    pub at: At,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum At {
    Nothing,
    /// A bit of the head.
    Bit(u32),
    /// Bytes of the head.
    Fixed {
        start: usize,
        width: usize,
    },
    /// The n-th variable field.
    Variable(usize),
}

/// The columns of a row, in order, with their computed layout.
///
/// Serialized as the list of columns; two schemas are equal if their columns are.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(from = "Vec<Column>", into = "Vec<Column>")]
pub struct Schema {
    columns: Vec<Column>,
    places: Vec<Place>,
    /// Bytes of bits and fixed slots.
    head_bytes: usize,
    variables: usize,
}

impl Schema {
    pub fn new(columns: Vec<Column>) -> Schema {
        let slots: Vec<RowSlot> = columns.iter().map(|column| column.kind.slot()).collect();
        let variables = slots
            .iter()
            .filter(|slot| **slot == RowSlot::Variable)
            .count();
        let mut bits: u32 = if variables > 1 { 2 } else { 0 };
        let mut places: Vec<Place> = Vec::with_capacity(columns.len());
        for (column, slot) in columns.iter().zip(&slots) {
            let counted = column.nullable && *slot != RowSlot::Nothing;
            let valid_bit = counted.then_some(bits);
            bits += u32::from(counted);
            places.push(Place {
                valid_bit,
                at: At::Nothing,
            });
        }
        for (place, slot) in places.iter_mut().zip(&slots) {
            if *slot == RowSlot::Bit {
                place.at = At::Bit(bits);
                bits += 1;
            }
        }
        let mut head_bytes = bits.div_ceil(8) as usize;
        let mut variable = 0;
        for (place, slot) in places.iter_mut().zip(&slots) {
            match slot {
                RowSlot::Fixed(width) => {
                    place.at = At::Fixed {
                        start: head_bytes,
                        width: *width,
                    };
                    head_bytes += width;
                }
                RowSlot::Variable => {
                    place.at = At::Variable(variable);
                    variable += 1;
                }
                RowSlot::Nothing | RowSlot::Bit => {}
            }
        }
        Schema {
            columns,
            places,
            head_bytes,
            variables,
        }
    }

    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    pub fn len(&self) -> usize {
        self.columns.len()
    }

    pub fn is_empty(&self) -> bool {
        self.columns.is_empty()
    }

    /// Returns the position of the first column of that name.
    pub fn column_index(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.name == name)
    }

    pub(super) fn place(&self, column: usize) -> Option<Place> {
        self.places.get(column).copied()
    }

    pub(super) fn head_bytes(&self) -> usize {
        self.head_bytes
    }

    pub(super) fn variables(&self) -> usize {
        self.variables
    }
}

impl PartialEq for Schema {
    fn eq(&self, other: &Schema) -> bool {
        self.columns == other.columns
    }
}

impl Eq for Schema {}

impl From<Vec<Column>> for Schema {
    fn from(columns: Vec<Column>) -> Schema {
        Schema::new(columns)
    }
}

impl From<Schema> for Vec<Column> {
    fn from(schema: Schema) -> Vec<Column> {
        schema.columns
    }
}
