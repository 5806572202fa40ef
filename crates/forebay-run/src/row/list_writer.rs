//! Packs lists, one after another, in reused buffers.

#[cfg(doc)]
use super::ListView;
use super::RowError;
use super::datum::Datum;
use super::pack::{
    push_ends, push_leb128, push_signed, push_unsigned, push_wide, set_bit, width_code,
};
use super::schema::{Kind, RowSlot};

/// A writer of lists of items of one kind: `begin`, push each item in order, `finish`.
///
/// As with rows, a caller must not push an item by a method for another class of type.
#[derive(Debug, Clone)]
pub struct ListWriter {
    slot: RowSlot,
    count: usize,
    nulls: usize,
    /// One bit per item: not null.
    valid: Vec<u8>,
    /// Booleans' bits, fixed slots or variable data.
    data: Vec<u8>,
    ends: Vec<usize>,
}

impl ListWriter {
    /// `item` is the kind of the lists' items.
    pub fn new(item: &Kind) -> ListWriter {
        ListWriter {
            slot: item.slot(),
            count: 0,
            nulls: 0,
            valid: Vec::new(),
            data: Vec::new(),
            ends: Vec::new(),
        }
    }

    /// Starts an empty list.
    #[inline]
    pub fn begin(&mut self) {
        self.count = 0;
        self.nulls = 0;
        self.valid.clear();
        self.data.clear();
        self.ends.clear();
    }

    /// Returns the number of items so far.
    pub fn len(&self) -> usize {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    #[inline]
    pub fn null(&mut self) {
        self.nulls += 1;
        self.count(false);
        match self.slot {
            RowSlot::Nothing => {}
            RowSlot::Bit => self.grow_bits(),
            RowSlot::Fixed(width) => self.data.resize(self.data.len() + width, 0),
            RowSlot::Variable => self.ends.push(self.data.len()),
        }
    }

    #[inline]
    pub fn bit(&mut self, value: bool) {
        debug_assert_eq!(self.slot, RowSlot::Bit);
        let index = self.count;
        self.count(true);
        self.grow_bits();
        if value {
            set_bit(&mut self.data, index);
        }
    }

    /// Pushes an item of fixed width; `value` is little-endian and exactly as wide.
    #[inline]
    pub fn fixed(&mut self, value: &[u8]) {
        debug_assert_eq!(self.slot, RowSlot::Fixed(value.len()));
        self.count(true);
        self.data.extend_from_slice(value);
    }

    /// Pushes items of fixed width, none null, concatenated in `values`, as the whole list.
    pub fn fixed_run(&mut self, values: &[u8]) {
        let RowSlot::Fixed(width @ 1..) = self.slot else {
            debug_assert!(values.is_empty(), "a run needs items of a fixed width");
            return;
        };
        debug_assert!(self.count == 0 && values.len().is_multiple_of(width));
        self.count = values.len() / width;
        self.valid.resize(self.count.div_ceil(8), 0xff);
        if let (Some(last), rest @ 1..) = (self.valid.last_mut(), self.count % 8) {
            *last = 0xff >> (8 - rest);
        }
        self.data.extend_from_slice(values);
    }

    #[inline]
    pub fn signed(&mut self, value: i64) {
        self.variable(|data| push_signed(data, value));
    }

    #[inline]
    pub fn unsigned(&mut self, value: u64) {
        self.variable(|data| push_unsigned(data, value));
    }

    /// Pushes a decimal of 64 bits or more from little-endian two's complement.
    #[inline]
    pub fn wide(&mut self, value: &[u8]) {
        self.variable(|data| push_wide(data, value));
    }

    /// Pushes text, binary of variable size, or a packed list, struct or map.
    #[inline]
    pub fn bytes(&mut self, value: &[u8]) {
        self.variable(|data| data.extend_from_slice(value));
    }

    /// Pushes an item of variable size: the bytes that `write` appends.
    #[inline]
    pub fn variable<T>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        debug_assert_eq!(self.slot, RowSlot::Variable);
        self.count(true);
        let written = write(&mut self.data);
        self.ends.push(self.data.len());
        written
    }

    /// Pushes a value of the items' kind, as [`ListView::datum`] returns it.
    pub fn datum(&mut self, kind: &Kind, value: &Datum<'_>) -> Result<(), RowError> {
        match (kind, value) {
            (_, Datum::Null) => self.null(),
            (Kind::Bool, Datum::Bool(value)) => self.bit(*value),
            (Kind::FixedBinary { width }, Datum::Bytes(value))
                if *width as usize == value.len() =>
            {
                self.fixed(value);
            }
            _ if self.slot == RowSlot::Variable && kind.slot() == RowSlot::Variable => {
                let column = self.count;
                self.variable(|data| value.push_variable(kind, data))
                    .ok_or(RowError::Type { column })?;
            }
            _ => {
                let (bytes, width) = value
                    .fixed_bytes(kind)
                    .filter(|(_, width)| self.slot == RowSlot::Fixed(*width))
                    .ok_or(RowError::Type { column: self.count })?;
                self.fixed(&bytes[..width]);
            }
        }
        Ok(())
    }

    /// Appends the list to `out`. Fails, appending nothing, if it is too large for its ends.
    pub fn finish(&mut self, out: &mut Vec<u8>) -> Result<(), RowError> {
        if self.count == 0 {
            return Ok(());
        }
        let stored = self.ends.len().saturating_sub(1);
        let last = if stored > 0 { self.ends[stored - 1] } else { 0 };
        let code = width_code(last).ok_or(RowError::TooLarge {
            bytes: self.data.len(),
        })?;
        let no_bytes = matches!(self.slot, RowSlot::Nothing | RowSlot::Fixed(0));
        let with_valid = self.nulls > 0 || no_bytes;
        out.push(code | u8::from(with_valid) << 2);
        push_leb128(out, self.count);
        if with_valid {
            out.extend_from_slice(&self.valid);
        }
        push_ends(out, code, &self.ends[..stored]);
        out.extend_from_slice(&self.data);
        Ok(())
    }

    #[inline]
    fn count(&mut self, valid: bool) {
        if self.count.is_multiple_of(8) {
            self.valid.push(0);
        }
        if valid {
            set_bit(&mut self.valid, self.count);
        }
        self.count += 1;
    }

    /// Makes room for the bit of the item just counted.
    #[inline]
    fn grow_bits(&mut self) {
        self.data.resize(self.count.div_ceil(8), 0);
    }
}
