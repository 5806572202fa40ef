//! Defines units of reading: independent parts of files, each read by one thread.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions, new_null_array};
use arrow_schema::{DataType, FieldRef, Schema, SchemaRef};

use super::batch_bytes;
use super::batches::Slice;
use super::capture::CapturePart;
use super::error::SourceError;
use super::origin::{Origin, Places, Reject, culprit, row_as_json};
use super::parquet::RowGroup;
use super::{Content, File};
use crate::convert::{Changes, Converter, Failures, Rules, Trouble};
use crate::sources::text_files::look_all::TextUnit;
use crate::sources::text_files::text::{TextPart, decode_schema};

/// A unit of reading: a part of a file.
#[derive(Debug, Clone)]
pub struct SourceUnit {
    file: Arc<File>,
    part: UnitPart,
    /// The columns of its batches.
    schema: SchemaRef,
    /// For each of them the index among the columns read, and the converter to the wanted type;
    /// `None` if the file has no such column.
    sources: Vec<Option<(usize, Converter)>>,
    /// The file's columns to read, ascending.
    columns: Vec<usize>,
    rules: Arc<Rules>,
}

#[derive(Debug, Clone)]
enum UnitPart {
    Group(RowGroup),
    /// Lines, and the types of the file's columns.
    Lines(TextPart, SchemaRef),
    Batches(Range<usize>),
    Packets(CapturePart),
    Slice(Slice),
    /// The template of units of batches.
    None,
}

/// Splits a file into units whose batches have `schema`.
pub(super) fn cut(
    file: &Arc<File>,
    schema: &SchemaRef,
    rules: &Arc<Rules>,
    units: &mut Vec<SourceUnit>,
) -> Result<(), SourceError> {
    let parts: Vec<UnitPart> = match &file.content {
        Content::Parquet(_, parquet) => parquet
            .row_groups()
            .into_iter()
            .map(UnitPart::Group)
            .collect(),
        Content::Ipc(_, ipc) => ipc.parts().into_iter().map(UnitPart::Batches).collect(),
        Content::Capture(_, capture) => {
            let parts = capture.parts().iter().cloned();
            parts.map(UnitPart::Packets).collect()
        }
        Content::Batches(_) => Vec::new(),
        Content::Text(blob, text) => {
            // The lines do not contain the columns that directories give.
            let added: Vec<&String> = file.constants.fields().map(|field| field.name()).collect();
            let fields = schema.fields().iter();
            let in_lines = fields.filter(|field| !added.contains(&field.name()));
            let in_lines = Arc::new(Schema::new(in_lines.cloned().collect::<Vec<FieldRef>>()));
            let types = decode_schema(text, &in_lines);
            let parts = text.parts(blob)?.into_iter();
            parts
                .map(|part| UnitPart::Lines(part, types.clone()))
                .collect()
        }
    };
    for part in parts {
        units.push(SourceUnit::new(file, part, schema, rules)?);
    }
    Ok(())
}

impl SourceUnit {
    fn new(
        file: &Arc<File>,
        part: UnitPart,
        schema: &SchemaRef,
        rules: &Arc<Rules>,
    ) -> Result<SourceUnit, SourceError> {
        let mut unit = SourceUnit {
            file: file.clone(),
            part,
            schema: schema.clone(),
            sources: Vec::new(),
            columns: Vec::new(),
            rules: Arc::clone(rules),
        };
        unit.bind()?;
        Ok(unit)
    }

    /// Creates a unit without rows, as a template for [`SourceUnit::of_slice`].
    pub(super) fn of_batches(
        file: &Arc<File>,
        schema: &SchemaRef,
        rules: &Arc<Rules>,
    ) -> Result<SourceUnit, SourceError> {
        SourceUnit::new(file, UnitPart::None, schema, rules)
    }

    /// Returns the unit of a slice, and its number; otherwise it is a copy of this one.
    pub(super) fn of_slice(&self, slice: Slice) -> (u32, SourceUnit) {
        let number = slice.number;
        let part = UnitPart::Slice(slice);
        (
            number,
            SourceUnit {
                part,
                ..self.clone()
            },
        )
    }

    /// Returns the name of the unit's file.
    pub fn file(&self) -> &str {
        &self.file.name
    }

