//! `forebay versions`: lists the versions of a table.

use clap::Args;
use forebay_engine::{TableName, VersionInfo, utc};
use serde::Serialize;

use crate::context::Context;
use crate::exit::Outcome;
use crate::printing::human;
use crate::printing::render::Columns;

/// List the versions of a table, oldest first
///
/// A version may reuse the runs of another (push --onto). Its exact number of rows and its checksum
/// are known only once its runs are merged: forebay compact.
///
/// With --json an array of {version, rows, rows_least, bytes, created, serving, checksum, runs}; in
/// a cluster versions that were rolled back also have {rolled_back: true}.
#[derive(Debug, Args)]
pub struct Versions {
    pub table: TableName,
}

#[derive(Debug, Serialize)]
struct VersionRow {
    version: u64,
    /// The greatest possible number: newer runs may hide or remove rows of older ones.
    rows: u64,
    rows_least: u64,
    bytes: u64,
    created: String,
    serving: bool,
    /// Whether the version was rolled back in a cluster: a swap to it requires --force.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    rolled_back: bool,
    /// Null if it is not known without reading.
    checksum: Option<String>,
    /// The runs of the partition with the most.
    runs: usize,
    /// Present only if the manifest is damaged; then nothing else is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

pub fn run(args: &Versions, context: &Context) -> anyhow::Result<Outcome> {
    let infos = context.open_table(&args.table)?.versions()?;
    let bad = context.bad_versions(&args.table)?;
    let rows = infos.iter().map(|info| VersionRow::of(info, &bad));
    let rows: Vec<VersionRow> = rows.collect();
    context.print(&rows, || text(&infos, &bad))?;
    Ok(Outcome::Done)
}

impl VersionRow {
    fn of(info: &VersionInfo, bad: &[u64]) -> Self {
        Self {
            version: info.version,
            rows: info.rows_between.1,
            rows_least: info.rows_between.0,
            bytes: info.bytes,
            created: utc(info.created_unix_ms),
            serving: info.serving,
            rolled_back: bad.contains(&info.version),
            checksum: info.content.map(|content| content.to_string()),
            runs: info.runs_deep,
            problem: info.problem.clone(),
        }
    }
}

fn text(infos: &[VersionInfo], bad: &[u64]) -> String {
    let mut columns = Columns::new(["version", "rows", "bytes", "created", "checksum", "state"]);
    for info in infos {
        let state = match info {
            VersionInfo {
                problem: Some(problem),
                ..
            } => problem,
            VersionInfo { serving: true, .. } => "serving",
            VersionInfo { version, .. } if bad.contains(version) => "rolled back",
            VersionInfo { previous: true, .. } => "previous",
            _ => "kept",
        };
        columns.row([
            info.version.to_string(),
            rows(info.rows_between),
            human::bytes(info.bytes),
            utc(info.created_unix_ms),
            info.content
                .map_or("-".to_owned(), |content| content.to_string()),
            state.to_owned(),
        ]);
    }
    columns.to_string()
}

/// Formats the number of rows, as far as it is known.
pub fn rows((least, most): (u64, u64)) -> String {
    if least == most {
        human::count(most)
    } else {
        format!("{} to {}", human::count(least), human::count(most))
    }
}
