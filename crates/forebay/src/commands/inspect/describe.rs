//! `forebay describe`: shows the properties of a table.

use std::time::Duration;

use clap::Args;
use forebay_cluster::model::{GroupEntry, Model};
use forebay_engine::live::{Expiry, LiveOptions};
use forebay_engine::{
    Bounds, Manifest, PartitionId, Store, StoreError, TableName, Ttl, ValueKind, utc,
};
use forebay_run::Order;
use forebay_run::row::Schema;
use serde::Serialize;
use serde_json::{Value, json};

use super::column_figures;
use crate::choices::ORDERS;
use crate::context::Context;
use crate::exit::Outcome;
use crate::printing::human;
use crate::printing::render::Columns;

/// The most partitions that are shown to people.
const MOST_PARTITIONS: usize = 20;

/// Show a table's columns, keys, partitions, versions and nodes
///
/// With --json one object {table, mode, order, value, columns, partitions, rows, rows_least, bytes,
/// key, delta, ttl, created, backup, source, serving, previous, versions, figures, durability,
/// factor, compression}. `columns` lists {column, type, nullable}; `partitions` lists {partition,
/// from, to, rows, bytes, runs, nodes}, where `to` is exclusive and `nodes` are those of a cluster,
/// the leader or primary first. What the table or the store does not have is null.
#[derive(Debug, Args)]
pub struct Describe {
    /// The table
    pub table: TableName,
}

#[derive(Debug, Serialize)]
struct Description {
    table: TableName,
    mode: &'static str,
    order: Order,
    value: ValueKind,
    columns: Vec<Value>,
    partitions: Vec<PartitionRow>,
    rows: Option<u64>,
    rows_least: Option<u64>,
    bytes: Option<u64>,
    key: Option<String>,
    delta: Option<Value>,
    ttl: Option<Value>,
    created: Option<String>,
    backup: Option<String>,
    source: Option<String>,
    serving: Option<u64>,
    previous: Option<u64>,
    versions: Vec<u64>,
    figures: Vec<Value>,
    durability: Option<String>,
    factor: Option<u32>,
    compression: Option<Value>,
    /// Lines for people.
    #[serde(skip)]
    figure_lines: String,
}

#[derive(Debug, Serialize)]
struct PartitionRow {
    partition: PartitionId,
    from: String,
    /// Exclusive.
    to: Option<String>,
    rows: Option<u64>,
    bytes: Option<u64>,
    runs: Option<usize>,
    nodes: Vec<String>,
}

pub fn run(args: &Describe, context: &Context) -> anyhow::Result<Outcome> {
    let (store, name) = (context.open_store()?, &args.table);
    let model = match context.is_clustered()? {
        true => Some(context.cluster()?.client().model()?.1),
        false => None,
    };
    let live_groups = model.as_ref().and_then(|model| {
        let live = model.table(name)?.live()?;
        Some((model, live.options.clone(), model.groups.get(name)?))
    });
    let mut described = if let Some((model, options, groups)) = live_groups {
        let groups = groups.all().map(|group| of_group(group, model));
        Description::of_live(name, &options, groups.collect())
    } else if store.is_live(name)? {
        of_live(&store, name)?
    } else {
        of_batch(&store, name, model.as_ref())?
    };
    let backups = store.last_backups().unwrap_or_default();
    described.backup = backups.get(name).map(|last| utc(last.taken_unix_ms));
    context.print(&described, || described.text())?;
    Ok(Outcome::Done)
}

impl Description {
    fn new(name: &TableName, mode: &'static str, order: Order, of: (&ValueKind, &Schema)) -> Self {
        let columns = of.1.columns().iter().map(|column| {
            json!({
                "column": column.name,
                "type": column.kind.to_string(),
                "nullable": column.nullable,
            })
        });
        Self {
            table: name.clone(),
            mode,
            order,
            value: of.0.clone(),
            columns: columns.collect(),
            partitions: Vec::new(),
            rows: None,
            rows_least: None,
            bytes: None,
            key: None,
            delta: None,
            ttl: None,
            created: None,
            backup: None,
            source: None,
            serving: None,
            previous: None,
            versions: Vec::new(),
            figures: Vec::new(),
            durability: None,
            factor: None,
            compression: None,
            figure_lines: String::new(),
        }
    }

