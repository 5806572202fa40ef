//! `forebay top`: shows the current requests of clients to servers.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{IsTerminal, stdout};
use std::time::Duration;

use anyhow::bail;
use clap::Args;
use forebay_cluster::HostPort;
use forebay_engine::utc;
use forebay_run::error::without_controls;
use serde::Serialize;
use serde_json::Value;

use crate::context::Context;
use crate::exit::Outcome;
use crate::nodes::node_pages::{KeyTop, NodeTop, PartitionTop, TableTop, UserTop};
use crate::printing::human;
use crate::printing::render::Columns;

/// The default address of a server's HTTP.
const HERE: &str = "127.0.0.1:7380";
/// How long the command waits for a node beyond the time for which the node samples.
const WITHIN: Duration = Duration::from_secs(2);
/// How many characters of a key are shown.
const MOST_KEY_CHARS: usize = 60;
const LEAST: Duration = Duration::from_millis(100);
const MOST: Duration = Duration::from_secs(10);
/// Moves to the upper left corner, and clears what is below.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Show the busiest tables, partitions, keys and users of servers
///
/// Servers sample commands while they are watched, and count each one if there are few; `estimated`
/// says which. Users, if the server has some, are shown only to administrators. With --json one
/// object each time {unix_ms, estimated, nodes, tables, partitions, keys, users, problems}. All
/// rates are per second; p50_us and p99_us are upper bounds in microseconds, the highest of all
/// nodes. A key that is not text is {"base64": "..."}; partitions that a node does not know are
/// null.
#[derive(Debug, Args)]
pub struct Top {
    /// Ask the server whose HTTP is at this address; may be repeated [default: the nodes of the
    /// store's cluster, or else 127.0.0.1:7380]
    #[arg(long, value_name = "HOST:PORT")]
    node: Vec<HostPort>,

    /// How long to watch each time: 100ms to 10s
    #[arg(long, value_name = "TIME", value_parser = parse_every, default_value = "2s")]
    every: Duration,

    /// How many partitions, keys and users to show, the busiest first
    #[arg(long, value_name = "N", value_parser = human::parse_count, default_value = "10")]
    limit: usize,

    /// Watch once, then end
    #[arg(long)]
    once: bool,
}

fn parse_every(text: &str) -> Result<Duration, String> {
    human::parse_within(text, LEAST, MOST)
}

/// The requests to all servers together.
#[derive(Debug, Default, Serialize)]
struct ServerTotals {
    unix_ms: u64,
    estimated: bool,
    nodes: Vec<NodeRow>,
    tables: Vec<TableTop>,
    partitions: Vec<PartitionTop>,
    keys: Vec<KeyTop>,
    users: Option<Vec<UserTop>>,
    /// The problem of each node that did not answer.
    problems: BTreeMap<String, String>,
}

#[derive(Debug, Serialize)]
struct NodeRow {
    node: String,
    /// Null for users who may not read all tables, as are all of these.
    commands_per_second: Option<f64>,
    errors_per_second: Option<f64>,
    input_bytes_per_second: Option<f64>,
    output_bytes_per_second: Option<f64>,
}

pub fn run(args: &Top, context: &Context) -> anyhow::Result<Outcome> {
    let pages = context.node_pages()?;
    let nodes = nodes(args, context)?;
    let asked: Vec<_> = nodes.iter().map(|(_, at)| at.clone()).collect();
    let clears = !context.output.json && stdout().is_terminal();
    loop {
        let answers = pages.tops(&asked, args.every, args.limit, WITHIN);
        let mut all = ServerTotals {
            unix_ms: context.clock.unix_ms(),
            ..ServerTotals::default()
        };
        for ((name, _), answer) in nodes.iter().zip(answers) {
            match answer {
                Ok(answer) => all.add(name, answer),
                Err(error) => drop(all.problems.insert(name.clone(), error.to_string())),
            }
        }
        if all.nodes.is_empty()
            && let Some((name, problem)) = all.problems.first_key_value()
        {
            match name == HERE && args.node.is_empty() {
                true => bail!("{name}: {problem}; --node HOST:PORT names another server's HTTP"),
                false => bail!("{name}: {problem}"),
            }
        }
        all.sort(args.limit);
        if clears {
            context.print_raw(CLEAR.as_bytes())?;
        }
        context.print(&all, || all.text())?;
        if args.once {
            return Ok(Outcome::Done);
        }
        // Nodes that did not answer may have failed at once.
        if !all.problems.is_empty() {
            context.clock.sleep(LEAST);
        }
    }
}

