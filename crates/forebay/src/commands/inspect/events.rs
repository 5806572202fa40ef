//! `forebay events`: lists changes of a store's tables and events that its nodes logged.

use std::collections::BTreeSet;
use std::time::Duration;

use clap::Args;
use forebay_cluster::HostPort;
use forebay_engine::{HistoryAction, HistoryEntry, Store, StoreError, TableName, utc};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::cluster_handle::is_no_store;
use crate::context::Context;
use crate::exit::Outcome;
use crate::nodes::node_pages::{NodeEvent, NodePages};
use crate::printing::human;

/// How long the command waits for a node.
const WITHIN: Duration = Duration::from_secs(5);
/// The time between two polls. In object storage each poll is a request.
const LOOK: Duration = Duration::from_secs(1);
const LOOK_FAR: Duration = Duration::from_secs(5);
/// How late an entry of the history may arrive: clocks of machines differ.
const LATE_MS: u64 = 600_000;
const MOST_SINCE: Duration = Duration::from_secs(10 * 365 * 86_400);

/// List pushes, swaps, rollbacks and drops of tables, and what nodes logged
///
/// The store keeps its last 1,000 pushes, swaps, rollbacks and drops. Each node keeps its last
/// 2,000 events since its start. With --json a line is an object {unix_ms, level, source, message,
/// fields}.
#[derive(Debug, Args)]
pub struct Events {
    /// Only events of this table
    table: Option<TableName>,

    /// Print new events as they occur, until interrupted
    #[arg(long)]
    follow: bool,

    /// Only events of the last such time: 30m, 2h, 7d
    #[arg(long, value_name = "TIME", value_parser = parse_since, default_value = "1d")]
    since: Duration,

    /// Also ask the server whose HTTP is at this address; may be repeated [default: the nodes of
    /// the store's cluster]
    #[arg(long, value_name = "HOST:PORT")]
    node: Vec<HostPort>,
}

fn parse_since(text: &str) -> Result<Duration, String> {
    human::parse_within(text, Duration::from_secs(1), MOST_SINCE)
}

/// An event in its printed form.
#[derive(Debug, Serialize)]
struct Line {
    unix_ms: u64,
    level: String,
    /// `store`, or a node.
    source: String,
    message: String,
    fields: Map<String, Value>,
}

/// The history of a store, as far as it was read.
struct StoreSource {
    store: Store,
    seen: BTreeSet<String>,
}

/// A server whose events the command reads.
struct NodeSource {
    name: String,
    at: HostPort,
    /// The number of the last event that was read.
    last: Option<u64>,
    /// Why the last request failed.
    problem: Option<String>,
}

pub fn run(args: &Events, context: &Context) -> anyhow::Result<Outcome> {
    let pages = context.node_pages()?;
    let mut since_ms = since(args, context);
    let mut store = open_store(args, context)?;
    let mut nodes = nodes(args, context)?;
    loop {
        let mut lines = Vec::new();
        if let Some(store) = &mut store {
            match store.read(since_ms, context, &mut lines) {
                Err(error) if args.follow => {
                    context.output.announce(&format!("the store: {error}"))
                }
                read => read?,
            }
        }
        read_nodes(&pages, &mut nodes, args.table.as_ref(), context, &mut lines);
        lines.retain(|line| line.unix_ms >= since_ms);
        print(args, lines, context)?;
        if !args.follow {
            return Ok(Outcome::Done);
        }
        since_ms = since_ms.max(context.clock.unix_ms().saturating_sub(LATE_MS));
        context.clock.sleep(match context.is_remote() {
            true => LOOK_FAR,
            false => LOOK,
        });
    }
}

fn since(args: &Events, context: &Context) -> u64 {
    let now_ms = context.clock.unix_ms();
    now_ms.saturating_sub(args.since.as_millis() as u64)
}

/// Opens the store, which may be missing if servers are named.
fn open_store(args: &Events, context: &Context) -> anyhow::Result<Option<StoreSource>> {
    match context.open_store() {
        Err(error) if is_no_store(&error) && !args.node.is_empty() => Ok(None),
        store => Ok(Some(StoreSource {
            store: store?,
            seen: BTreeSet::new(),
        })),
    }
}

/// Returns the named servers, or the nodes of the store's cluster.
fn nodes(args: &Events, context: &Context) -> anyhow::Result<Vec<NodeSource>> {
    let source = |(name, at)| NodeSource {
        name,
        at,
        last: None,
        problem: None,
    };
    let servers = context.servers(&args.node)?;
    Ok(servers.into_iter().map(source).collect())
}

