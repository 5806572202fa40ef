//! Units of reading: independent parts of files, each read by one thread.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions, new_null_array};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{FieldRef, SchemaRef};

use super::batches::Slice;
use super::capture::CapturePart;
use super::error::SourceError;
use super::look::TextUnit;
use super::origin::{Origin, Places, Reject, culprit, row_as_json};
use super::parquet::RowGroup;
use super::text::{TextPart, decode_schema};
use super::{Content, File};

/// A part of a file.
#[derive(Debug, Clone)]
pub struct Unit {
    file: Arc<File>,
    part: Part,
    /// The columns that its batches have.
    schema: SchemaRef,
    /// For each of them the position among the columns read, `None` when the file has no such column.
    sources: Vec<Option<usize>>,
    /// The file's columns to read, ascending.
    columns: Vec<usize>,
}

#[derive(Debug, Clone)]
enum Part {
    Group(RowGroup),
    /// Lines, and the types of the file's columns.
    Lines(TextPart, SchemaRef),
    Batches(Range<usize>),
    Packets(CapturePart),
    Slice(Slice),
    /// Of batches in general.
    None,
}

/// Cuts a file into units that give batches of `schema`.
pub(super) fn cut(
    file: &Arc<File>,
    schema: &SchemaRef,
    units: &mut Vec<Unit>,
) -> Result<(), SourceError> {
    let parts: Vec<Part> = match &file.content {
        Content::Parquet(_, parquet) => parquet.row_groups().into_iter().map(Part::Group).collect(),
        Content::Ipc(_, ipc) => ipc.parts().into_iter().map(Part::Batches).collect(),
        Content::Capture(_, capture) => {
            let parts = capture.parts().iter().cloned();
            parts.map(Part::Packets).collect()
        }
        Content::Batches(_) => Vec::new(),
        Content::Text(blob, text) => {
            let types = decode_schema(text, schema);
            let parts = text.parts(blob)?.into_iter();
            parts.map(|part| Part::Lines(part, types.clone())).collect()
        }
    };
    units.extend(parts.into_iter().map(|part| Unit::new(file, part, schema)));
    Ok(())
}

impl Unit {
    fn new(file: &Arc<File>, part: Part, schema: &SchemaRef) -> Unit {
        let mut unit = Unit {
            file: file.clone(),
            part,
            schema: schema.clone(),
            sources: Vec::new(),
            columns: Vec::new(),
        };
        unit.bind();
        unit
    }

    /// A unit without rows, for [`Unit::of_slice`].
    pub(super) fn of_batches(file: &Arc<File>, schema: &SchemaRef) -> Unit {
        Unit::new(file, Part::None, schema)
    }

    /// The unit of a slice, and its number; in all else it is as this one.
    pub(super) fn of_slice(&self, slice: Slice) -> (u32, Unit) {
        let number = slice.number;
        let part = Part::Slice(slice);
        (
            number,
            Unit {
                part,
                ..self.clone()
            },
        )
    }

    /// The name of the unit's file.
    pub fn file(&self) -> &str {
        &self.file.name
    }

    /// Bytes of the file that the unit reads, for progress.
    pub fn bytes(&self) -> u64 {
        match &self.part {
            Part::Group(group) => group.bytes,
            Part::Lines(part, _) => part.range.end - part.range.start,
            Part::Packets(part) => part.range.end - part.range.start,
            Part::Batches(range) => match &self.file.content {
                Content::Ipc(_, ipc) => {
                    let parts: usize = ipc.parts().iter().map(ExactSizeIterator::len).sum();
                    (self.file.size_bytes / parts.max(1) as u64).saturating_mul(range.len() as u64)
                }
                _ => 0,
            },
            Part::Slice(_) | Part::None => 0,
        }
    }