fn nodes(args: &Top, context: &Context) -> anyhow::Result<Vec<(String, HostPort)>> {
    let found = context.servers(&args.node)?;
    match found.is_empty() {
        true => Ok(vec![(
            HERE.to_owned(),
            HERE.parse().map_err(anyhow::Error::msg)?,
        )]),
        false => Ok(found),
    }
}

impl ServerTotals {
    fn add(&mut self, node: &str, top: NodeTop) {
        self.nodes.push(NodeRow {
            node: node.to_owned(),
            commands_per_second: top.commands_per_second,
            errors_per_second: top.errors_per_second,
            input_bytes_per_second: top.input_bytes_per_second,
            output_bytes_per_second: top.output_bytes_per_second,
        });
        self.estimated |= top.estimated;
        merge(&mut self.tables, top.tables, |one, more| {
            (one.table == more.table).then(|| one.add(more))
        });
        merge(&mut self.partitions, top.partitions, |one, more| {
            let is_same = (&one.table, one.partition) == (&more.table, more.partition);
            is_same.then(|| one.rates.add(&more.rates))
        });
        merge(&mut self.keys, top.keys, |one, more| {
            let is_same = (&one.table, &one.key) == (&more.table, &more.key);
            is_same.then(|| {
                one.partition = one.partition.or(more.partition);
                one.rates.add(&more.rates);
            })
        });
        if let Some(users) = top.users {
            let all = self.users.get_or_insert_default();
            merge(all, users, |one, more| {
                (one.user == more.user).then(|| one.keys_per_second += more.keys_per_second)
            });
        }
    }

    /// Sorts the busiest first, and keeps at most `limit` of what was sampled.
    fn sort(&mut self, limit: usize) {
        let by = |rate: f64| Reverse((rate * 10.0) as u64);
        self.tables.sort_by_key(|one| by(one.rates.sum()));
        self.partitions.sort_by_key(|one| by(one.rates.sum()));
        self.keys.sort_by_key(|one| by(one.rates.sum()));
        self.partitions.truncate(limit);
        self.keys.truncate(limit);
        if let Some(users) = &mut self.users {
            users.sort_by_key(|one| by(one.keys_per_second));
            users.truncate(limit);
        }
    }

    fn text(&self) -> String {
        let note = match self.estimated {
            true => "keys are estimated from samples",
            false => "every key was counted",
        };
        let mut text = format!("{}, {note}; all rates are a second\n\n", utc(self.unix_ms));
        for (node, problem) in &self.problems {
            _ = writeln!(text, "{node} does not answer: {problem}\n");
        }
        let sum: f64 = self.tables.iter().map(|table| table.rates.sum()).sum();
        let mut parts = vec![self.node_lines(), self.table_lines()];
        parts.extend([self.partition_lines(sum), self.key_lines(sum)]);
        parts.extend(self.users.as_deref().map(user_lines));
        let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        text + &parts.join("\n")
    }

    fn node_lines(&self) -> String {
        let size = |rate: f64| human::bytes(rate as u64);
        let or_unseen = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let mut lines = Columns::new(["node", "commands", "errors", "received", "sent"]);
        for node in &self.nodes {
            lines.row([
                node.node.clone(),
                or_unseen(node.commands_per_second.map(rate)),
                or_unseen(node.errors_per_second.map(rate)),
                or_unseen(node.input_bytes_per_second.map(size)),
                or_unseen(node.output_bytes_per_second.map(size)),
            ]);
        }
        lines.to_string()
    }

    fn table_lines(&self) -> String {
        if self.tables.is_empty() {
            return "no table was asked for\n".to_owned();
        }
        let head = [
            "table",
            "keys read",
            "written",
            "commands",
            "errors",
            "p50",
            "p99",
        ];
        let mut lines = Columns::new(head);
        for table in &self.tables {
            lines.row([
                table.table.clone(),
                rate(table.rates.reads_per_second),
                rate(table.rates.writes_per_second),
                rate(table.commands_per_second),
                rate(table.errors_per_second),
                bound(table.p50_us),
                bound(table.p99_us),
            ]);
        }
        lines.to_string()
    }

