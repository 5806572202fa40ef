//! Packs cells into rows and lists, with buffers that are reused from row to row.

use forebay_run::row::{Kind, ListWriter, RowError, RowWriter, Schema};

use crate::convert::cells::{Cells, Values};

/// A packer of rows of a schema.
#[derive(Debug, Clone)]
pub(super) struct RowPacker {
    writer: RowWriter,
    nested: Vec<NestedColumn>,
}

/// The part of a column's state that is not in its row's buffers.
#[derive(Debug, Clone)]
enum NestedColumn {
    Scalar,
    List(Box<ListPacker>),
    Struct(Box<RowPacker>),
}

/// A packer of lists of items of a kind.
#[derive(Debug, Clone)]
pub(super) struct ListPacker {
    writer: ListWriter,
    nested: NestedColumn,
}

impl NestedColumn {
    fn new(kind: &Kind) -> NestedColumn {
        match kind {
            Kind::List { item, .. } => NestedColumn::List(Box::new(ListPacker::new(&item.kind))),
            Kind::Struct { fields } => NestedColumn::Struct(Box::new(RowPacker::new(fields))),
            Kind::Map { entries, .. } => NestedColumn::List(Box::new(ListPacker {
                writer: ListWriter::new(&Kind::Struct {
                    fields: entries.clone(),
                }),
                nested: NestedColumn::Struct(Box::new(RowPacker::new(entries))),
            })),
            _ => NestedColumn::Scalar,
        }
    }

    /// Appends a nested value.
    fn pack(&mut self, cells: &Cells<'_>, row: usize, out: &mut Vec<u8>) -> Result<(), RowError> {
        match (self, &cells.values) {
            (NestedColumn::List(packer), Values::List { .. }) => packer.pack(cells, row, out),
            (NestedColumn::Struct(packer), Values::Struct(fields)) => packer.pack(fields, row, out),
            _ => Err(RowError::Type { column: 0 }),
        }
    }
}

impl RowPacker {
    pub fn new(schema: &Schema) -> RowPacker {
        RowPacker {
            writer: RowWriter::new(schema),
            nested: schema
                .columns()
                .iter()
                .map(|column| NestedColumn::new(&column.kind))
                .collect(),
        }
    }

    /// Appends the row `row` of `columns`, which are in the schema's order.
    #[inline]
    pub fn pack(
        &mut self,
        columns: &[Cells<'_>],
        row: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), RowError> {
        self.writer.begin();
        for (index, (cells, nested)) in columns.iter().zip(&mut self.nested).enumerate() {
            if cells.is_null(row) {
                continue;
            }
            let writer = &mut self.writer;
            match &cells.values {
                Values::Null => {}
                Values::Bool(array) => writer.bit(index, array.value(row)),
                Values::Fixed { bytes, width } => put_fixed(writer, index, bytes, *width, row),
                Values::FixedBinary(array) => writer.fixed(index, array.value(row)),
                Values::Int64(values) => writer.signed(index, values[row]),
                Values::UInt64(values) => writer.unsigned(index, values[row]),
                Values::Wide { bytes, width } => {
                    writer.wide(index, &bytes[row * width..(row + 1) * width]);
                }
                Values::Text(array) => writer.bytes(index, array.value(row).as_bytes()),
                Values::LargeText(array) => writer.bytes(index, array.value(row).as_bytes()),
                Values::TextView(array) => writer.bytes(index, array.value(row).as_bytes()),
                Values::Binary(array) => writer.bytes(index, array.value(row)),
                Values::LargeBinary(array) => writer.bytes(index, array.value(row)),
                Values::BinaryView(array) => writer.bytes(index, array.value(row)),
                Values::List { .. } | Values::Struct(_) => {
                    let packed = writer.variable(index, |data| Some(nested.pack(cells, row, data)));
                    packed.unwrap_or(Err(RowError::Type { column: index }))?;
                }
            }
        }
        self.writer.finish(out)
    }
}

/// Handles the common widths separately, so that the copies have constant size.
#[inline]
fn put_fixed(writer: &mut RowWriter, column: usize, bytes: &[u8], width: usize, row: usize) {
    let value = &bytes[row * width..(row + 1) * width];
    match width {
        4 => writer.fixed(column, &value[..4]),
        8 => writer.fixed(column, &value[..8]),
        _ => writer.fixed(column, value),
    }
}

impl ListPacker {
    pub fn new(item: &Kind) -> ListPacker {
        ListPacker {
            writer: ListWriter::new(item),
            nested: NestedColumn::new(item),
        }
    }

    /// Appends the list in row `row` of `cells`, a column of lists that is not null in that row.
    pub fn pack(
        &mut self,
        cells: &Cells<'_>,
        row: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), RowError> {
        let Values::List { bounds, items } = &cells.values else {
            return Err(RowError::Type { column: 0 });
        };
        let (start, end) = bounds.get(row);
        self.writer.begin();
        match &items.values {
            Values::Fixed { bytes, width } if !items.has_nulls() => {
                self.writer.fixed_run(&bytes[start * width..end * width]);
            }
            _ => {
                for item in start..end {
                    self.push(items, item)?;
                }
            }
        }
        self.writer.finish(out)
    }

    #[inline]
    fn push(&mut self, items: &Cells<'_>, item: usize) -> Result<(), RowError> {
        let writer = &mut self.writer;
        if items.is_null(item) {
            writer.null();
            return Ok(());
        }
        match &items.values {
            Values::Null => writer.null(),
            Values::Bool(array) => writer.bit(array.value(item)),
            Values::Fixed { bytes, width } => {
                writer.fixed(&bytes[item * width..(item + 1) * width]);
            }
            Values::FixedBinary(array) => writer.fixed(array.value(item)),
            Values::Int64(values) => writer.signed(values[item]),
            Values::UInt64(values) => writer.unsigned(values[item]),
            Values::Wide { bytes, width } => writer.wide(&bytes[item * width..(item + 1) * width]),
            Values::Text(array) => writer.bytes(array.value(item).as_bytes()),
            Values::LargeText(array) => writer.bytes(array.value(item).as_bytes()),
            Values::TextView(array) => writer.bytes(array.value(item).as_bytes()),
            Values::Binary(array) => writer.bytes(array.value(item)),
            Values::LargeBinary(array) => writer.bytes(array.value(item)),
            Values::BinaryView(array) => writer.bytes(array.value(item)),
            Values::List { .. } | Values::Struct(_) => {
                let nested = &mut self.nested;
                writer.variable(|data| nested.pack(items, item, data))?;
            }
        }
        Ok(())
    }
}
