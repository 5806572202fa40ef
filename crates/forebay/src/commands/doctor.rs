//! `forebay doctor`: checks the store, the machine and the cluster for problems.

use clap::Args;
use forebay_cluster::status::Health;
use serde_json::json;

use crate::context::Context;
use crate::doctor::{Finding, Severity, cluster, machine, store};
use crate::exit::Outcome;
use crate::printing::render::Columns;

/// Check the store, this machine, and all nodes of a cluster: rights, space, limits, conditional
/// writes, ports, clocks, certificates, versions, settings that differ
///
/// It writes one small file to the store and removes it. The exit code is that of 'cluster status
/// --check': 0 everything is fine, 1 there are warnings, 2 something failed. With --json one object
/// {verdict, findings}, where findings lists {check, verdict, found} and verdicts are ok, warning
/// and failed.
#[derive(Debug, Args)]
pub struct Doctor {}

pub fn run(context: &Context) -> anyhow::Result<Outcome> {
    let findings = examine(context)?;
    let worst = findings.iter().map(|finding| finding.verdict).max();
    let worst = worst.unwrap_or(Severity::Ok);
    let object = json!({"verdict": worst, "findings": findings});
    context.print(&object, || text(&findings))?;
    Ok(match worst {
        Severity::Ok => Outcome::Done,
        Severity::Warning => Outcome::Checked(Health::Degraded),
        Severity::Failed => Outcome::Checked(Health::Down),
    })
}

fn examine(context: &Context) -> anyhow::Result<Vec<Finding>> {
    let (found, opened) = store::opened(context);
    let mut findings = vec![found];
    if let Some(opened) = &opened {
        findings.push(store::writable(opened));
        findings.extend(store::tables(opened));
    }
    match context.is_remote() {
        true => findings.push(store::conditional_writes(context)),
        false => findings.push(machine::room(&*context.disk, &context.store_path()?)),
    }
    findings.push(machine::open_files());
    findings.push(machine::memory(&*context.disk));
    if opened.is_some() && context.is_clustered()? {
        findings.extend(cluster::all(context)?);
    }
    Ok(findings)
}

fn text(findings: &[Finding]) -> String {
    let mut columns = Columns::new(["", "check", "found"]);
    for finding in findings {
        let mark = match finding.verdict {
            Severity::Ok => "ok",
            Severity::Warning => "WARNING",
            Severity::Failed => "FAILED",
        };
        columns.row([
            mark.to_owned(),
            finding.check.to_owned(),
            finding.found.clone(),
        ]);
    }
    columns.to_string()
}