    fn partition_lines(&self, sum: f64) -> String {
        if self.partitions.is_empty() {
            return String::new();
        }
        let mut lines = Columns::new(["partition", "keys read", "written", "of all"]);
        for one in &self.partitions {
            lines.row([
                format!("{}/{}", one.table, one.partition),
                rate(one.rates.reads_per_second),
                rate(one.rates.writes_per_second),
                share(one.rates.sum(), sum),
            ]);
        }
        lines.to_string()
    }

    fn key_lines(&self, sum: f64) -> String {
        if self.keys.is_empty() {
            return String::new();
        }
        let mut lines = Columns::new(["key", "read", "written", "of all"]);
        for one in &self.keys {
            let key = match &one.key {
                Value::String(key) => key.clone(),
                key => key.to_string(),
            };
            // A key cannot break the line.
            let key = without_controls(&key);
            let key = match key.char_indices().nth(MOST_KEY_CHARS) {
                Some((end, _)) => format!("{}...", &key[..end]),
                None => key,
            };
            lines.row([
                format!("{}:{key}", one.table),
                rate(one.rates.reads_per_second),
                rate(one.rates.writes_per_second),
                share(one.rates.sum(), sum),
            ]);
        }
        lines.to_string()
    }
}

fn user_lines(users: &[UserTop]) -> String {
    let mut lines = Columns::new(["user", "keys"]);
    for user in users {
        lines.row([user.user.clone(), rate(user.keys_per_second)]);
    }
    lines.to_string()
}

/// Merges each element into the one that takes it, or appends it.
fn merge<T>(all: &mut Vec<T>, more: Vec<T>, mut take: impl FnMut(&mut T, &T) -> Option<()>) {
    for one in more {
        if all.iter_mut().find_map(|found| take(found, &one)).is_none() {
            all.push(one);
        }
    }
}

fn rate(rate: f64) -> String {
    match rate < 10.0 && rate > 0.0 {
        true => format!("{rate:.1}"),
        false => human::count(rate.round() as u64),
    }
}

fn share(part: f64, sum: f64) -> String {
    match sum > 0.0 {
        true => format!("{:.1}%", 100.0 * part / sum),
        false => String::new(),
    }
}

fn bound(us: Option<u64>) -> String {
    match us {
        None => "-".to_owned(),
        Some(us @ 0..1000) => format!("{us} µs"),
        Some(us @ 1000..1_000_000) => format!("{:.1} ms", us as f64 / 1000.0),
        Some(us) => format!("{:.1} s", us as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(reads: f64) -> NodeTop {
        let rates = json!({"reads_per_second": reads, "writes_per_second": 1.0});
        let with = |more: Value| {
            let mut object = rates.clone();
            let (Value::Object(all), Value::Object(more)) = (&mut object, more) else {
                panic!("objects");
            };
            all.extend(more);
            object
        };
        let table = with(json!({
            "table": "t", "commands_per_second": 5.0, "errors_per_second": 0.0,
            "p50_us": 4, "p99_us": reads as u64,
        }));
        serde_json::from_value(json!({
            "seconds": 1.0, "samples": 9, "estimated": reads > 20.0,
            "commands_per_second": 5.0, "errors_per_second": 0.0,
            "input_bytes_per_second": 2048.0, "output_bytes_per_second": 0.0,
            "tables": [table],
            "partitions": [with(json!({"table": "t", "partition": 3}))],
            "keys": [
                with(json!({"table": "t", "key": "a\u{1b}b", "partition": null})),
                with(json!({"table": "t", "key": format!("k{reads}"), "partition": 3})),
            ],
            "users": [{"user": "ada", "keys_per_second": 7.0}],
        }))
        .unwrap()
    }

    #[test]
    fn nodes_add_up() {
        let mut all = ServerTotals::default();
        all.add("n1", node(10.0));
        all.add("n2", node(3000.0));
        all.sort(2);
        assert!(all.estimated && all.nodes.len() == 2);
        let table = &all.tables[0];
        assert_eq!((table.rates.sum(), table.p99_us), (3012.0, Some(3000)));
        assert_eq!(all.partitions.len(), 1);
        // The third key is beyond the limit.
        let keys: Vec<_> = all.keys.iter().map(|key| key.rates.sum()).collect();
        assert_eq!(keys, [3012.0, 3001.0]);
        let text = all.text();
        assert!(text.contains("estimated") && text.contains("ada"), "{text}");
        assert!(text.contains("t/3        3,010      2.0"), "{text}");
        assert!(text.contains("3.0 ms"), "{text}");
    }
}
