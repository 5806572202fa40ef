//! Runs a push without writing: it reports what the push would store, and what the gate would say.
//!
//! 1. The dry run opens the sources. It checks the key template and the value against their
//!    columns, as a push does.
//! 2. `look` reads and encodes rows: all of them, or a sample spread over the parts of the sources
//!    (`choose`). It reads twice if the types of text differ from the inferred ones
//!    (`super::looking`). It counts rows, draws some (`reservoir`) and keeps hashes of all keys
//!    (`keys`).
//! 3. `trial` sorts the drawn rows and writes them as runs, in memory, with the code of a push.
//! 4. `forecast` extrapolates the counts to all rows, looks up the drawn keys in the serving
//!    version and asks the gate.
//!
//! A dry run takes no lock and creates no file. Errors that end a push before it writes anything
//! are the same errors here. Errors that would end it later are in the [`ExpectedEnd`].

mod choose;
mod forecast;
mod keys;
mod look;
mod reservoir;
mod trial;

use std::path::Path;
use std::sync::Arc;

use forebay_engine::{Manifest, ManifestDraft, Store, StoreError, Table, TableName};
use forebay_io::{Clock, Disk, Random};
use forebay_run::hash::KeyHasher;

use super::layer::Layer;
use super::rejects::NotedRow;
use super::report::rounded;
use super::rows::{PushRows, RowCounts};
use super::source_reader::{OpenSources, SourceReader};
use super::{ComposedRows, PushError, PushRequest, check_limits, partitions};
use crate::column_profile::TableProfile;
use crate::convert::Lossy;
use crate::encode::RowEncoder;
use crate::gate::Finding;
use crate::progress::Progress;
use crate::sort::{Boundaries, Duplicates};
use crate::sources::SourceOptions;
use forebay_io::Throttle;
pub use look::{Lens, SeenSources, look};
pub use reservoir::{Drawing, ROW_BITS};

/// The amount that a dry run reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// 100,000 rows, or as many as can be read in ten seconds.
    Sample,
    All,
}

/// The environment of a dry run.
#[derive(Debug, Clone, Copy)]
pub struct DryRunContext<'a> {
    /// `None` if a push would create the store.
    pub store: Option<&'a Store>,
    pub disk: &'a dyn Disk,
    pub clock: &'a Arc<dyn Clock>,
    pub random: &'a dyn Random,
    /// The path at which files would be written, which may not exist yet; `None` if unknown.
    pub room_at: Option<&'a Path>,
    /// The number of keys to look up in the serving version.
    pub look_ups: usize,
}

/// The forecast of a push.
#[derive(Debug)]
pub struct Forecast {
    pub table: TableName,
    /// The version's manifest: number, value, key, order and columns, with the counts of the rows
    /// read. Its partitions are meaningless.
    pub manifest: Manifest,
    /// The number of rows read, and whether these are all.
    pub rows_read: u64,
    pub is_all: bool,
    pub seconds: f64,
    /// The first rows: keys, and values as stored; `None` for a row that deletes.
    pub examples: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    /// As in [`super::PushReport`]; `None` if the number of rows is not known.
    pub rows_between: Option<(u64, u64)>,
    pub bytes: Option<u64>,
    /// Whether these two are exact counts.
    pub is_exact: bool,
    pub partitions: usize,
    /// In a push onto another version, the number of new rows by operation.
    pub applied: Option<ComposedRows>,
    /// The number of bad rows among those read, and the first of them.
    pub rejected: u64,
    pub bad_rows: Vec<NotedRow>,
    /// Values among the rows read that conversions changed, as the rules allow.
    pub lossy: Vec<Lossy>,
    /// Rows among those read that have the key of another row.
    pub duplicates: u64,
    pub compared_with: Option<u64>,
    pub gate: Vec<Finding>,
    pub room: Room,
    /// The duration of the push in seconds, without waiting for the device.
    pub push_seconds: Option<f64>,
    pub outlook: ExpectedEnd,
}

/// Space on the device.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    pub needed_bytes: Option<u64>,
    pub free_bytes: Option<u64>,
}

/// The expected end of the push.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExpectedEnd {
    Swap,
    /// The request does not swap.
    Keep,
    /// The gate would hold the version.
    Hold,
    /// The push would fail with this message.
    Fail(String),
}

/// The kind of a push: of a whole table, or onto a version.
enum Way {
    Whole(PushRows),
    Onto(Layer),
}

/// The state of a dry run before it reads a row.
struct DryRunSetup<'a> {
    request: &'a PushRequest,
    ground: DryRunContext<'a>,
    table: Option<Table>,
    way: Way,
    /// The partitions' boundaries, if they are settled.
    boundaries: Option<Boundaries>,
    version: u64,
}

