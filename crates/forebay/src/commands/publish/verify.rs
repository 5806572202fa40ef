//! `forebay verify`: reads a whole version back and checks it.

use anyhow::bail;
use clap::Args;
use forebay_engine::live::LiveTable;
use forebay_load::progress::Unit;
use serde_json::json;

use crate::context::Context;
use crate::error_kind::FoundDamage;
use crate::exit::Outcome;
use crate::printing::human;
use crate::target::Target;

/// Read a whole version back and check every checksum, count and order
///
/// With --json one object {table, version, rows, bytes, checksum}; for a live table, whose log is
/// read as well, {table, runs, records}.
#[derive(Debug, Args)]
pub struct Verify {
    /// The table: its serving version, or the version V
    #[arg(value_name = "TABLE[@V]")]
    pub target: Target,
}

pub fn run(args: &Verify, context: &Context) -> anyhow::Result<Outcome> {
    let name = &args.target.table;
    let is_live = context.is_live_in_cluster(name)? || context.open_store()?.is_live(name)?;
    if args.target.version.is_none() && is_live {
        return verify_live(&context.read_live(&args.target.table)?.table, context);
    }
    let table = context.open_table(&args.target.table)?;
    let version = context.version_of(&table, &args.target)?;
    let manifest = table.manifest(version)?;
    let drawing = context.progress();
    drawing.stage("verifying", Some(manifest.pages()), Unit::Pages);
    let report = table.verify(version, &mut |pages| drawing.advance(pages))?;
    drop(drawing);
    if let Some((first, more)) = report.problems.split_first() {
        let also: String = more
            .iter()
            .map(|problem| format!("\nalso: {problem}"))
            .collect();
        let bad = human::counted(report.problems.len() as u64, "problem");
        bail!(FoundDamage(format!(
            "version {version} of table {}, {bad}: {first}{also}",
            table.name()
        )));
    }
    let totals = report.totals;
    let object = json!({
        "table": table.name(),
        "version": version,
        "rows": totals.rows,
        "bytes": totals.bytes,
        "checksum": totals.content.to_string(),
    });
    context.print(&object, || {
        let rows = human::counted(totals.rows, "row");
        let runs = human::counted(report.runs as u64, "run");
        let table = table.name();
        let sum = totals.content;
        format!("{table} version {version} is sound: {rows} in {runs}, checksum {sum}")
    })?;
    Ok(Outcome::Done)
}

/// Verifies a live table. Opening it has read its log already.
fn verify_live(table: &LiveTable, context: &Context) -> anyhow::Result<Outcome> {
    let drawing = context.progress();
    drawing.stage("verifying", None, Unit::Pages);
    let (runs, problems) = table.verify(&mut |pages| drawing.advance(pages))?;
    drop(drawing);
    let name = table.name();
    if let Some((first, more)) = problems.split_first() {
        let also: String = more
            .iter()
            .map(|problem| format!("\nalso: {problem}"))
            .collect();
        bail!(FoundDamage(format!("{first}{also}")));
    }
    let records = table.stats().run_records;
    let object = json!({"table": name, "runs": runs, "records": records});
    context.print(&object, || {
        let (runs, records) = (
            human::counted(runs as u64, "run"),
            human::counted(records, "record"),
        );
        format!("{name} is sound: {records} in {runs}, and its log")
    })?;
    Ok(Outcome::Done)
}
