//! Runs the task of one part of the source: turns its rows into records for partitions.

use std::cell::Cell;

use arrow_array::RecordBatch;
use arrow_array::builder::{BinaryBuilder, Int64Builder};
use arrow_schema::{Fields, SchemaRef};
use forebay_run::hash::KeyHasher;
use forebay_run::operation::Operation;
use forebay_run::record;

use super::control::{Control, WholeLoad};
use super::gather::Gatherer;
use super::recipe::Recipe;
use super::wire::sample_batch;
use super::{DistributedError, Sum};
use crate::column_profile::{BatchCounts, TableProfile};
use crate::convert::{Loss, Lossy};
use crate::encode::{Encoded, RowEncoder};
use crate::push::fit::loose;
use crate::push::read::row_number;
use crate::push::rejects::Rejects;
use crate::sort::{Boundaries, Tally};
use crate::sources::{Batches, Input, SourceOptions, SourceSet};

/// The most rows that the profile of a part draws: profiles are sent, and there may be many parts.
const SAMPLE_ROWS: usize = 512;

/// A task that encodes the rows of one part of the source.
#[derive(Debug)]
pub struct RowTask {
    recipe: Recipe,
    reader: RowReader,
    source: u32,
    router: Option<Router>,
    rejects: Rejects,
    sent: Vec<Tally>,
    /// `None` in a load.
    profile: Option<TableProfile>,
    lossy: Vec<u64>,
}

#[derive(Debug)]
struct Router {
    boundaries: Boundaries,
    hasher: KeyHasher,
    gatherer: Gatherer,
}

/// A reader of the batches of the part.
#[derive(Debug)]
struct RowReader {
    encoder: RowEncoder,
    /// The schema of the batches as received.
    arranged: SchemaRef,
    /// The source of the rows, for messages.
    name: String,
    source: u32,
    losses: Vec<(String, Loss)>,
    /// Rows handed over so far.
    rows: u64,
}

impl RowTask {
    /// Creates a task. `source` is the number of this part of the source and must be unique. Of two
    /// rows with one key, the row from the part with the lower number is the older one.
    pub fn new(recipe: Recipe, source: i64) -> Result<Self, DistributedError> {
        let source_number = source;
        let source = u32::try_from(source).map_err(|_| DistributedError::Source {
            source_number,
            problem: format!("parts have numbers from 0 to {}", u32::MAX),
        })?;
        let encoder = recipe.encoder()?;
        let router = match recipe.partitions.is_empty() {
            true => None,
            false => Some(Router {
                boundaries: recipe.boundaries()?,
                hasher: KeyHasher::new(&recipe.ticket.table().wire_prefix()),
                gatherer: recipe.gatherer(source),
            }),
        };
        Ok(Self {
            source,
            sent: vec![Tally::default(); recipe.partitions.len()],
            profile: match recipe.load {
                Some(_) => None,
                None => Some(TableProfile::new(encoder.schema().columns().len())),
            },
            lossy: vec![0; recipe.losses.len()],
            router,
            rejects: Rejects::counted(!recipe.skip_bad_rows),
            reader: RowReader {
                arranged: match recipe.load.is_some() {
                    true => loose(encoder.batch_schema()),
                    false => encoder.batch_schema().clone(),
                },
                encoder,
                name: format!("{}, part {source}", recipe.source),
                source,
                losses: recipe.losses.clone(),
                rows: 0,
            },
            recipe,
        })
    }

    /// Returns keys of rows, and the number of bytes each represents, from the row's weight. Rows
    /// that cannot be stored are skipped; encoding reports them.
    pub fn sample(
        &mut self,
        batch: &RecordBatch,
        weights: &[u64],
    ) -> Result<RecordBatch, DistributedError> {
        if weights.len() != batch.num_rows() {
            let (rows, weights) = (batch.num_rows(), weights.len());
            return Err(DistributedError::Batch(format!(
                "{weights} weights of {rows} rows"
            )));
        }
        let (mut keys, mut bytes) = (BinaryBuilder::new(), Int64Builder::new());
        let mut key_bytes = 0;
        let (passed_over, before) = (Rejects::counted(false), self.reader.rows as i64);
        self.reader
            .read(batch, &passed_over, None, |number, key, operation| {
                key_bytes += key.len();
                if key_bytes > i32::MAX as usize {
                    return Err(DistributedError::Batch(
                        "keys of more than 2 GiB".to_owned(),
                    ));
                }
                let value = operation.value().map_or(0, |(value, _)| value.len());
                let size = (key.len() + value) as u64;
                let weight = weights[(number - before) as usize];
                keys.append_value(key);
                bytes.append_value(size.saturating_mul(weight).min(i64::MAX as u64) as i64);
                Ok(())
            })?;
        sample_batch(keys.finish(), bytes.finish())
    }