    fn of_live(name: &TableName, options: &LiveOptions, partitions: Vec<PartitionRow>) -> Self {
        let durability = options.durability.map(|durability| durability.to_string());
        Self {
            partitions,
            delta: options.delta.map(|delta| json!(delta)),
            ttl: Some(json!(match options.expiry {
                Expiry::AfterMs(ms) => {
                    let time = human::duration(Duration::from_millis(ms));
                    format!("{time} after the write")
                }
                other => other.to_string(),
            })),
            durability: Some(durability.unwrap_or_else(|| "none".to_owned())),
            factor: Some(options.factor),
            compression: Some(json!(options.compression)),
            ..Self::new(
                name,
                "live",
                options.order,
                (&options.value, &options.schema),
            )
        }
    }

    fn of_version(name: &TableName, manifest: &Manifest) -> Self {
        let partitions = manifest.partitions.iter();
        let partitions = partitions.map(|partition| {
            let files = partition.runs.iter();
            let files = files.map(|run| run.summary.file_bytes + run.summary.ext_bytes);
            PartitionRow {
                rows: Some(partition.totals.rows),
                bytes: Some(files.sum()),
                runs: Some(partition.runs.len()),
                ..PartitionRow::new(partition.id, &partition.bounds)
            }
        });
        let order = manifest.order;
        Self {
            partitions: partitions.collect(),
            rows: Some(manifest.rows_between().1),
            rows_least: Some(manifest.rows_between().0),
            bytes: Some(manifest.file_bytes()),
            key: Some(manifest.key.clone()),
            delta: manifest.delta.map(|delta| json!(delta)),
            ttl: manifest.ttl.as_ref().map(|ttl| json!(shown_ttl(ttl))),
            created: Some(utc(manifest.created_unix_ms)),
            source: Some(manifest.source.clone()),
            figures: column_figures::objects(&manifest.stats),
            figure_lines: column_figures::lines(&manifest.stats),
            ..Self::new(name, "batch", order, (&manifest.value, &manifest.schema))
        }
    }

    fn text(&self) -> String {
        let order = ORDERS.name_of(self.order);
        let partitions = human::counted(self.partitions.len() as u64, "partition");
        let mut lines = vec![format!(
            "{}: {}, {order}, {partitions}",
            self.table, self.mode
        )];
        let mut line = |name: &str, value: Option<String>| {
            lines.extend(value.map(|value| format!("{name:<12}{value}")));
        };
        let versions: Vec<String> = self.versions.iter().map(u64::to_string).collect();
        line(
            "serves",
            self.serving.map(|version| format!("version {version}")),
        );
        line(
            "rollback to",
            self.previous.map(|version| format!("version {version}")),
        );
        line(
            "versions",
            (!versions.is_empty()).then(|| versions.join(", ")),
        );
        let rows = self.rows.map(|most| match self.rows_least {
            Some(least) if least < most => {
                let (least, most) = (human::count(least), human::count(most));
                format!("{least} to {most}: exact once merged (forebay compact)")
            }
            _ => human::count(most),
        });
        // Several records of one key count separately until they are merged.
        line(
            if self.mode == "live" {
                "records"
            } else {
                "rows"
            },
            rows,
        );
        line("size", self.bytes.map(human::bytes));
        line("key", self.key.clone());
        line("value", Some(shown_value(&self.value)));
        line("deltas", self.delta.as_ref().map(plain));
        line("expires", self.ttl.as_ref().map(plain));
        line("durability", self.durability.clone());
        line("created", self.created.clone());
        line(
            "from",
            self.source.clone().filter(|source| !source.is_empty()),
        );
        line(
            "backup",
            Some(self.backup.clone().unwrap_or_else(|| "none".to_owned())),
        );
        lines.push(String::new());
        lines.push(self.columns_text());
        if !self.figure_lines.is_empty() {
            lines.push(format!("values:\n{}", self.figure_lines.trim_end()));
            lines.push(String::new());
        }
        lines.push(self.partitions_text());
        lines.join("\n")
    }

    fn columns_text(&self) -> String {
        let mut columns = Columns::new(["column", "type", "nulls"]);
        for column in &self.columns {
            let nulls = if column["nullable"] == true {
                "yes"
            } else {
                "no"
            };
            columns.row([
                plain(&column["column"]),
                plain(&column["type"]),
                nulls.to_owned(),
            ]);
        }
        columns.to_string()
    }

