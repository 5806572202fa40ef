//! `forebay tables`: lists the tables of the store.

use std::collections::BTreeMap;

use clap::Args;
use forebay_engine::{Store, StoreError, Table, TableName, utc};
use forebay_run::Order;
use serde::Serialize;

use crate::context::Context;
use crate::error_kind::ErrorKind;
use crate::exit::Outcome;
use crate::printing::human;
use crate::printing::render::Columns;

/// List the tables of the store
///
/// With --json an array of {table, mode, serving, versions, order, rows, bytes, created, backup}.
/// For a batch table rows, bytes and created are those of the serving version, and null with
/// serving if none serves. A table that is damaged or cannot be read also has {problem}, and
/// nothing else is known of it. For a live table rows are the records in its runs, without those
/// only in its log, and bytes the length of the runs; in a cluster, where the nodes have it, these
/// are null. backup is the time of the last backup (forebay backup). With --dropped it is an array
/// of {table, dropped, kept_until}.
#[derive(Debug, Args)]
pub struct Tables {
    /// List the dropped tables that are kept, which forebay undrop can restore
    #[arg(long)]
    pub dropped: bool,
}

/// One table of the list. The last four are those of the serving version.
#[derive(Debug, Serialize)]
struct TableRow {
    table: TableName,
    mode: &'static str,
    serving: Option<u64>,
    versions: usize,
    order: Option<Order>,
    rows: Option<u64>,
    bytes: Option<u64>,
    created: Option<String>,
    /// The time of the last backup, if there is one.
    backup: Option<String>,
    /// Present only if the table is damaged or cannot be read; then nothing else is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

/// One line of the list of dropped tables.
#[derive(Debug, Serialize)]
struct DroppedRow {
    table: TableName,
    dropped: String,
    kept_until: String,
}

fn list_dropped(store: &Store, context: &Context) -> anyhow::Result<Outcome> {
    let rows = store
        .dropped_tables()?
        .into_iter()
        .map(|dropped| DroppedRow {
            table: dropped.table,
            dropped: utc(dropped.dropped_unix_ms),
            kept_until: utc(dropped.until_unix_ms),
        });
    let rows: Vec<DroppedRow> = rows.collect();
    context.print(&rows, || {
        if rows.is_empty() {
            return "no dropped table is kept: forebay drop --keep-dropped keeps one".to_owned();
        }
        let mut columns = Columns::new(["table", "dropped", "kept until"]);
        for row in &rows {
            let table = row.table.to_string();
            columns.row([table, row.dropped.clone(), row.kept_until.clone()]);
        }
        columns.to_string()
    })?;
    Ok(Outcome::Done)
}

pub fn run(args: &Tables, context: &Context) -> anyhow::Result<Outcome> {
    let store = context.open_store()?;
    if args.dropped {
        return list_dropped(&store, context);
    }
    let mut rows = Vec::new();
    for name in store.tables()? {
        let described = store.table(&name).and_then(|table| describe(&table));
        rows.extend(or_unknown(name, "batch", described)?);
    }
    for name in store.live_tables()? {
        let described = describe_live(&store, &name);
        rows.extend(or_unknown(name, "live", described)?);
    }
    rows.extend(live_in_cluster(context)?);
    rows.sort_by(|a, b| a.table.cmp(&b.table));
    let backups = store.last_backups().unwrap_or_else(|error| {
        tracing::warn!(%error, "when tables were backed up is not known");
        BTreeMap::new()
    });
    for row in &mut rows {
        let last = backups.get(&row.table);
        row.backup = last.map(|last| utc(last.taken_unix_ms));
    }
    let in_cluster = rows.is_empty() && context.is_clustered()?;
    context.print(&rows, || text(&rows, in_cluster))?;
    Ok(Outcome::Done)
}

fn describe(table: &Table) -> Result<TableRow, StoreError> {
    let serving = table.pointer()?.serving;
    let manifest = serving.map(|version| table.manifest(version)).transpose()?;
    let manifest = manifest.as_ref();
    Ok(TableRow {
        table: table.name().clone(),
        mode: "batch",
        serving,
        versions: table.version_numbers()?.len(),
        order: manifest.map(|manifest| manifest.order),
        rows: manifest.map(|manifest| manifest.rows()),
        bytes: manifest.map(|manifest| manifest.bytes()),
        created: manifest.map(|manifest| utc(manifest.created_unix_ms)),
        backup: None,
        problem: None,
    })
}

/// Keeps a damaged or unreadable table from hiding the others. A table that was dropped meanwhile
/// is left out.
fn or_unknown(
    table: TableName,
    mode: &'static str,
    described: Result<TableRow, StoreError>,
) -> Result<Option<TableRow>, StoreError> {
    let error = match described {
        Ok(row) => return Ok(Some(row)),
        Err(StoreError::NoTable { .. }) => return Ok(None),
        Err(error) => error,
    };
    let is_of_table = matches!(error, StoreError::Io { .. });
    if !is_of_table && ErrorKind::of_store(&error) != ErrorKind::Damaged {
        return Err(error);
    }
    Ok(Some(TableRow {
        table,
        mode,
        serving: None,
        versions: 0,
        order: None,
        rows: None,
        bytes: None,
        created: None,
        backup: None,
        problem: Some(error.to_string()),
    }))
}

fn describe_live(store: &Store, name: &TableName) -> Result<TableRow, StoreError> {
    let info = store.live_info(name)?;
    Ok(TableRow {
        table: name.clone(),
        mode: "live",
        serving: None,
        versions: 0,
        order: Some(info.options.order),
        rows: Some(info.run_records),
        bytes: Some(info.file_bytes),
        created: Some(utc(info.created_unix_ms)),
        backup: None,
        problem: None,
    })
}

/// Returns the live tables of a cluster, which its nodes have and the store does not know.
fn live_in_cluster(context: &Context) -> anyhow::Result<Vec<TableRow>> {
    if !context.is_clustered()? {
        return Ok(Vec::new());
    }
    let (_, model) = context.cluster()?.client().model()?;
    let rows = model.live_tables().map(|(name, entry)| TableRow {
        table: name.clone(),
        mode: "live",
        serving: None,
        versions: 0,
        order: Some(entry.order),
        rows: None,
        bytes: None,
        created: None,
        backup: None,
        problem: None,
    });
    Ok(rows.collect())
}

fn text(rows: &[TableRow], in_cluster: bool) -> String {
    if rows.is_empty() {
        let create = if in_cluster {
            ""
        } else {
            ", or forebay create"
        };
        return format!("the store has no tables yet: forebay push makes one{create}");
    }
    let mut columns = Columns::new([
        "table", "mode", "serving", "versions", "rows", "bytes", "created", "backup",
    ]);
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    for row in rows {
        columns.row([
            row.table.to_string(),
            row.mode.to_owned(),
            or_none(row.serving.map(|version| version.to_string())),
            row.versions.to_string(),
            or_none(row.rows.map(human::count)),
            or_none(row.bytes.map(human::bytes)),
            or_none(row.problem.clone().or_else(|| row.created.clone())),
            or_none(row.backup.clone()),
        ]);
    }
    columns.to_string()
}
