//! A packed list, read in place.

use super::datum::Datum;
use super::pack::{Fields, bit, read_leb128};
use super::schema::{Kind, RowSlot, Schema};
use super::{RowError, RowView};

/// What the items of a list are: of a kind, or the rows of a map.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Item<'a> {
    Kind(&'a Kind),
    Row(&'a Schema),
}

/// A list, borrowed from its bytes. Any item is reached in constant time.
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
    /// `item` is the kind of the items. Checks the parts of fixed size; the items of variable size
    /// are checked as they are read.
    pub fn new(item: &'a Kind, bytes: &'a [u8]) -> Result<ListView<'a>, RowError> {
        ListView::parse(Item::Kind(item), item.slot(), bytes)
    }

    /// The kind of the items, where they are no entries of a map.
    pub(super) fn item_kind(&self) -> Option<&'a Kind> {
        match self.item {
            Item::Kind(kind) => Some(kind),
            Item::Row(_) => None,
        }
    }

    /// A list whose items are rows: the entries of a map.
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

    /// The packed list.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The schema of the entries when the list is a map's.
    pub(super) fn entry_schema(&self) -> Option<&'a Schema> {
        match self.item {
            Item::Row(schema) => Some(schema),
            Item::Kind(_) => None,
        }
    }

    /// The number of items, nulls among them.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether an item is null; one beyond the end is.
    pub fn is_null(&self, index: usize) -> bool {
        index >= self.count
            || self.slot == RowSlot::Nothing
            || self.valid.is_some_and(|valid| !bit(valid, index))
    }

    /// The item at `index`; null beyond the end.
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

    /// The items, in order.
    pub fn items(&self) -> impl Iterator<Item = Result<Datum<'a>, RowError>> + '_ {
        (0..self.count).map(|index| self.datum(index))
    }

    /// Appends an item as text, as [`RowView::text`] does; false, and nothing appended, when null.
    pub fn text(&self, index: usize, out: &mut Vec<u8>) -> Result<bool, RowError> {
        self.datum(index)?.write_text(out)
    }

    /// Appends the list as a JSON array.
    pub fn json(&self, out: &mut Vec<u8>) -> Result<(), RowError> {
        Datum::List(*self).write_json(out)
    }
}
