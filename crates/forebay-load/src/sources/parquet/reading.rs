//! Reads a row group in batches, which shrink if its values are large.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::Fields;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ParquetRecordBatchReader, RowSelection, RowSelector,
};
use parquet::arrow::{ProjectionMask, parquet_to_arrow_field_levels};
use parquet::schema::types::SchemaDescriptor;

use super::batch_limit::BatchLimit;
use super::chunks::Chunks;
use super::pages::CheckedGroup;
use super::{RowGroup, int96, interval, retype};
use crate::sources::blob::{Blob, guarded};

/// The columns of a row group to read.
pub(super) struct GroupColumns<'a> {
    pub blob: &'a Blob,
    pub metadata: &'a ArrowReaderMetadata,
    pub group: &'a RowGroup,
    /// The indices of the columns, ascending.
    pub columns: &'a [usize],
    /// The file's columns, with the types of its rows.
    pub fields: &'a Fields,
}

impl GroupColumns<'_> {
    fn schema(&self) -> &SchemaDescriptor {
        self.metadata.metadata().file_metadata().schema_descr()
    }

    fn leaves(&self, columns: &[usize]) -> (ProjectionMask, Vec<usize>) {
        let schema = self.schema();
        let mask = ProjectionMask::roots(schema, columns.iter().copied());
        let leaves = (0..schema.num_columns()).filter(|leaf| mask.leaf_included(*leaf));
        let leaves = leaves.collect();
        (mask, leaves)
    }

    fn limit(&self) -> BatchLimit {
        let group = self.metadata.metadata().row_group(self.group.index);
        let (_, leaves) = self.leaves(self.columns);
        BatchLimit::of(group, leaves.into_iter())
    }

    /// Decodes columns, with the types of `fields`, of the rows after the first `passed`.
    fn decoder(
        &self,
        columns: &[usize],
        fields: &Fields,
        passed: u64,
        limit: &Arc<BatchLimit>,
    ) -> Result<ParquetRecordBatchReader, String> {
        guarded(|| {
            let metadata = self.metadata.metadata();
            let group = metadata.row_group(self.group.index);
            let (mask, leaves) = self.leaves(columns);
            let chunks = Chunks::open(self.blob, group, leaves.into_iter())?;
            let levels = parquet_to_arrow_field_levels(self.schema(), mask, Some(fields))?;
            let checked = CheckedGroup::open(metadata, self.group.index, chunks, limit.clone());
            let rest = (passed > 0).then(|| {
                let rest = self.group.rows.saturating_sub(passed);
                let passed = RowSelector::skip(passed as usize);
                RowSelection::from(vec![passed, RowSelector::select(rest as usize)])
            });
            let rows = limit.rows();
            ParquetRecordBatchReader::try_new_with_row_groups(&levels, &checked, rows, rest)
        })
    }
}

/// The decoders of the columns: some columns are decoded twice, because the decoder loses a part of
/// their values.
struct Decoders {
    own: ParquetRecordBatchReader,
    int96_as_seconds: Option<ParquetRecordBatchReader>,
    intervals_as_months: Option<ParquetRecordBatchReader>,
}

impl Decoders {
    fn open(of: &GroupColumns<'_>, passed: u64, limit: &Arc<BatchLimit>) -> Result<Self, String> {
        let fields = &retype::without_dictionaries(of.metadata.schema().fields());
        let again = |columns: Vec<usize>, fields: &dyn Fn() -> Fields| {
            let decoder = || of.decoder(&columns, &fields(), passed, limit);
            (!columns.is_empty()).then(decoder).transpose()
        };
        let int96 = int96::columns(of.schema(), of.columns);
        let intervals = interval::columns(fields, of.fields, of.columns);
        Ok(Decoders {
            own: of.decoder(of.columns, fields, passed, limit)?,
            int96_as_seconds: again(int96, &|| int96::in_seconds(fields))?,
            intervals_as_months: again(intervals, &|| interval::in_months(fields))?,
        })
    }

    fn next(&mut self) -> Result<Option<RecordBatch>, String> {
        let next = |decoder: &mut ParquetRecordBatchReader| guarded(|| decoder.next().transpose());
        let Some(mut batch) = next(&mut self.own)? else {
            return Ok(None);
        };
        if let Some(seconds) = self
            .int96_as_seconds
            .as_mut()
            .map(next)
            .transpose()?
            .flatten()
        {
            int96::check(&batch, &seconds)?;
        }
        if let Some(months) = self
            .intervals_as_months
            .as_mut()
            .map(next)
            .transpose()?
            .flatten()
        {
            batch = interval::with_months(&batch, &months).map_err(|error| error.to_string())?;
        }
        Ok(Some(batch))
    }
}

/// An iterator over the batches of a row group.
pub(super) struct GroupReader<'a> {
    of: GroupColumns<'a>,
    limit: Arc<BatchLimit>,
    decoders: Decoders,
    /// The number of rows returned so far.
    pub rows: u64,
}

impl<'a> GroupReader<'a> {
    pub fn open(of: GroupColumns<'a>) -> Result<Self, String> {
        let limit = Arc::new(of.limit());
        let decoders = Decoders::open(&of, 0, &limit)?;
        Ok(GroupReader {
            of,
            limit,
            decoders,
            rows: 0,
        })
    }

    pub fn next(&mut self) -> Result<Option<RecordBatch>, String> {
        loop {
            let reason = match self.decoders.next() {
                Ok(batch) => {
                    let rows = batch.as_ref().map_or(0, RecordBatch::num_rows);
                    debug_assert!(rows <= self.limit.rows(), "{rows} rows of a batch");
                    self.rows += rows as u64;
                    return Ok(batch);
                }
                Err(reason) => reason,
            };
            // 32-bit offsets reach 2 GiB. If values share prefixes, a page does not show how large
            // they are.
            let narrower = self.limit.narrowed().or_else(|| {
                let overflows = reason.contains("overflow");
                overflows.then(|| self.limit.halved()).flatten()
            });
            self.limit = Arc::new(narrower.ok_or(reason)?);
            self.decoders = Decoders::open(&self.of, self.rows, &self.limit)?;
        }
    }
}
