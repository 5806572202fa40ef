//! `forebay push`: builds a version from files, verifies it and swaps it in.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use forebay_cluster::client::RolloutDraft;
use forebay_engine::{TableName, Ttl};
use forebay_load::encode::ValueChoice;
use forebay_load::gate::Limit;
use forebay_load::key::KeyTemplate;
use forebay_load::push::{
    BaseVersion, Extent, GivenBoundaries, PushError, PushReport, PushRequest, push,
};
use forebay_load::sort::Duplicates;
use forebay_load::sources::{Batches, Input};
use forebay_run::operation::DeltaKind;
use forebay_run::{Compression, Order};

use super::dry_run;
use super::push_in_cluster::PushInCluster;
use super::push_result::{PushResult, held, notes, summary};
use crate::choices::{COMPRESSIONS, DELTAS, DUPLICATES, EXTENTS, ORDERS};
use crate::commands::creating::{CreatingArgs, StoreCreation};
use crate::commands::inspect::reading::{SourceArgs, WorkArgs};
use crate::context::Context;
use crate::exit::Outcome;
use crate::printing::human;
use crate::rollout_args::RolloutArgs;
use crate::rollout_result::RolloutResult;

/// Build a version of a table from files, verify it and swap it in
///
/// The version is built beside the serving one and becomes visible all at once. Before the swap
/// every record is read back and compared with the source by count and checksum. The gate then
/// compares the version with the serving one. A push that fails or is killed leaves nothing
/// visible; the next push removes its files.
///
/// With --onto the version reuses the runs of another version, and the sources have only changes:
///
///   forebay push prices day2.csv --onto current --op what
///
/// With --json one object {table, version, rows, bytes, rejected, duplicates, seconds, swapped,
/// gate, statistics}. gate is a list of {limit, seen, passed}; statistics has the figures of each
/// column (docs/reference/column-limits.md). store_created is true if the command created the
/// store. With --onto also {rows_least, onto, updates, inserts, deletes, deltas}, and rows is the
/// greatest possible number. With --dry-run the exit code is that of the push, and
/// docs/reference/commands-push.md describes the object.
#[derive(Debug, Args)]
pub struct Push {
    /// The table; created if it does not exist
    pub table: TableName,

    /// Files, directories, globs ('days/*.parquet', quoted), s3://, gs://, az://, http:// or
    /// https:// URLs, or, for standard input, -
    #[arg(required = true, value_name = "SOURCE")]
    pub sources: Vec<String>,