    /// Encodes the rows of a batch, and returns the batches that are ready to be sent. The batches
    /// of a part must arrive in the order of its rows. After an error the task must not be used
    /// again.
    pub fn encode(&mut self, batch: &RecordBatch) -> Result<Vec<RecordBatch>, DistributedError> {
        let Self {
            router,
            sent,
            reader,
            rejects,
            profile,
            lossy,
            ..
        } = self;
        let router = router.as_mut().ok_or(DistributedError::NoBoundaries)?;
        let (mut framed, with_operations) = (Vec::new(), self.recipe.with_operations());
        let is_load = self.recipe.load.is_some();
        let changed = reader.read(batch, rejects, profile.as_mut(), |_, key, operation| {
            let partition = router.boundaries.partition_of(key, &router.hasher);
            let (tag, payload) = record::encode(operation);
            sent[partition].add(key, &payload);
            if !with_operations {
                return router.gatherer.push(partition, key, &payload);
            }
            framed.clear();
            framed.push(tag);
            framed.extend_from_slice(&payload);
            router.gatherer.push(partition, key, &framed)
        });
        let changed = changed.map_err(|mut error| {
            // The types are the table's, which the caller cannot change.
            if let DistributedError::BadRow { advice, .. } = &mut error
                && is_load
            {
                advice.clear();
            }
            error
        })?;
        for (sum, (path, _)) in lossy.iter_mut().zip(&reader.losses) {
            let of = changed.iter().find(|changed| changed.column == *path);
            *sum += of.map_or(0, |changed| changed.values);
        }
        Ok(router.gatherer.take_ready())
    }

    /// Returns the held-back records and the control rows, one for each partition, after all rows
    /// of the part are encoded.
    pub fn finish(self) -> Result<Vec<RecordBatch>, DistributedError> {
        let router = self.router.ok_or(DistributedError::NoBoundaries)?;
        let mut all = Tally::default();
        self.sent.iter().for_each(|sent| all.merge(sent));
        let whole = WholeLoad {
            sent: all.into(),
            rejected: self.rejects.count(),
            lossy: self.lossy,
        };
        let stamp = self.recipe.ticket.stamp();
        let mut profile = self.profile;
        if let Some(profile) = &mut profile {
            profile.shrink(SAMPLE_ROWS);
        }
        // The first partition gets it, and `take` leaves `None` for the others.
        let controls = self.sent.iter().map(|sent| {
            let control = Control::new(stamp, self.source, Sum::from(*sent), whole.clone());
            control.with_profile(profile.take()).to_bytes()
        });
        router.gatherer.finish(controls)
    }
}

impl RowReader {
    /// Calls `take` with each row's number within the part, key and operation; returns the values
    /// that conversions changed.
    fn read(
        &mut self,
        batch: &RecordBatch,
        rejects: &Rejects,
        mut profile: Option<&mut TableProfile>,
        mut take: impl FnMut(i64, &[u8], Operation<'_>) -> Result<(), DistributedError>,
    ) -> Result<Vec<Lossy>, DistributedError> {
        let (sources, source) = (self.open(batch)?, self.source);
        let encoder = &mut self.encoder;
        let number = Cell::new(self.rows as i64);
        let feed = sources.feed();
        while let Some((_, unit)) = feed.next()? {
            unit.read::<DistributedError>(
                |batch, origin| {
                    let first = number.get();
                    encoder.encode::<DistributedError>(
                        &batch,
                        |row, key, operation| take(first + row as i64, key, operation),
                        |row, bad| Ok(rejects.unstored(origin, &batch, row, &bad.to_string())?),
                    )?;
                    number.set(first + batch.num_rows() as i64);
                    if let Some(profile) = &mut profile {
                        let counts = BatchCounts::of(&batch, profile.columns());
                        profile.add(&batch, &counts, row_number(source, first as u64));
                    }
                    Ok(())
                },
                |reject| {
                    number.set(number.get() + 1);
                    Ok(rejects.unread(&reject)?)
                },
            )?;
        }
        self.rows += batch.num_rows() as u64;
        Ok(sources.lossy())
    }

    /// Returns the batch with the table's columns, in the table's types.
    fn open(&self, batch: &RecordBatch) -> Result<SourceSet, DistributedError> {
        let wanted = self.encoder.batch_schema();
        self.check_columns(wanted.fields(), batch.schema_ref().fields())?;
        let batches = Batches::of_batch(&self.name, batch.clone(), self.rows);
        let options = SourceOptions::for_table(wanted, &self.losses);
        let mut sources = SourceSet::open(&Input::Batches(batches), &options)?;
        sources.arrange(self.arranged.clone())?;
        Ok(sources)
    }

    /// Checks that a batch has the columns that the table needs. If rows are stored whole, it may
    /// have no others.
    fn check_columns(&self, wanted: &Fields, found: &Fields) -> Result<(), DistributedError> {
        let missing = |of: &Fields, within: &Fields| {
            let field = of.iter().find(|field| within.find(field.name()).is_none());
            field.map(|field| field.name().clone())
        };
        let whole = *self.encoder.encoded() == Encoded::Row;
        let problem = match missing(wanted, found) {
            Some(column) => format!("no column '{column}', which the source announced"),
            None => match missing(found, wanted).filter(|_| whole) {
                Some(column) => format!("a column '{column}', which the source did not announce"),
                None => return Ok(()),
            },
        };
        Err(DistributedError::Columns {
            source_number: self.source,
            problem,
        })
    }
}