    fn partitions_text(&self) -> String {
        let mut columns = Columns::new(["partition", "from", "rows", "size", "runs", "nodes"]);
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        for row in self.partitions.iter().take(MOST_PARTITIONS) {
            columns.row([
                row.partition.to_string(),
                row.from.clone(),
                or_none(row.rows.map(human::count)),
                or_none(row.bytes.map(human::bytes)),
                or_none(row.runs.map(|runs| runs.to_string())),
                or_none((!row.nodes.is_empty()).then(|| row.nodes.join(", "))),
            ]);
        }
        let more = self.partitions.len().saturating_sub(MOST_PARTITIONS);
        match more {
            0 => columns.to_string(),
            more => format!("{columns}and {more} more: --json has all of them"),
        }
    }
}

impl PartitionRow {
    fn new(partition: PartitionId, bounds: &Bounds) -> Self {
        Self {
            partition,
            from: bounds.lower.to_string(),
            to: bounds.upper.as_ref().map(ToString::to_string),
            rows: None,
            bytes: None,
            runs: None,
            nodes: Vec::new(),
        }
    }
}

fn shown_value(value: &ValueKind) -> String {
    match value {
        ValueKind::Row => "the row: all columns".to_owned(),
        ValueKind::Bytes { column } => format!("column {column}"),
        ValueKind::Number { column, .. } => format!("column {column}, a number"),
        ValueKind::List { column, item } => format!("column {column}, lists of {item}"),
    }
}

fn shown_ttl(ttl: &Ttl) -> String {
    match ttl {
        Ttl::AfterMs(ms) => format!(
            "{} after the push",
            human::duration(Duration::from_millis(*ms))
        ),
        Ttl::Column(column) => format!("as column {column} says"),
    }
}

/// Formats a JSON value for people.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}

fn of_live(store: &Store, name: &TableName) -> Result<Description, StoreError> {
    let info = store.live_info(name)?;
    let partitions = info.partitions.iter().map(|content| PartitionRow {
        runs: Some(content.runs.len()),
        ..PartitionRow::new(content.range.id, &content.range.bounds)
    });
    Ok(Description {
        rows: Some(info.run_records),
        bytes: Some(info.file_bytes),
        created: Some(utc(info.created_unix_ms)),
        ..Description::of_live(name, &info.options, partitions.collect())
    })
}

fn of_group(group: &GroupEntry, model: &Model) -> PartitionRow {
    let nodes = group.peers.iter();
    let nodes = nodes.filter_map(|peer| Some(model.node(peer.node)?.name.to_string()));
    PartitionRow {
        nodes: nodes.collect(),
        ..PartitionRow::new(group.partition, &group.bounds)
    }
}

fn of_batch(
    store: &Store,
    name: &TableName,
    model: Option<&Model>,
) -> Result<Description, StoreError> {
    let table = store.table(name)?;
    let pointer = table.pointer()?;
    let versions = table.version_numbers()?;
    // A table without a serving version is shown as its newest version.
    let shown = pointer.serving.or(versions.last().copied());
    let shown = shown.ok_or_else(|| StoreError::NothingServes {
        table: name.clone(),
    })?;
    let manifest = table.manifest(shown)?;
    let mut described = Description::of_version(name, &manifest);
    described.serving = pointer.serving;
    described.previous = pointer.before();
    described.versions = versions;
    if let Some(model) = model {
        name_nodes(&mut described, &manifest, model);
    }
    Ok(described)
}

/// Adds the nodes of a cluster that have each partition.
fn name_nodes(described: &mut Description, manifest: &Manifest, model: &Model) {
    let layout = model.table(&manifest.table);
    let Some(layout) = layout.and_then(|entry| model.layout_of(entry)) else {
        return;
    };
    let named = |bounds: &Bounds| {
        let before = layout.ranges().filter(|range| range.lower <= bounds.lower);
        let nodes = before.last().map_or(&[][..], |range| &range.list);
        let names = nodes.iter();
        let names = names.filter_map(|id| Some(model.node(*id)?.name.to_string()));
        names.collect()
    };
    for (row, partition) in described.partitions.iter_mut().zip(&manifest.partitions) {
        row.nodes = named(&partition.bounds);
    }
}
