//! `forebay load --insert rows` into a live table of a cluster.
//!
//! The command reads and sorts the rows. With a plan, the table's partitions are then split and
//! moved. Clients then send the rows to the nodes that lead the partitions.

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use forebay_cluster::HostPort;
use forebay_cluster::model::RolloutOptions;
use forebay_load::encode::Verb;
use forebay_load::load::{LoadReport, LoadRequest, stage_rows};
use forebay_load::push::ComposedRows;
use forebay_load::sort::{Arrangement, Duplicates};
use forebay_run::operation::DeltaKind;
use serde::Serialize;

use super::load_in_cluster::{LoadInCluster, ranges};
use crate::choices::{INSERT_WAYS, ROW_ORDERS};
use crate::cluster_handle::Drawing;
use crate::context::Context;
use crate::inserting::{InsertOptions, InsertTotals, InsertWay, RowOrder, insert_rows};
use crate::nodes::login::LoginArgs;
use crate::printing::human;

/// Rows of a request by default.
const BATCH_ROWS: usize = 512;
/// The most rows of a request. More would not be faster.
const MOST_BATCH_ROWS: usize = 65_536;
const MOST_CLIENTS: usize = 1024;
/// The default seed for shuffling rows.
const SEED: u64 = 1;

/// The options for sending rows.
#[derive(Debug, Clone, Args)]
pub struct RowsArgs {
    /// How rows are added to a live table of a cluster: as runs, which its nodes fetch and add; or
    /// as rows, each a separate write to the node that leads its partition
    #[arg(
        long,
        value_name = "runs|rows",
        value_parser = INSERT_WAYS.parser(),
        default_value = "runs",
        hide_possible_values = true,
        help_heading = "Insert"
    )]
    pub insert: InsertWay,

    /// The order in which rows are sent. sorted: by key, each partition by its own clients; random:
    /// shuffled by a seed; source: in the order of the source, which keeps rows of one key in order
    /// [default: sorted]
    #[arg(
        long,
        value_name = "sorted|random|source",
        value_parser = ROW_ORDERS.parser(),
        hide_possible_values = true,
        help_heading = "Insert"
    )]
    pub order: Option<RowOrder>,

    /// The seed of random order: the same seed and rows give the same order [default: 1]
    #[arg(long, value_name = "N", help_heading = "Insert")]
    pub seed: Option<u64>,

    /// The number of clients that send rows, each one request at a time [default: one for each
    /// available node]
    #[arg(long, value_name = "N", value_parser = human::parse_count, help_heading = "Insert")]
    pub clients: Option<usize>,

    /// How many rows to send in a request, of at most 1M bytes. Each row is still a separate write
    /// [default: 512]
    #[arg(long, value_name = "N", value_parser = human::parse_count, help_heading = "Insert")]
    pub batch_rows: Option<usize>,

    #[command(flatten)]
    pub login: LoginArgs,
}

impl RowsArgs {
    /// Returns the options for sending rows. `None`: the load builds runs.
    pub fn chosen(&self, request: &LoadRequest) -> anyhow::Result<Option<&Self>> {
        if self.insert == InsertWay::Runs {
            if let Some(option) = self.first_given() {
                wrong!("{option} goes with --insert rows: runs are built and added without it");
            }
            return Ok(None);
        }
        for (option, given, most) in [
            ("--clients", self.clients, MOST_CLIENTS),
            ("--batch-rows", self.batch_rows, MOST_BATCH_ROWS),
        ] {
            if given.is_some_and(|given| given == 0 || given > most) {
                wrong!("{option} is 1 to {most}");
            }
        }
        if self.seed.is_some() && self.order != Some(RowOrder::Random) {
            wrong!("--seed goes with --order random, which is made of it");
        }
        let takes_all = request.duplicates == Duplicates::Last;
        if self.order == Some(RowOrder::Source) && !takes_all {
            wrong!(
                "--order source sends each row, so that the last one of a key holds: leave --duplicates out, or \
                 choose --order sorted"
            );
        }
        Ok(Some(self))
    }

    fn first_given(&self) -> Option<&'static str> {
        let given = [
            (self.order.is_some(), "--order"),
            (self.seed.is_some(), "--seed"),
            (self.clients.is_some(), "--clients"),
            (self.batch_rows.is_some(), "--batch-rows"),
        ];
        let mut given = given.into_iter();
        given.find_map(|(is_given, name)| is_given.then_some(name))
    }

    fn arrangement(&self) -> Arrangement {
        match self.order.unwrap_or(RowOrder::Sorted) {
            RowOrder::Sorted => Arrangement::ByKey,
            RowOrder::Random => Arrangement::Shuffled(self.seed.unwrap_or(SEED)),
            RowOrder::Source => Arrangement::AsTheyCame,
        }
    }
}