    /// Returns the bytes of the file that the unit reads, for progress.
    pub fn bytes(&self) -> u64 {
        match &self.part {
            UnitPart::Group(group) => group.bytes,
            UnitPart::Lines(part, _) => part.range.end - part.range.start,
            UnitPart::Packets(part) => part.range.end - part.range.start,
            UnitPart::Batches(range) => match &self.file.content {
                Content::Ipc(_, ipc) => {
                    let parts: usize = ipc.parts().iter().map(ExactSizeIterator::len).sum();
                    (self.file.size_bytes / parts.max(1) as u64).saturating_mul(range.len() as u64)
                }
                _ => 0,
            },
            UnitPart::Slice(_) | UnitPart::None => 0,
        }
    }

    /// Returns the text that the unit reads, if any.
    pub(super) fn text(&self) -> Option<TextUnit<'_>> {
        match (&self.file.content, &self.part) {
            (Content::Text(blob, text), UnitPart::Lines(part, _)) => Some((blob, text, part)),
            _ => None,
        }
    }

    /// Returns the number of rows, if the format records it.
    pub fn rows(&self) -> Option<u64> {
        match &self.part {
            UnitPart::Group(group) => Some(group.rows),
            UnitPart::Packets(part) => Some(part.packets),
            UnitPart::Slice(slice) => Some(slice.batch.num_rows() as u64),
            UnitPart::None => Some(0),
            UnitPart::Lines(..) | UnitPart::Batches(_) => None,
        }
    }

    pub(super) fn keep(&mut self, schema: &SchemaRef) -> Result<(), SourceError> {
        self.schema = schema.clone();
        self.bind()
    }

    /// Determines which of the file's columns give the schema's, and how.
    fn bind(&mut self) -> Result<(), SourceError> {
        // The directories' columns follow the file's own.
        let own = match &self.part {
            UnitPart::Lines(_, types) => types.fields(),
            _ => self.file.fields(),
        };
        let fields: Vec<FieldRef> = (own.iter().cloned())
            .chain(self.file.constants.fields().cloned().map(Arc::new))
            .collect();
        let own = own.len();
        // If two columns have one name, the first counts, because it is inserted last.
        let places = fields.iter().enumerate().rev();
        let places: HashMap<&str, usize> = places
            .map(|(at, have)| (have.name().as_str(), at))
            .collect();
        let find = |field: &FieldRef| places.get(field.name().as_str()).copied();
        let found: Vec<Option<usize>> = self.schema.fields().iter().map(find).collect();
        self.columns = match self.part {
            // Formats of which all columns are read.
            UnitPart::Lines(..) | UnitPart::Slice(_) | UnitPart::None => (0..own).collect(),
            _ => {
                let read = found.iter().flatten().filter(|column| **column < own);
                let mut columns: Vec<usize> = read.copied().collect();
                columns.sort_unstable();
                columns.dedup();
                columns
            }
        };
        let place = |column: usize| match column.checked_sub(own) {
            Some(added) => Some(self.columns.len() + added),
            None => self.columns.binary_search(&column).ok(),
        };
        let source = |(column, field): (&Option<usize>, &FieldRef)| {
            let Some((column, place)) = column.and_then(|column| Some((column, place(column)?)))
            else {
                return Ok(None);
            };
            let from = fields[column].data_type();
            Ok(Some((place, self.converter(field, from)?)))
        };
        let sources: Result<_, SourceError> =
            found.iter().zip(self.schema.fields()).map(source).collect();
        self.sources = sources?;
        Ok(())
    }

    fn converter(&self, field: &FieldRef, from: &DataType) -> Result<Converter, SourceError> {
        let converter = Converter::new(field.name(), from, field.data_type(), &self.rules);
        converter.map_err(|error| SourceError::Convert {
            file: self.file.name.to_string(),
            error,
        })
    }

    /// Reads the unit from front to back. `accept` receives batches of the set's schema. `reject`
    /// receives the records that do not make a row, or a row of the schema's types. An error of
    /// either ends the reading and is returned.
    pub fn read<E: From<SourceError>>(
        &self,
        mut accept: impl FnMut(RecordBatch, &Origin) -> Result<(), E>,
        reject: impl FnMut(Reject<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        // Decoders reject records between batches; the conversion rejects rows of a batch.
        let reject = RefCell::new(reject);
        let reject = |bad: Reject<'_>| (*reject.borrow_mut())(bad);
        let file = &self.file.name;
        let bad = |place, column, reason, record: &[u8]| {
            reject(Reject {
                file,
                place,
                column,
                reason,
                record,
            })
        };
        let mut first_row = 0;
        let mut emit = |batch: RecordBatch, places: Places| -> Result<(), E> {
            batch_bytes::slices(&self.file.constants.add(batch), &mut |slice, rows| {
                let places = places.slice(rows);
                self.pass_on(&slice, &places, &mut first_row, &mut accept, &reject)
            })
        };
        match (&self.file.content, &self.part) {
            (Content::Parquet(blob, parquet), UnitPart::Group(group)) => {
                let mut row = group.rows_before;
                parquet.read(blob, group, &self.columns, &mut |batch: RecordBatch| {
                    let first = row;
                    row += batch.num_rows() as u64;
                    emit(batch, Places::Rows(first))
                })
            }
            (Content::Ipc(blob, ipc), UnitPart::Batches(range)) => {
                ipc.read(blob, range, &self.columns, &mut |index, batch| {
                    let (number, first) = (index as u64, 0);
                    emit(
                        batch,
                        Places::Batch {
                            batch: number,
                            first,
                        },
                    )
                })
            }
            (Content::Text(blob, text), UnitPart::Lines(part, types)) => text.read(
                blob,
                part,
                types,
                &self.rules,
                &mut |batch, records| emit(batch, text.places(records)),
                &mut |record, bytes, reason| {
                    let column = culprit(types, &reason);
                    bad(text.place(record.number), column, reason, bytes)
                },
            ),
            (Content::Capture(blob, capture), UnitPart::Packets(part)) => capture.read(
                blob,
                part,
                &self.columns,
                &mut |batch, first| emit(batch, Places::Rows(first)),
                &mut |place, reason| bad(place, None, reason, b"null"),
            ),
            (Content::Batches(_), UnitPart::Slice(slice)) => {
                emit(slice.batch.clone(), Places::Rows(slice.rows_before))
            }
            _ => Ok(()),
        }
    }

    /// Converts rows to the schema and passes them on; rows with values that do not fit are
    /// rejected.
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
        let refuse = |row: usize, reason: String| {
            reject(Reject {
                file: &origin.file,
                place: origin.place(row),
                column: culprit(&self.schema, &reason),
                reason,
                record: &row_as_json(batch, row),
            })
        };
        let mut again = |from: usize, to: usize| match from < to {
            false => Ok(()),
            true => {
                let part = batch.slice(from, to - from);
                self.pass_on(&part, &places.slice(from..to), first_row, accept, reject)
            }
        };
        match self.convert(batch)? {
            Err(Trouble::Rows(failures)) => {
                let mut from = 0;
                for failure in failures {
                    again(from, failure.row)?;
                    refuse(failure.row, failure.reason)?;
                    from = failure.row + 1;
                }
                again(from, rows)
            }
            Err(Trouble::Batch(reason)) if rows <= 1 => refuse(0, reason),
            Err(Trouble::Batch(_)) => {
                again(0, rows / 2)?;
                again(rows / 2, rows)
            }
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
        }
    }

    /// Returns the columns of the schema: by name, converted if types differ, null if absent.
    fn convert(&self, batch: &RecordBatch) -> Result<Result<Vec<ArrayRef>, Trouble>, SourceError> {
        if let Err(reason) = self.file.constants.check(batch) {
            return Ok(Err(Trouble::Batch(reason)));
        }
        let mut changes = Changes::default();
        let mut failures = Failures::default();
        let mut columns = Vec::with_capacity(self.sources.len());
        for (field, source) in self.schema.fields().iter().zip(&self.sources) {
            let array = source.as_ref().and_then(|(index, converter)| {
                batch.columns().get(*index).map(|array| (array, converter))
            });
            let converted = match array {
                None => Ok(new_null_array(field.data_type(), batch.num_rows())),
                Some((array, converter)) if array.data_type() == converter.from() => {
                    converter.convert(array, &mut changes)
                }
                // Batches may arrive in another encoding than announced.
                Some((array, _)) => {
                    let converter = self.converter(field, array.data_type())?;
                    converter.convert(array, &mut changes)
                }
            };
            match converted {
                Ok(column) => columns.push(column),
                Err(Trouble::Rows(rows)) => failures.add(rows),
                Err(trouble) => return Ok(Err(trouble)),
            }
        }
        Ok(failures.settle().map(|()| {
            self.rules.count(&changes);
            columns
        }))
    }
}
