//! A push as far as it writes nothing: what it would store, and what the gate would say.
//!
//! 1. The sources are opened, and the key template and the value checked against their columns, as
//!    in a push.
//! 2. `look`: rows are read and encoded (twice where the types of text turn out to be others:
//!    `super::looking`), all of them or a sample that is spread over the parts of the sources
//!    (`choose`). They are counted; some are drawn (`reservoir`), and of all the keys hashes are
//!    kept (`keys`).
//! 3. `trial`: the drawn rows are sorted and written as runs, in memory, by the code of a push.
//! 4. `forecast`: what was seen is scaled to all the rows, the drawn keys are looked up in the
//!    version that serves, and the gate is asked.
//!
//! No lock is taken and no file made. What fails before a push writes anything is the same error
//! here; what would make it fail later is told in the [`ExpectedEnd`].

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
use super::looking::{OpenSources, SourceReader};
use super::rejects::NotedRow;
use super::report::rounded;
use super::rows::{PushRows, RowCounts};
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

/// How much a dry run reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// 100,000 rows, or as many as can be read in ten seconds.
    Sample,
    All,
}

/// What a dry run has around it.
#[derive(Debug, Clone, Copy)]
pub struct DryRunContext<'a> {
    /// None where a push would make it.
    pub store: Option<&'a Store>,
    pub disk: &'a dyn Disk,
    pub clock: &'a Arc<dyn Clock>,
    pub random: &'a dyn Random,
    /// Where files would be written, a path that may not exist yet; none where that is not known.
    pub room_at: Option<&'a Path>,
    /// Keys to look up in the version that serves.
    pub look_ups: usize,
}

/// What a push would do, as far as was seen.
#[derive(Debug)]
pub struct Forecast {
    pub table: TableName,
    /// What the version would say of itself: number, value, columns and what was counted of them
    /// in the rows read, key, order. Its partitions do not count.
    pub manifest: Manifest,
    /// Rows that were read, and whether these are all.
    pub rows_read: u64,
    pub is_all: bool,
    pub seconds: f64,
    /// The first rows: keys, and values as they are stored; none where a row deletes.
    pub examples: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    /// As in [`super::PushReport`]; none where it cannot be told how many rows there are.
    pub rows_between: Option<(u64, u64)>,
    pub bytes: Option<u64>,
    /// Whether these two are counts.
    pub is_exact: bool,
    pub partitions: usize,
    /// Of a push onto another version, what the rows that come do.
    pub applied: Option<ComposedRows>,
    /// Bad rows among those read, and the first of them.
    pub rejected: u64,
    pub bad_rows: Vec<NotedRow>,
    /// Values that conversions changed among those read, as was asked for.
    pub lossy: Vec<Lossy>,
    /// Rows with the key of another row among those read.
    pub duplicates: u64,
    pub compared_with: Option<u64>,
    pub gate: Vec<Finding>,
    pub room: Room,
    /// How long the push would take, without waiting for the device.
    pub push_seconds: Option<f64>,
    pub outlook: ExpectedEnd,
}

/// Space on the device.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    pub needed_bytes: Option<u64>,
    pub free_bytes: Option<u64>,
}

/// How the push would end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExpectedEnd {
    Swap,
    /// It was asked not to swap.
    Keep,
    /// The gate would hold the version.
    Hold,
    /// With this message.
    Fail(String),
}

/// The two kinds of push.
enum Way {
    Whole(PushRows),
    Onto(Layer),
}

/// What is known before a row is read.
struct DryRunSetup<'a> {
    request: &'a PushRequest,
    ground: DryRunContext<'a>,
    table: Option<Table>,
    way: Way,
    /// Where partitions begin, where that is settled.
    boundaries: Option<Boundaries>,
    version: u64,
}

/// Tries a push. Writes nothing.
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

    /// Opens the sources and reads them, anew where the types of text are others than guessed.
    fn look(
        &self,
        extent: Extent,
        progress: &dyn Progress,
    ) -> Result<(RowEncoder, SeenSources), PushError> {
        let (request, hasher) = (self.request, self.hasher());
        // A sample is soon read; what reads all spares what else runs here.
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

    /// What the version would say of itself, but for its partitions.
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

/// The table, where there is one.
fn table_of(store: Option<&Store>, name: &TableName) -> Result<Option<Table>, PushError> {
    match store.map(|store| store.table(name)) {
        None | Some(Err(StoreError::NoTable { .. })) => Ok(None),
        Some(Err(error)) => Err(error.into()),
        Some(Ok(table)) => Ok(Some(table)),
    }
}

#[cfg(test)]
mod tests;
