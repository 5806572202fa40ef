//! A packed list, read in place.

use super::datum::Datum;
use super::pack::{Fields, bit, read_leb128};
use super::schema::{Kind, RowSlot, Schema};
use super::{RowError, RowView};

/// The type of a list's items: a kind, or the rows of a map.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Item<'a> {
    Kind(&'a Kind),
    Row(&'a Schema),
}

/// A list, borrowed from its bytes. Access to any item takes constant time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ListView<'a> {
    item: Item<'a>,
    slot: RowSlot,
    bytes: &'a [u8],
    count: usize,
    valid: Option<&'a [u8]>,
    /// Bits or fixed slots.
    slots: &'a [u8],
    fields: Fields<'a>,
}

impl<'a> ListView<'a> {
    /// Reads a list whose items have the kind `item`. Checks the parts of fixed size; items of
    /// variable size are checked when they are read.
    pub fn new(item: &'a Kind, bytes: &'a [u8]) -> Result<ListView<'a>, RowError> {
        ListView::parse(Item::Kind(item), item.slot(), bytes)
    }

    /// Returns the kind of the items, unless they are entries of a map.
    pub(super) fn item_kind(&self) -> Option<&'a Kind> {
        match self.item {
            Item::Kind(kind) => Some(kind),
            Item::Row(_) => None,
        }
    }

    /// Reads a list whose items are rows: the entries of a map.
    pub fn rows(entries: &'a Schema, bytes: &'a [u8]) -> Result<ListView<'a>, RowError> {
        ListView::parse(Item::Row(entries), RowSlot::Variable, bytes)
    }

    fn parse(item: Item<'a>, slot: RowSlot, bytes: &'a [u8]) -> Result<ListView<'a>, RowError> {
        let bad = RowError::List { bytes: bytes.len() };
        let Some((flags, rest)) = bytes.split_first() else {
            let fields = Fields::new(&[], 0, 0)?;
            return Ok(ListView {
                item,
                slot,
                bytes,
                count: 0,
                valid: None,
                slots: &[],
                fields,
            });
        };
        let (count, mut rest) = read_leb128(rest).ok_or(bad.clone())?;
        let mut valid = None;
        if flags & 4 != 0 {
            let (bits, items) = rest
                .split_at_checked(count.div_ceil(8))
                .ok_or(bad.clone())?;
            valid = Some(bits);
            rest = items;
        }
        let needed = match slot {
            RowSlot::Nothing | RowSlot::Fixed(0) if valid.is_some() => Some(0),
            RowSlot::Nothing | RowSlot::Fixed(0) => None,
            RowSlot::Bit => Some(count.div_ceil(8)),
            RowSlot::Fixed(width) => count.checked_mul(width),
            RowSlot::Variable => Some(0),
        };
        let slots = needed.and_then(|needed| rest.get(..needed)).ok_or(bad)?;
        let variables = if slot == RowSlot::Variable { count } else { 0 };
        let fields = Fields::new(rest, flags & 3, variables)?;
        Ok(ListView {
            item,
            slot,
            bytes,
            count,
            valid,
            slots,
            fields,
        })
    }

    /// Returns the packed list.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the schema of the entries if the list is a map's.
    pub(super) fn entry_schema(&self) -> Option<&'a Schema> {
        match self.item {
            Item::Row(schema) => Some(schema),
            Item::Kind(_) => None,
        }
    }

    /// Returns the number of items, nulls included.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns whether the list has no items.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns whether an item is null; an item beyond the end is null.
    pub fn is_null(&self, index: usize) -> bool {
        index >= self.count
            || self.slot == RowSlot::Nothing
            || self.valid.is_some_and(|valid| !bit(valid, index))
    }

    /// Returns the item at `index`; null beyond the end.
    pub fn datum(&self, index: usize) -> Result<Datum<'a>, RowError> {
        if self.is_null(index) {
            return Ok(Datum::Null);
        }
        let kind = match self.item {
            Item::Row(schema) => {
                return Ok(Datum::Row(RowView::new(schema, self.fields.get(index)?)?));
            }
            Item::Kind(kind) => kind,
        };
        match self.slot {
            RowSlot::Nothing => Ok(Datum::Null),
            RowSlot::Bit => Ok(Datum::Bool(bit(self.slots, index))),
            RowSlot::Fixed(width) => {
                Datum::from_fixed(kind, &self.slots[index * width..(index + 1) * width])
            }
            RowSlot::Variable => Datum::from_variable(kind, self.fields.get(index)?),
        }
    }

    /// Returns the items, in order.
    pub fn items(&self) -> impl Iterator<Item = Result<Datum<'a>, RowError>> + '_ {
        (0..self.count).map(|index| self.datum(index))
    }

    /// Appends an item as text, as [`RowView::text`] does; if it is null, returns `false` and
    /// appends nothing.
    pub fn text(&self, index: usize, out: &mut Vec<u8>) -> Result<bool, RowError> {
        self.datum(index)?.write_text(out)
    }

    /// Appends the list as a JSON array.
    pub fn json(&self, out: &mut Vec<u8>) -> Result<(), RowError> {
        Datum::List(*self).write_json(out)
    }
}