/// The result of a load by rows.
#[derive(Debug, Serialize)]
pub struct RowsReport {
    /// The report of a load by runs; its rows are the rows written.
    #[serde(flatten)]
    pub load: LoadReport,
    pub insert: InsertReport,
}

/// How rows were sent.
#[derive(Debug, Serialize)]
pub struct InsertReport {
    order: &'static str,
    clients: usize,
    batch_rows: usize,
    #[serde(flatten)]
    totals: InsertTotals,
}

/// Reads the rows, has the plan carried out, and sends them. Returns when all are written.
pub fn carry_out(
    found: &LoadInCluster,
    request: &LoadRequest,
    args: &RowsArgs,
    context: &Context,
    drawing: &Drawing,
) -> anyhow::Result<RowsReport> {
    let started = context.clock.monotonic();
    let login = Arc::new(context.login()?);
    let table = &request.table;
    let store = context.open_to_merge(drawing)?;
    let (load, _) = found.begin(table, (&store, context, drawing))?;
    let arrangement = args.arrangement();
    check_deltas(found, request, arrangement)?;
    let mut rows = stage_rows(request, &store, load, arrangement, &***drawing)?;
    let groups = found.make_ready(table, &rows.sample(), context, drawing)?;
    let up = found.nodes_up()?;
    login.check_for(&up)?;
    let deadline = found.deadline.map(|time| time.as_millis() as u64);
    let deadline_ms = deadline.unwrap_or(RolloutOptions::default().deadline_ms);
    let options = InsertOptions {
        arrangement,
        clients: args.clients.unwrap_or(up.len().max(1)),
        batch_rows: args.batch_rows.unwrap_or(BATCH_ROWS),
        login,
        patience: Duration::from_millis(deadline_ms),
        rate_bytes: request.rate_bytes,
        has_deltas: request.verb == Verb::Delta || request.operation_column.is_some(),
    };
    let partitions = ranges(&groups);
    let (totals, duplicates) = match rows.rows() {
        // A load without rows has nothing to send.
        0 => (InsertTotals::default(), 0),
        _ => {
            let reported = (
                &context.clock,
                &***drawing as &dyn forebay_load::progress::Progress,
            );
            insert_rows(&mut rows, partitions, (table, up), &options, reported)?
        }
    };
    let mut report = LoadReport {
        table: table.clone(),
        rows: totals.rows(),
        bytes: totals.bytes,
        applied: ComposedRows {
            updates: totals.updates,
            inserts: totals.inserts,
            deletes: totals.deletes,
            deltas: totals.deltas,
        },
        rejected: rows.rejected(),
        lossy: rows.lossy().to_vec(),
        duplicates: rows.duplicates() + duplicates,
        seconds: 0.0,
    };
    report.took(context.clock.monotonic() - started);
    Ok(RowsReport {
        load: report,
        insert: InsertReport {
            order: ROW_ORDERS.name_of(args.order.unwrap_or(RowOrder::Sorted)),
            clients: options.clients,
            batch_rows: options.batch_rows,
            totals,
        },
    })
}

/// Refuses combined saturating additions. They are no longer an addition of the table's kind: a run
/// can store the result, a row cannot.
fn check_deltas(
    found: &LoadInCluster,
    request: &LoadRequest,
    arrangement: Arrangement,
) -> anyhow::Result<()> {
    let has_deltas = request.verb == Verb::Delta || request.operation_column.is_some();
    let is_saturating = found.options.delta == Some(DeltaKind::AddI64Saturating);
    if has_deltas && is_saturating && arrangement != Arrangement::AsTheyCame {
        wrong!(
            "table {} adds and saturates: rows of one key are added one by one then, by --order source or --insert runs",
            request.table
        );
    }
    Ok(())
}

impl LoadInCluster {
    /// Returns the client addresses of the available nodes.
    fn nodes_up(&self) -> anyhow::Result<Vec<HostPort>> {
        let (_, model) = self.cluster.client().model()?;
        let up = model.all_nodes().filter(|node| node.is_up());
        Ok(up.map(|node| node.listen.clone()).collect())
    }
}