    /// The key, as a template over columns: '{carrier}/{flight:05}' pads flight with zeros to five;
    /// {time:be} is eight bytes that sort as the numbers do
    #[arg(
        long,
        value_name = "TEMPLATE",
        required_unless_present = "onto",
        help_heading = "Rows"
    )]
    pub key: Option<KeyTemplate>,

    /// The value of a key: the whole row, or one column as it is
    #[arg(
        long,
        value_name = "row|COLUMN",
        default_value = "row",
        conflicts_with = "onto",
        help_heading = "Rows"
    )]
    pub value: String,

    /// What to do with rows of the same key; first and last are in the order of the sources. With
    /// --onto they are combined
    #[arg(
        long,
        value_parser = DUPLICATES.parser(),
        default_value = "fail",
        conflicts_with = "onto",
        help_heading = "Rows"
    )]
    pub duplicates: Duplicates,

    /// When rows expire, counted from the push: 7d, 12h, 90m, 30s. Expired rows read as absent
    #[arg(long, value_name = "TIME", value_parser = human::parse_lifetime, help_heading = "Rows")]
    pub ttl: Option<Duration>,

    /// The column that says when a row expires: a time, or a number of seconds after the push. A
    /// row with null never expires
    #[arg(
        long,
        value_name = "COLUMN",
        conflicts_with = "ttl",
        help_heading = "Rows"
    )]
    pub ttl_column: Option<String>,

    /// What deltas do to the values, declared now for later pushes with --onto. Except for append,
    /// values must be numbers, in one column (--value)
    #[arg(long, value_parser = DELTAS.parser(), help_heading = "Rows")]
    pub delta: Option<DeltaKind>,

    /// Build on the rows of another version, without rewriting them: the sources have only changes.
    /// Key, value, order, partitions, deltas and expiry are those of that version
    #[arg(long, value_name = "current|V", help_heading = "Changes")]
    pub onto: Option<BaseVersion>,

    /// The column with the operation of a row: insert (only if the key is absent), update, delete
    /// or delta. Without it all rows update. Rows of one key are combined in the order of the
    /// sources
    #[arg(
        long,
        value_name = "COLUMN",
        requires = "onto",
        help_heading = "Changes"
    )]
    pub op: Option<String>,

    #[command(flatten)]
    pub reading: SourceArgs,

    /// hashed for look-ups by key, ordered for ranges too
    #[arg(
        long,
        value_parser = ORDERS.parser(),
        default_value = "hashed",
        conflicts_with = "onto",
        help_heading = "Version"
    )]
    pub order: Order,

    /// Number of partitions, which are built, stored and served separately [default: by size]
    #[arg(
        long,
        value_name = "N",
        value_parser = human::parse_partitions,
        conflicts_with = "onto",
        help_heading = "Version"
    )]
    pub partitions: Option<u32>,

    /// Where the partitions begin, as a JSON array, or a file with one: keys of an ordered table
    /// ('["g", "p"]', or {"key_hex": "00ff"}), Redis slots of a hashed one ('[4096, 8192]')
    #[arg(
        long,
        value_name = "JSON|FILE",
        conflicts_with_all = ["onto", "partitions"],
        help_heading = "Version"
    )]
    pub boundaries: Option<String>,

    /// Number of the version, greater than all earlier ones [default: one more than the last]
    #[arg(long, value_name = "V", value_parser = human::parse_number::<u64>, help_heading = "Version")]
    pub version: Option<u64>,

    /// Compression of the pages
    #[arg(long, value_parser = COMPRESSIONS.parser(), default_value = "none", help_heading = "Version")]
    pub compression: Compression,

    /// Size of a page, the unit of one read: a power of two from 4k to 32k [default: 4k, 16k when
    /// compressed]
    #[arg(long, value_name = "SIZE", value_parser = parse_page_size, help_heading = "Version")]
    pub page_size: Option<u32>,

    #[command(flatten)]
    pub work: WorkArgs,

    /// Build and keep the version, but leave the serving one in place
    #[arg(long, help_heading = "Swap")]
    pub no_swap: bool,

    /// A limit for the change against the serving version, such as 'rows>-20%' or
    /// 'mean(price)<20%'; or the effect of a schema change, such as 'column-gone(note)=report'; may
    /// be repeated
    #[arg(long, value_name = "LIMIT", help_heading = "Swap")]
    pub gate: Vec<Limit>,

    /// Swap even if a limit is exceeded
    #[arg(long, help_heading = "Swap")]
    pub force: bool,

    #[command(flatten)]
    pub rollout: RolloutArgs,

    #[command(flatten)]
    pub creating: CreatingArgs,

    /// Write nothing, and show what the push would do: schema, examples, sizes, bad rows, the gate,
    /// space and time. Uses a sample of the rows, or all of them
    #[arg(
        long,
        value_parser = EXTENTS.parser(),
        value_name = "sample|all",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "sample",
        hide_possible_values = true,
        help_heading = "Swap"
    )]
    pub dry_run: Option<Extent>,

    /// Number of versions to keep; the serving and the previous one are always kept
    #[arg(
        long,
        value_name = "N",
        value_parser = human::parse_number::<usize>,
        default_value_t = 3,
        help_heading = "Swap"
    )]
    pub keep: usize,
}

pub fn run(args: Push, context: &Context) -> anyhow::Result<Outcome> {
    let (dry_run, creating) = (args.dry_run, args.creating.creating());
    let draft = args.draft(context)?;
    let request = args.request(context)?;
    carry_out(request, draft, (dry_run, creating), context)
}

/// Pushes batches in place of files. `args` has a placeholder for sources, which is ignored.
pub fn run_batches(args: Push, batches: Batches, context: &Context) -> anyhow::Result<Outcome> {
    let (dry_run, creating) = (args.dry_run, args.creating.creating());
    let draft = args.draft(context)?;
    let mut request = args.request(context)?;
    request.sources = Input::Batches(batches);
    carry_out(request, draft, (dry_run, creating), context)
}

fn carry_out(
    mut request: PushRequest,
    draft: RolloutDraft,
    (dry_run, creating): (Option<Extent>, StoreCreation),
    context: &Context,
) -> anyhow::Result<Outcome> {
    let drawing = Arc::new(context.progress());
    let cluster = context.cluster_if_any(draft.clone(), &drawing)?;
    let in_cluster = cluster.map(|cluster| PushInCluster::begin(cluster, &mut request, &draft));
    let in_cluster = in_cluster.transpose()?;
    let request = &request;
    if let Some(extent) = dry_run {
        context.check_for_push(creating)?;
        context.stop_drawing(drawing);
        return dry_run::run(request, extent, context);
    }
    if context.is_store_missing()? {
        let found = request.sources.check_paths(&request.source_options);
        found.map_err(PushError::Source)?;
    }
    let (store, store_created) = context.open_for_push(&drawing, creating)?;
    let pushed = push(request, &store, &**drawing);
    let report = pushed.map_err(anyhow::Error::from);
    let report = match store_created {
        true => report.with_context(|| context.store_made())?,
        false => report?,
    };
    let ranges = in_cluster.as_ref().map(|of| of.first_ranges(&report));
    for note in notes(&report)
        .into_iter()
        .chain(ranges.transpose()?.flatten())
    {
        drawing.message(&note);
    }
    match report.held() {
        // The reason for a non-zero exit code is printed even with --quiet.
        true if context.output.quiet => context.output.announce(&held(&report)),
        true => drawing.message(&held(&report)),
        false => {}
    }
    match &report.undone {
        Some(undone) if context.output.quiet => context.output.announce(&undone.problem),
        Some(undone) => drawing.message(&undone.problem),
        None => {}
    }
    // The drawing ends when its last holder is dropped.
    drop(store);
    context.stop_drawing(drawing);
    let rolled_out = in_cluster.map(|of| of.rolled_out()).transpose()?.flatten();
    let nodes = rolled_out
        .as_ref()
        .map_or(String::new(), RolloutResult::text);
    let excluded = rolled_out.as_ref().and_then(RolloutResult::left_out_text);
    let (outcome, pushed) = ended(&report, rolled_out, store_created);
    context.announce_though_quiet(excluded.filter(|_| outcome == Outcome::LeftOut));
    context.print_done(outcome, &pushed, || {
        format!("{}\n{nodes}", summary(&report))
    })
}