    /// The text that the unit reads, if it does.
    pub(super) fn text(&self) -> Option<TextUnit<'_>> {
        match (&self.file.content, &self.part) {
            (Content::Text(blob, text), Part::Lines(part, _)) => Some((blob, text, part)),
            _ => None,
        }
    }

    /// The number of rows, where the format tells.
    pub fn rows(&self) -> Option<u64> {
        match &self.part {
            Part::Group(group) => Some(group.rows),
            Part::Packets(part) => Some(part.packets),
            Part::Slice(slice) => Some(slice.batch.num_rows() as u64),
            Part::None => Some(0),
            Part::Lines(..) | Part::Batches(_) => None,
        }
    }

    pub(super) fn keep(&mut self, schema: &SchemaRef) {
        self.schema = schema.clone();
        self.bind();
    }

    /// Works out which of the file's columns make the schema's.
    fn bind(&mut self) {
        let fields = self.file.fields();
        let found: Vec<Option<usize>> = (self.schema.fields().iter())
            .map(|field| fields.iter().position(|have| have.name() == field.name()))
            .collect();
        self.columns = found.iter().flatten().copied().collect();
        self.columns.sort_unstable();
        // Those read whole.
        if matches!(self.part, Part::Lines(..) | Part::Slice(_) | Part::None) {
            self.columns = (0..fields.len()).collect();
        }
        let place = |column: usize| self.columns.binary_search(&column).ok();
        self.sources = found
            .into_iter()
            .map(|column| column.and_then(place))
            .collect();
    }

    /// Reads the unit from front to back. `accept` gets batches of the set's schema, `reject` the records
    /// that make no row, or none of the schema's types. An error of either ends the reading and is given back.
    pub fn read<E: From<SourceError>>(
        &self,
        mut accept: impl FnMut(RecordBatch, &Origin) -> Result<(), E>,
        reject: impl FnMut(Reject<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        // Decoders reject records between batches, the cast rejects rows of a batch.
        let reject = RefCell::new(reject);
        let reject = |bad: Reject<'_>| (*reject.borrow_mut())(bad);
        let file = &self.file.name;
        let mut first_row = 0;
        let mut emit = |batch: RecordBatch, places: Places| -> Result<(), E> {
            self.pass_on(&batch, &places, &mut first_row, &mut accept, &reject)
        };
        match (&self.file.content, &self.part) {
            (Content::Parquet(blob, parquet), Part::Group(group)) => {
                let mut row = group.rows_before;
                parquet.read(blob, group, &self.columns, &mut |batch: RecordBatch| {
                    let first = row;
                    row += batch.num_rows() as u64;
                    emit(batch, Places::Rows(first))
                })
            }
            (Content::Ipc(blob, ipc), Part::Batches(range)) => {
                ipc.read(blob, range, &self.columns, &mut |index, batch| {
                    let batch_number = index as u64;
                    emit(
                        batch,
                        Places::Batch {
                            batch: batch_number,
                            first: 0,
                        },
                    )
                })
            }
            (Content::Text(blob, text), Part::Lines(part, types)) => text.read(
                blob,
                part,
                types,
                &mut |batch, records| emit(batch, text.places(records)),
                &mut |record, bytes, reason| {
                    reject(Reject {
                        file,
                        place: text.place(record.number),
                        column: culprit(types, &reason),
                        reason,
                        record: bytes,
                    })
                },
            ),
            (Content::Capture(blob, capture), Part::Packets(part)) => capture.read(
                blob,
                part,
                &self.columns,
                &mut |batch, first| emit(batch, Places::Rows(first)),
                &mut |place, reason| {
                    reject(Reject {
                        file,
                        place,
                        column: None,
                        reason,
                        record: b"null",
                    })
                },
            ),
            (Content::Batches(_), Part::Slice(slice)) => {
                emit(slice.batch.clone(), Places::Rows(slice.rows_before))
            }
            _ => Ok(()),
        }
    }

    /// Brings rows to the schema and hands them on. Where one cannot be, they are halved until it is alone.
    fn pass_on<E: From<SourceError>>(
        &self,
        batch: &RecordBatch,
        places: &Places,
        first_row: &mut u64,
        accept: &mut impl FnMut(RecordBatch, &Origin) -> Result<(), E>,
        reject: &impl Fn(Reject<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let rows = batch.num_rows();
        let origin = Origin {
            file: self.file.name.clone(),
            first_row: *first_row,
            places: places.clone(),
        };
        match self.conform(batch) {
            Ok(columns) => {
                *first_row += rows as u64;
                let options = RecordBatchOptions::new().with_row_count(Some(rows));
                let batch =
                    RecordBatch::try_new_with_options(self.schema.clone(), columns, &options);
                let batch = batch.map_err(|error| SourceError::Damaged {
                    file: origin.file.to_string(),
                    place: format!("{}: the batch ", origin.place(0)),
                    reason: error.to_string(),
                })?;
                accept(batch, &origin)
            }
            Err(reason) if rows <= 1 => reject(Reject {
                file: &origin.file,
                place: origin.place(0),
                column: culprit(&self.schema, &reason),
                reason,
                record: &row_as_json(batch, 0),
            }),
            Err(_) => {
                let half = rows / 2;
                for (from, to) in [(0, half), (half, rows)] {
                    let part = batch.slice(from, to - from);
                    self.pass_on(&part, &places.slice(from..to), first_row, accept, reject)?;
                }
                Ok(())
            }
        }
    }

    /// The columns of the schema: by name, cast where types widened, null where absent. An error says
    /// which column holds what the type does not.
    fn conform(&self, batch: &RecordBatch) -> Result<Vec<ArrayRef>, String> {
        let options = CastOptions {
            safe: false,
            ..CastOptions::default()
        };
        let column = |(field, source): (&FieldRef, &Option<usize>)| {
            let array = source.and_then(|index| batch.columns().get(index));
            match array {
                None => Ok(new_null_array(field.data_type(), batch.num_rows())),
                Some(array) if array.data_type() == field.data_type() => Ok(array.clone()),
                Some(array) => {
                    cast_with_options(array, field.data_type(), &options).map_err(|error| {
                        let (name, data_type) = (field.name(), field.data_type());
                        format!("the column '{name}' does not fit the type {data_type}: {error}")
                    })
                }
            }
        };
        let fields = self.schema.fields().iter();
        fields.zip(&self.sources).map(column).collect()
    }
}
