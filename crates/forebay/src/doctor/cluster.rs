//! Checks of a cluster and its nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use forebay_cluster::HostPort;
use forebay_cluster::model::{Model, NodeEntry};
use forebay_cluster::status::Health;
use forebay_io::{Clock, Net, OsNet, within};
use reqwest::Method;
use tokio::runtime::Builder;

use super::Finding;
use crate::commands::cluster::status;
use crate::context::Context;
use crate::error_kind::words;
use crate::nodes::node_http::NodeHttp;
use crate::printing::human::counted;

const CONNECT: Duration = Duration::from_secs(2);
/// The greatest clock skew: entries of logs, leases and expiries use the clocks of nodes.
const SKEW_S: u64 = 2;
/// The least remaining lifetime of certificates; others should be replaced now.
const CERTIFICATE_S: f64 = 14.0 * 86_400.0;

/// Runs all checks of the cluster that the store belongs to.
pub fn all(context: &Context) -> anyhow::Result<Vec<Finding>> {
    let cluster = context.cluster()?;
    let (_, model) = cluster.client().model()?;
    let mut findings = vec![health(context)?];
    findings.extend(ports(&model, context)?);
    findings.extend(programs(&model));
    findings.extend(settings(&model));
    findings.extend(pages(&model, context)?);
    Ok(findings)
}

fn health(context: &Context) -> anyhow::Result<Finding> {
    const CHECK: &str = "cluster";
    let cluster = context.cluster()?;
    let seen = match status::seen(cluster.client(), &context.node_pages()?) {
        Ok(seen) => seen,
        Err(error) => return Ok(Finding::failed(CHECK, words(&error))),
    };
    let [first, ..] = &seen.problems[..] else {
        let nodes = counted(seen.nodes.len() as u64, "node");
        return Ok(Finding::ok(CHECK, format!("{nodes}, no problem")));
    };
    let problems = counted(seen.problems.len() as u64, "problem");
    let found = format!("{problems}, the first: {first} (forebay cluster status)");
    Ok(match seen.health() {
        Health::Well | Health::Degraded => Finding::warning(CHECK, found),
        Health::Down | Health::NotKnown => Finding::failed(CHECK, found),
    })
}

/// Checks whether this machine reaches the ports of each node.
fn ports(model: &Model, context: &Context) -> anyhow::Result<Vec<Finding>> {
    const CHECK: &str = "ports";
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let mut findings = Vec::new();
    let mut reached = 0;
    for node in up(model) {
        for (what, at) in [
            ("clients", Some(&node.listen)),
            ("HTTP", node.http.as_ref()),
        ] {
            let Some(at) = at else {
                let text = format!(
                    "node {} has no HTTP port (serve --http): no status, no metrics, no backup of live tables",
                    node.name
                );
                findings.push(Finding::warning(CHECK, text));
                continue;
            };
            match runtime.block_on(connect(at, &*context.clock)) {
                Ok(()) => reached += 1,
                Err(why) => findings.push(Finding::failed(
                    CHECK,
                    format!("node {}, {what} at {at}: {why}", node.name),
                )),
            }
        }
    }
    if findings.is_empty() {
        findings.push(Finding::ok(
            CHECK,
            format!("{reached} ports of nodes can be reached from here"),
        ));
    }
    Ok(findings)
}

async fn connect(at: &HostPort, clock: &dyn Clock) -> Result<(), String> {
    let connecting = OsNet.connect(&at.host, at.port);
    match within(clock, CONNECT, connecting).await {
        None => Err("it did not answer in time".to_owned()),
        Some(connected) => connected.map(drop).map_err(|error| error.to_string()),
    }
}

fn programs(model: &Model) -> Vec<Finding> {
    let named = up(model).map(|node| (node.program.clone(), node.name.to_string()));
    vec![differ("programs", "version", named)]
}

/// Checks settings of nodes that should usually be equal.
fn settings(model: &Model) -> Vec<Finding> {
    let on_isolation = up(model).map(|node| {
        let text = match node.cut_off_ms {
            Some(ms) => format!("refuse:{}s", ms / 1000),
            None => "serve".to_owned(),
        };
        (text, node.name.to_string())
    });
    let ports = up(model).map(|node| (node.class_ports.len().to_string(), node.name.to_string()));
    vec![
        differ("--on-isolation", "value", on_isolation),
        differ("--class-ports", "number", ports),
    ]
}

/// Returns a warning if nodes have several values.
fn differ(
    check: &'static str,
    what: &str,
    named: impl Iterator<Item = (String, String)>,
) -> Finding {
    let mut by_value: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (value, node) in named {
        by_value.entry(value).or_default().insert(node);
    }
    let values = by_value.iter().map(|(value, nodes)| {
        let nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
        format!("{value} on {}", nodes.join(", "))
    });
    let values: Vec<String> = values.collect();
    match by_value.len() {
        0 => Finding::ok(check, "no node is up"),
        1 => Finding::ok(check, values.join("")),
        _ => Finding::warning(
            check,
            format!("nodes differ in {what}: {}", values.join("; ")),
        ),
    }
}

/// Checks clocks and certificates by the nodes' metrics.
fn pages(model: &Model, context: &Context) -> anyhow::Result<Vec<Finding>> {
    let http = NodeHttp::new(context.login()?, CONNECT)?;
    let mut findings = Vec::new();
    for node in up(model) {
        let Some(at) = &node.http else {
            continue;
        };
        let answer = http.ask(&Method::GET, at, "metrics", CONNECT);
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => {
                findings.push(Finding::failed(
                    "metrics",
                    format!("node {} at {at}: {error}", node.name),
                ));
                continue;
            }
        };
        let page = String::from_utf8_lossy(&answer.bytes).into_owned();
        findings.extend(certificate(node, &page));
        findings.extend(clock(node, answer.unix_s, context));
    }
    if !findings.iter().any(|finding| finding.check == "clocks") {
        findings.push(Finding::ok(
            "clocks",
            "no node is off by two seconds or more",
        ));
    }
    Ok(findings)
}

fn certificate(node: &NodeEntry, page: &str) -> Option<Finding> {
    const CHECK: &str = "certificates";
    let mut lines = page.lines();
    let line =
        lines.find_map(|line| line.strip_prefix("forebay_certificate_remaining_seconds "))?;
    let left: f64 = line.trim().parse().ok()?;
    let days = (left / 86_400.0).floor();
    let advice = "put a new one in its place, and send the node SIGHUP";
    Some(match left {
        ..=0.0 => Finding::failed(
            CHECK,
            format!("that of node {} has ended: {advice}", node.name),
        ),
        ..CERTIFICATE_S => Finding::warning(
            CHECK,
            format!("that of node {} ends in {days} days: {advice}", node.name),
        ),
        _ => Finding::ok(
            CHECK,
            format!("that of node {} ends in {days} days", node.name),
        ),
    })
}

fn clock(node: &NodeEntry, there_unix_s: Option<u64>, context: &Context) -> Option<Finding> {
    let here_unix_s = context.clock.unix_ms() / 1000;
    let off_s = there_unix_s?.abs_diff(here_unix_s);
    (off_s >= SKEW_S).then(|| {
        let text = format!(
            "that of node {} is {off_s} s off this machine's: expiries and times in logs go by it; run a time service on both",
            node.name
        );
        Finding::warning("clocks", text)
    })
}

fn up(model: &Model) -> impl Iterator<Item = &NodeEntry> {
    model.all_nodes().filter(|node| node.is_up())
}