/// Runs a push without writing anything.
pub fn dry_run(
    request: &PushRequest,
    ground: DryRunContext<'_>,
    extent: Extent,
    progress: &dyn Progress,
) -> Result<Forecast, PushError> {
    let started = ground.clock.monotonic();
    let prepared = DryRunSetup::new(request, ground)?;
    let (encoder, looked) = prepared.look(extent, progress)?;
    let elapsed = || ground.clock.monotonic().saturating_sub(started);
    let opened = elapsed().saturating_sub(looked.took);
    let mut forecast = prepared.forecast(&encoder, looked, opened, progress)?;
    forecast.seconds = rounded(elapsed().as_secs_f64());
    Ok(forecast)
}

impl<'a> DryRunSetup<'a> {
    fn new(request: &'a PushRequest, ground: DryRunContext<'a>) -> Result<Self, PushError> {
        let now_ms = ground.clock.unix_ms();
        let table = table_of(ground.store, &request.table)?;
        let version = match ground.store {
            Some(store) => store.next_version(&request.table, request.version)?,
            None => request.version.unwrap_or(1),
        };
        let (way, boundaries) = match (request.onto, &table) {
            (None, _) => {
                let given = request.boundaries.as_ref();
                let given = given
                    .map(|given| given.of_order(request.order))
                    .transpose()?;
                (Way::Whole(PushRows::of(request, now_ms)?), given)
            }
            (Some(_), None) => {
                let table = request.table.clone();
                return Err(StoreError::NoTable { table }.into());
            }
            (Some(onto), Some(table)) => {
                let layer = Layer::new(request, onto, table, now_ms)?;
                let boundaries = layer.boundaries();
                (Way::Onto(layer), Some(boundaries))
            }
        };
        Ok(Self {
            request,
            ground,
            table,
            way,
            boundaries,
            version,
        })
    }

    fn open(&self, options: &SourceOptions) -> Result<OpenSources, PushError> {
        match &self.way {
            Way::Whole(rows) => rows.open(&self.request.sources, options),
            Way::Onto(layer) => layer.open(self.request, options),
        }
    }

    /// Opens and reads the sources, and repeats that if the types of text differ from the inferred
    /// ones.
    fn look(
        &self,
        extent: Extent,
        progress: &dyn Progress,
    ) -> Result<(RowEncoder, SeenSources), PushError> {
        let (request, hasher) = (self.request, self.hasher());
        // A sample is read quickly. Only a full reading is limited in rate, to spare other
        // programs.
        let rate_bytes = request.rate_bytes.filter(|_| extent == Extent::All);
        let throttle = Throttle::new(rate_bytes, Arc::clone(self.ground.clock));
        let lens = Lens {
            extent,
            threads: request.threads,
            memory_bytes: request.memory_bytes,
            keeps_first: request.duplicates == Duplicates::First,
            drawing: Drawing::AtRandom,
            drawn_rows: self.ground.look_ups,
            hasher: &hasher,
            throttle: &throttle,
            clock: &**self.ground.clock,
            random: self.ground.random,
        };
        let looking = SourceReader {
            plan: None,
            threads: request.threads,
            throttle: &throttle,
            progress,
        };
        let (options, open) = (&request.source_options, |options: &_| self.open(options));
        let opened = open(options)?;
        check_limits(request, &opened.1, self.table.as_ref())?;
        looking.read(options, opened, open, |sources, encoder| {
            look(sources, encoder, lens, progress)
        })
    }

    fn hasher(&self) -> KeyHasher {
        KeyHasher::new(format!("{}:", self.request.table).as_bytes())
    }

    fn layer(&self) -> Option<&Layer> {
        match &self.way {
            Way::Whole(_) => None,
            Way::Onto(layer) => Some(layer),
        }
    }

    /// Returns the version's manifest without its partitions.
    fn manifest(&self, encoder: &RowEncoder) -> Manifest {
        let source = self.request.sources.to_string();
        let draft = match &self.way {
            Way::Whole(rows) => {
                let boundaries = partitions::whole(self.request.order);
                let none = RowCounts {
                    runs: vec![None],
                    records: 0,
                    profile: &TableProfile::new(0),
                };
                rows.draft(encoder, self.request.order, &boundaries, none, source)
            }
            Way::Onto(layer) => {
                let base = layer.base.manifest();
                ManifestDraft::like(base, base.partitions.clone(), source)
            }
        };
        let now_ms = self.ground.clock.unix_ms();
        Manifest::from_draft(draft, self.request.table.clone(), self.version, now_ms)
    }
}

/// Returns the table, if it exists.
fn table_of(store: Option<&Store>, name: &TableName) -> Result<Option<Table>, PushError> {
    match store.map(|store| store.table(name)) {
        None | Some(Err(StoreError::NoTable { .. })) => Ok(None),
        Some(Err(error)) => Err(error.into()),
        Some(Ok(table)) => Ok(Some(table)),
    }
}

#[cfg(test)]
mod tests;
