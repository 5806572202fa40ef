//! The output of `forebay push`.

use std::time::Duration;

use forebay_engine::TableName;
use forebay_load::convert::{Loss, Lossy};
use forebay_load::gate::{Finding, MOVED_MEANWHILE};
use forebay_load::push::{ComposedRows, PushReport};
use forebay_run::error::{named_column, without_controls};
use serde::Serialize;
use serde_json::Value;

use super::versions::rows;
use crate::commands::inspect::column_figures::objects;
use crate::printing::human;
use crate::rollout_result::RolloutResult;

/// The object that --json prints last.
#[derive(Debug, Serialize)]
pub struct PushResult<'a> {
    table: &'a TableName,
    version: u64,
    rows: u64,
    bytes: u64,
    rejected: u64,
    lossy: &'a [Lossy],
    duplicates: u64,
    seconds: f64,
    swapped: bool,
    /// Whether the command created the store.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    store_created: bool,
    gate: &'a [Finding],
    /// The statistics of each column.
    statistics: Vec<Value>,
    warnings: &'a [String],
    /// Why a cluster did not let the version serve.
    #[serde(skip_serializing_if = "Option::is_none")]
    undone: Option<&'a str>,
    /// The rollout, in a cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    rollout: Option<RolloutResult>,
    #[serde(flatten)]
    changes: Option<Changes>,
}

/// The counts of a push with --onto.
#[derive(Debug, Serialize)]
struct Changes {
    rows_least: u64,
    onto: u64,
    #[serde(flatten)]
    applied: ComposedRows,
}

impl<'a> PushResult<'a> {
    pub fn of(report: &'a PushReport, rollout: Option<RolloutResult>, store_created: bool) -> Self {
        let changes = report.onto.zip(report.applied);
        Self {
            table: &report.table,
            version: report.version,
            rows: report.rows_between.1,
            bytes: report.bytes,
            rejected: report.rejected,
            lossy: &report.lossy,
            duplicates: report.duplicates,
            seconds: report.seconds,
            swapped: report.swapped,
            store_created,
            gate: &report.gate,
            statistics: objects(&report.stats),
            warnings: &report.warnings,
            undone: report.undone.as_ref().map(|undone| undone.problem.as_str()),
            rollout,
            changes: changes.map(|(onto, applied)| Changes {
                rows_least: report.rows_between.0,
                onto,
                applied,
            }),
        }
    }
}

/// Returns the notes beside the result: warnings, differences that the gate only reports, and what
/// --force passed. [`held`] has the reason for which the gate held the version.
pub fn notes(report: &PushReport) -> Vec<String> {
    let shown = report.gate.iter().filter(|finding| match finding.passed {
        true => finding.reported && !report.held(),
        false => report.swapped,
    });
    let shown = shown.map(|finding| match finding.passed {
        true => format!("gate: {}", finding.seen),
        false => {
            let limit = without_controls(&finding.limit);
            format!("gate, passed over: {limit}: {}", finding.seen)
        }
    });
    let warnings = report.warnings.iter();
    warnings
        .map(|warning| format!("warning: {warning}"))
        .chain(shown)
        .collect()
}

/// Describes why the gate held the version, and what can be done.
pub fn held(report: &PushReport) -> String {
    let PushReport { table, version, .. } = report;
    let findings = findings(&report.gate);
    let look = match report.compared_with {
        Some(before) => {
            format!("  look at what changed:  forebay diff {table} {before} {version}\n")
        }
        None => String::new(),
    };
    let mut held = report.gate.iter().filter(|finding| !finding.passed);
    let is_only_moved = held.all(|finding| finding.limit == MOVED_MEANWHILE);
    let again = match remedies(&report.gate) {
        None if is_only_moved => "as before".to_owned(),
        None => "with --force".to_owned(),
        Some(limits) => format!("with --force, or {limits}"),
    };
    format!(
        "the gate holds version {version} of table {table}:\n{findings}The version is kept.\n{look}  \
         let it serve as it is: forebay swap {table} {version}\n  push again:            {again}"
    )
}

/// Describes the values that conversions changed, as requested, for people.
pub fn changed(lossy: &[Lossy]) -> String {
    let shown = |lossy: &Lossy| {
        let how = match lossy.how {
            Loss::None => "changed",
            Loss::Round => "rounded",
            Loss::Truncate => "truncated",
            Loss::Null => "made null",
            Loss::Utc => "taken for UTC",
        };
        let values = human::counted(lossy.values, "value");
        format!("; {}: {values} {how}", named_column(&lossy.column))
    };
    lossy.iter().map(shown).collect()
}

/// Describes the findings that held, then the reported ones. Findings that passed silently are left
/// out.
pub fn findings(gate: &[Finding]) -> String {
    let held = gate.iter().filter(|finding| !finding.passed);
    let held = held.map(|finding| {
        let limit = without_controls(&finding.limit);
        format!("  HELD {limit}: {}\n", finding.seen)
    });
    let shown = gate.iter().filter(|f| f.passed && f.reported);
    let shown = shown.map(|finding| format!("  also {}\n", finding.seen));
    held.chain(shown).collect()
}

/// Returns the limits with which all held findings would pass, as options.
pub fn remedies(gate: &[Finding]) -> Option<String> {
    let held = gate.iter().filter(|finding| !finding.passed);
    let quoted = |limit: &String| format!("--gate '{}'", limit.replace('\'', r"'\''"));
    let limits: Option<Vec<String>> = held
        .map(|finding| finding.remedy.as_ref().map(quoted))
        .collect();
    limits
        .filter(|limits| !limits.is_empty())
        .map(|limits| limits.join(" "))
}

/// Describes the result of the push for people.
pub fn summary(report: &PushReport) -> String {
    let PushReport { table, version, .. } = report;
    let rows = match report.rows_between {
        (least, most) if least < most => format!("{} rows", rows(report.rows_between)),
        (_, most) => human::counted(most, "row"),
    };
    let bytes = human::bytes(report.bytes);
    let time = human::duration(Duration::from_secs_f64(report.seconds.max(0.0)));
    let state = if report.swapped {
        "serves"
    } else {
        "is built and does not serve"
    };
    let mut text = format!("{table} version {version} {state}: {rows}, {bytes}, in {time}");
    if let (Some(onto), Some(applied)) = (report.onto, report.applied) {
        text += &format!("; onto version {onto}: {applied}");
    }
    if report.rejected > 0 {
        text += &format!("; {} rejected", human::counted(report.rejected, "bad row"));
    }
    text += &changed(&report.lossy);
    if report.duplicates > 0 {
        text += &format!(
            "; {} {}",
            human::counted(report.duplicates, "duplicate"),
            if report.onto.is_some() {
                "composed"
            } else {
                "left out"
            }
        );
    }
    text
}