/// Returns how a push has ended, and its printed result.
pub fn ended(
    report: &PushReport,
    rolled_out: Option<RolloutResult>,
    store_created: bool,
) -> (Outcome, PushResult<'_>) {
    let left_some_out = rolled_out
        .as_ref()
        .is_some_and(RolloutResult::left_some_out);
    let outcome = match &report.undone {
        _ if report.held() => Outcome::Held,
        Some(undone) if undone.gave_way => Outcome::Held,
        Some(_) => Outcome::Undone,
        None if left_some_out => Outcome::LeftOut,
        None => Outcome::Done,
    };
    (outcome, PushResult::of(report, rolled_out, store_created))
}

impl Push {
    /// Returns how the push is rolled out in a cluster.
    pub fn draft(&self, context: &Context) -> anyhow::Result<RolloutDraft> {
        if self.rollout.is_given() && !context.is_clustered()? {
            wrong!(
                "--replicas, --deadline, --min-replicas and --on-failure are about the nodes of a cluster, and \
                 the store belongs to none (forebay cluster create)"
            );
        }
        Ok(self.rollout.draft(self.keep))
    }

    pub(crate) fn request(self, context: &Context) -> anyhow::Result<PushRequest> {
        let source_options = self.reading.options(context)?;
        let work = self.work.settle(context)?;
        let boundaries = self.boundaries.as_deref();
        let boundaries = boundaries.map(|text| read_boundaries(text, self.order, context));
        let boundaries = boundaries.transpose()?;
        Ok(PushRequest {
            table: self.table,
            sources: self.sources.into(),
            source_options,
            key: self.key,
            value: match self.value.as_str() {
                "row" => ValueChoice::Row,
                _ => ValueChoice::Column(self.value),
            },
            onto: self.onto,
            operation_column: self.op,
            delta: self.delta,
            ttl: match (self.ttl, self.ttl_column) {
                (Some(time), _) => Some(Ttl::AfterMs(time.as_millis() as u64)),
                (None, column) => column.map(Ttl::Column),
            },
            order: self.order,
            partitions: self.partitions,
            boundaries,
            cuts: Vec::new(),
            always_cut: false,
            compression: self.compression,
            page_bytes: self.page_size,
            duplicates: self.duplicates,
            bad_rows: work.bad_rows,
            memory_bytes: work.memory_bytes,
            threads: work.threads,
            rate_bytes: work.rate_bytes,
            version: self.version,
            limits: self.gate,
            force: self.force,
            swap: !self.no_swap,
            keep: self.keep,
        })
    }
}

/// Parses boundaries from the option or from a file.
fn read_boundaries(text: &str, order: Order, context: &Context) -> anyhow::Result<GivenBoundaries> {
    if text.trim_start().starts_with('[') {
        let given = GivenBoundaries::parse(text);
        let fits = |given: &GivenBoundaries| given.of_order(order).map(drop);
        return match given.and_then(|given| fits(&given).map(|()| given)) {
            Ok(given) => Ok(given),
            Err(problem) => wrong!("--boundaries: {problem}"),
        };
    }
    let bytes = context.disk.read(Path::new(text));
    let bytes = bytes.with_context(|| format!("--boundaries: cannot read {text}"))?;
    let given = GivenBoundaries::parse(&String::from_utf8_lossy(&bytes));
    Ok(given.map_err(PushError::from)?)
}

fn parse_page_size(text: &str) -> Result<u32, String> {
    let size = human::parse_bytes(text)?;
    match u32::try_from(size) {
        Ok(size @ (4096 | 8192 | 16384 | 32768)) => Ok(size),
        _ => Err(format!("a page has 4k, 8k, 16k or 32k, not {text}")),
    }
}