impl StoreSource {
    /// Reads the new entries.
    fn read(
        &mut self,
        since_ms: u64,
        context: &Context,
        lines: &mut Vec<Line>,
    ) -> Result<(), StoreError> {
        let names = self.store.history_names(since_ms)?;
        for name in names.iter().filter(|name| !self.seen.contains(*name)) {
            match self.store.history_entry(name) {
                Ok(entry) => lines.extend(entry.map(of_entry)),
                Err(error) => context.output.announce(&error.to_string()),
            }
        }
        self.seen = names.into_iter().collect();
        Ok(())
    }
}

fn read_nodes(
    pages: &NodePages,
    nodes: &mut [NodeSource],
    table: Option<&TableName>,
    context: &Context,
    lines: &mut Vec<Line>,
) {
    let asked: Vec<_> = nodes
        .iter()
        .map(|node| (node.at.clone(), node.last))
        .collect();
    let answers = pages.events(&asked, table, WITHIN);
    for (node, answer) in nodes.iter_mut().zip(answers) {
        let problem = match answer {
            Ok(answer) => {
                if answer.gap {
                    let words = "events are missing here: it restarted, or too many came at once";
                    context
                        .output
                        .announce(&format!("node {}: {words}", node.name));
                }
                node.last = Some(answer.last);
                let events = answer.events.into_iter();
                lines.extend(events.map(|event| of_node(&node.name, event)));
                None
            }
            Err(error) => Some(error.to_string()),
        };
        if let Some(problem) = problem.as_ref().filter(|_| node.problem != problem) {
            context
                .output
                .announce(&format!("node {}: {problem}", node.name));
        }
        node.problem = problem;
    }
}

fn of_node(node: &str, event: NodeEvent) -> Line {
    Line {
        unix_ms: event.unix_ms,
        level: event.level,
        source: node.to_owned(),
        message: event.message,
        fields: event.fields,
    }
}

fn of_entry(entry: HistoryEntry) -> Line {
    let message = match (entry.action, &entry.problem) {
        (HistoryAction::Push, None) => "pushed",
        (HistoryAction::Push, Some(_)) => "pushed, and taken back",
        (HistoryAction::Swap, _) => "swapped",
        (HistoryAction::Rollback, _) => "rolled back",
        (HistoryAction::Compact, _) => "compacted",
        (HistoryAction::Drop, _) => "dropped",
        (HistoryAction::Undrop, _) => "restored after a drop",
        (HistoryAction::Held, _) => "held at the gate",
        (HistoryAction::Other, _) => "changed by a later version of forebay",
    };
    let level = if entry.problem.is_some() {
        "WARN"
    } else {
        "INFO"
    };
    let unix_ms = entry.unix_ms;
    let fields = match serde_json::to_value(entry) {
        Ok(Value::Object(mut fields)) => {
            fields.remove("unix_ms");
            fields
        }
        _ => Map::new(),
    };
    Line {
        unix_ms,
        level: level.to_owned(),
        source: "store".to_owned(),
        message: message.to_owned(),
        fields,
    }
}

fn print(args: &Events, mut lines: Vec<Line>, context: &Context) -> anyhow::Result<()> {
    if let Some(table) = &args.table {
        let table = Some(table.as_str());
        lines.retain(|line| line.fields.get("table").and_then(Value::as_str) == table);
    }
    lines.sort_by_key(|line| line.unix_ms);
    for line in lines {
        context.print(&line, || text(&line))?;
    }
    Ok(())
}

/// `TIME LEVEL SOURCE MESSAGE FIELD=VALUE...`, the table first.
fn text(line: &Line) -> String {
    let time = utc(line.unix_ms);
    let (level, source, message) = (&line.level, &line.source, &line.message);
    let mut text = format!("{time} {level:>5} {source}: ");
    if let Some(Value::String(table)) = line.fields.get("table") {
        text.push_str(table);
        text.push(' ');
    }
    text.push_str(message);
    let is_shown = |name: &str| !["table", "action"].contains(&name);
    for (name, value) in line.fields.iter().filter(|(name, _)| is_shown(name)) {
        text.extend([" ", name, "="]);
        match value {
            Value::String(word) if !word.contains(' ') => text.push_str(word),
            value => text.push_str(&value.to_string()),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_starts_with_the_table_and_names_the_user() {
        let entry = HistoryEntry {
            unix_ms: 0,
            table: TableName::new("people").unwrap(),
            action: HistoryAction::Held,
            from: Some(1),
            to: Some(2),
            user: "ada".to_owned(),
            host: "build-1".to_owned(),
            problem: Some("rows>-20%: rows fell by 90%".to_owned()),
        };
        assert_eq!(
            text(&of_entry(entry)),
            "1970-01-01T00:00:00Z  WARN store: people held at the gate from=1 host=build-1 \
             problem=\"rows>-20%: rows fell by 90%\" to=2 user=ada"
        );
    }
}
