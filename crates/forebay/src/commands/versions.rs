//! `forebay versions`: the versions of a table.

use clap::Args;
use forebay_engine::{TableName, VersionInfo, utc};
use serde::Serialize;

use crate::context::Context;
use crate::exit::Outcome;
use crate::human;
use crate::render::Columns;

/// List the versions of a table, oldest first
///
/// With --json an array of {version, rows, bytes, created, serving, checksum}.
#[derive(Debug, Args)]
pub struct Versions {
    pub table: TableName,
}

#[derive(Debug, Serialize)]
struct Row {
    version: u64,
    rows: u64,
    bytes: u64,
    created: String,
    serving: bool,
    checksum: String,
    /// Only when its manifest is damaged, and then nothing else is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

pub fn run(args: &Versions, context: &Context) -> anyhow::Result<Outcome> {
    let infos = context.open_table(&args.table)?.versions()?;
    let rows: Vec<Row> = infos.iter().map(Row::of).collect();
    context.print(&rows, || text(&infos))?;
    Ok(Outcome::Done)
}

impl Row {
    fn of(info: &VersionInfo) -> Self {
        Self {
            version: info.version,
            rows: info.rows,
            bytes: info.bytes,
            created: utc(info.created_unix_ms),
            serving: info.serving,
            checksum: info.content.to_string(),
            problem: info.problem.clone(),
        }
    }
}

fn text(infos: &[VersionInfo]) -> String {
    let mut columns = Columns::new(["version", "rows", "bytes", "created", "checksum", "state"]);
    for info in infos {
        let state = match info {
            VersionInfo {
                problem: Some(problem),
                ..
            } => problem,
            VersionInfo { serving: true, .. } => "serving",
            VersionInfo { previous: true, .. } => "previous",
            _ => "kept",
        };
        columns.row([
            info.version.to_string(),
            human::count(info.rows),
            human::bytes(info.bytes),
            utc(info.created_unix_ms),
            info.content.to_string(),
            state.to_owned(),
        ]);
    }
    columns.to_string()
}
