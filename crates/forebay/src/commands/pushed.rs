//! What `forebay push` says when it is done.

use std::time::Duration;

use forebay_engine::TableName;
use forebay_load::convert::{Loss, Lossy};
use forebay_load::push::{Applied, PushReport};
use serde::Serialize;

use super::versions::rows;
use crate::human;

/// The object that --json ends with.
#[derive(Debug, Serialize)]
pub struct Pushed<'a> {
    table: &'a TableName,
    version: u64,
    rows: u64,
    bytes: u64,
    rejected: u64,
    lossy: &'a [Lossy],
    duplicates: u64,
    seconds: f64,
    swapped: bool,
    #[serde(flatten)]
    changes: Option<Changes>,
}

/// What is more to say of a push onto another version.
#[derive(Debug, Serialize)]
struct Changes {
    rows_least: u64,
    onto: u64,
    #[serde(flatten)]
    applied: Applied,
}

impl<'a> Pushed<'a> {
    pub fn of(report: &'a PushReport) -> Self {
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
            changes: changes.map(|(onto, applied)| Changes {
                rows_least: report.rows_between.0,
                onto,
                applied,
            }),
        }
    }
}

/// Why the gate held the version, and what can be done.
pub fn held(report: &PushReport) -> String {
    let PushReport { table, version, .. } = report;
    let mut text = format!("the gate holds version {version} of table {table}:\n");
    for finding in &report.gate {
        let verdict = if finding.passed { "ok  " } else { "HELD" };
        text += &format!("  {verdict} {}: {}\n", finding.limit, finding.seen);
    }
    text + &format!(
        "The version is kept. Look at it with forebay diff; let it serve with forebay swap {table} \
         {version}, or push with --force or another --gate"
    )
}

/// What conversions changed, as was asked for, for people.
pub fn changed(lossy: &[Lossy]) -> String {
    let told = |lossy: &Lossy| {
        let how = match lossy.how {
            Loss::None => "changed",
            Loss::Round => "rounded",
            Loss::Truncate => "truncated",
            Loss::Null => "made null",
            Loss::Utc => "taken for UTC",
        };
        let values = human::counted(lossy.values, "value");
        format!("; {}: {values} {how}", lossy.column)
    };
    lossy.iter().map(told).collect()
}

/// What the push did, for people.
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
        let Applied {
            updates,
            inserts,
            deletes,
            deltas,
        } = applied;
        text += &format!(
            "; onto version {onto}: {updates} updates, {inserts} inserts, {deletes} deletes, {deltas} \
             deltas"
        );
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
