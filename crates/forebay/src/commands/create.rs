//! `forebay create`: makes an empty live table.

use anyhow::Context as _;
use clap::Args;
use forebay_engine::live::{Budget, Durability, Expiry, LiveDraft};
use forebay_engine::{TableName, ValueKind, show_key};
use forebay_load::sources::parse_schema;
use forebay_run::operation::DeltaKind;
use forebay_run::row::{Column, Kind, Schema};
use forebay_run::{Compression, Order};
use serde_json::json;

use super::create_in_cluster::{self, ReplicaArgs};
use super::creating::StoreCreation;
use crate::choices::{COMPRESSIONS, DELTAS, ORDERS};
use crate::context::Context;
use crate::exit::Outcome;
use crate::human::{self, parse_partitions};
use crate::key::KeyForm;

/// Partitions of a hashed table of a cluster: leaders of some are on every node.
const IN_CLUSTER: u32 = 16;

/// Make a live table, which takes writes at any time
///
/// It is empty; forebay load fills it, and clients of forebay serve write to it. A running server
/// serves it within a second. What it is made with stays as it is. With --json one object {table,
/// mode, order, partitions, durability, ttl}, and store_created where there was no store; in a
/// cluster {replicas, replication, led} too.
///
/// In a cluster each partition has replicas on several nodes: a majority of them has a write before
/// it is acknowledged. The command ends once all partitions take writes.
#[derive(Debug, Args)]
pub struct Create {
    /// The table's name: clients find its keys under TABLE:KEY
    #[arg(value_name = "TABLE")]
    pub table: TableName,

    /// Only live tables are made empty: forebay push makes batch tables
    #[arg(long, value_enum, default_value = "live")]
    pub mode: Mode,

    /// hashed for look-ups by key, ordered for ranges too
    #[arg(long, value_parser = ORDERS.parser(), default_value = "hashed")]
    pub order: Order,

    /// Number of partitions of a hashed table; 4 unless told otherwise, 16 in a cluster
    #[arg(long, value_name = "N", value_parser = parse_partitions)]
    pub partitions: Option<u32>,

    /// A key at which a partition of an ordered table begins; may be repeated
    #[arg(long, value_name = "KEY")]
    pub boundary: Vec<String>,

    #[command(flatten)]
    pub form: KeyForm,

    /// What is stored for a key: bytes, rows of the columns given, lists of the items given
    #[arg(long, value_enum, default_value = "bytes", help_heading = "Values")]
    pub value: ValueForm,

    /// What KV.DELTA does to the values, which are numbers but for append: decimal text on the wire
    #[arg(long, value_parser = DELTAS.parser(), help_heading = "Values")]
    pub delta: Option<DeltaKind>,

    /// A column of the rows: 'score:int64', 'name:text'; may be repeated
    #[arg(long, value_name = "NAME:TYPE", help_heading = "Values")]
    pub column: Vec<String>,

    /// The type of a list's items
    #[arg(long, value_name = "TYPE", help_heading = "Values")]
    pub item: Option<String>,

    /// When keys expire: so long after they were set (7d, 12h, 90m, 30s, 500ms), unless EXPIRE and
    /// its like say otherwise; per-key: those of which these say so; never: none can. Without it
    /// per-key, but never for a table with --delta, where expiry takes 8 bytes of each KV.DELTA
    #[arg(
        long,
        value_name = "TIME|per-key|never",
        value_parser = parse_ttl,
        help_heading = "Values"
    )]
    pub ttl: Option<Expiry>,

    /// When a write is acknowledged: sync when the device has it, or when the system has it, which
    /// is then synced every so many milliseconds (100ms), or left to the system (os)
    #[arg(
        long,
        value_name = "sync|<N>ms|os",
        default_value = "sync",
        help_heading = "Work"
    )]
    pub durability: Durability,

    /// How many runs are merged into one
    #[arg(
        long,
        value_name = "B",
        value_parser = clap::value_parser!(u32).range(2..=32),
        default_value_t = 4,
        help_heading = "Work"
    )]
    pub factor: u32,

    /// Merges write at most so many bytes a second [default: no limit]
    #[arg(long, value_name = "SIZE", value_parser = human::parse_rate, help_heading = "Work")]
    pub merge_rate: Option<u64>,

    #[command(flatten)]
    pub replicas: ReplicaArgs,

    /// Make the store where there is none. Without it only ./forebay-data is made, which is meant
    /// where no store is named
    #[arg(long)]
    pub create: bool,

    /// Compression of the pages
    #[arg(long, value_parser = COMPRESSIONS.parser(), default_value = "none", help_heading = "Work")]
    pub compression: Compression,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Mode {
    Live,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum ValueForm {
    Bytes,
    Row,
    List,
}

/// Whose table it is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    Alone,
    Cluster,
}

/// When keys expire.
fn parse_ttl(text: &str) -> Result<Expiry, String> {
    match text {
        "never" => Ok(Expiry::Never),
        "per-key" => Ok(Expiry::PerRecord),
        _ => match human::parse_lifetime(text) {
            Ok(time) => {
                let ms = u64::try_from(time.as_millis());
                ms.map(Expiry::AfterMs).map_err(|error| error.to_string())
            }
            Err(problem) => Err(format!("{problem}, or per-key, or never")),
        },
    }
}

pub fn run(args: &Create, context: &Context) -> anyhow::Result<Outcome> {
    if context.is_clustered()? {
        let draft = args.draft(Scope::Cluster)?;
        return create_in_cluster::run(&args.table, draft, &args.replicas, context);
    }
    args.replicas.refuse_alone()?;
    let draft = args.draft(Scope::Alone)?;
    let creating = match args.create {
        true => StoreCreation::Always,
        false => StoreCreation::Default,
    };
    let (store, store_created) = context.open_for_live(creating)?;
    let table = store.create_live(&args.table, draft, &Budget::new(0))?;
    let (options, name) = (table.options(), &args.table);
    let (order, partitions, durability) =
        (options.order, table.partitions().len(), args.durability);
    let ttl = options.expiry;
    let mut object = json!({
        "table": name,
        "mode": "live",
        "order": order,
        "partitions": partitions,
        "durability": durability.to_string(),
        "ttl": ttl.to_string(),
    });
    if store_created {
        object["store_created"] = json!(true);
    }
    context.print_done(Outcome::Done, &object, || {
        let partitions = human::counted(partitions as u64, "partition");
        let order = ORDERS.name_of(order);
        format!("{name} is made: live, {order}, {partitions}, durability {durability}, ttl {ttl}")
    })
}

impl Create {
    fn draft(&self, scope: Scope) -> anyhow::Result<LiveDraft> {
        let mut draft = match self.order {
            Order::Hashed if !self.boundary.is_empty() => {
                wrong!("--boundary is for ordered tables: give a hashed one --partitions")
            }
            Order::Hashed => match self.partitions {
                Some(partitions) => LiveDraft::hashed().partitions(partitions),
                None if scope == Scope::Cluster => LiveDraft::hashed().partitions(IN_CLUSTER),
                None => LiveDraft::hashed(),
            },
            Order::Ordered if self.partitions.is_some() => {
                wrong!(
                    "--partitions is for hashed tables: give an ordered one a --boundary for each partition \
                     but the first"
                )
            }
            Order::Ordered => LiveDraft::ordered(self.boundaries()?),
        };
        let options = &mut draft.options;
        (options.value, options.schema) = self.values()?;
        options.delta = self.delta;
        options.expiry = self.ttl.unwrap_or(match self.delta {
            None => Expiry::PerRecord,
            Some(_) => Expiry::Never,
        });
        options.durability = Some(self.durability);
        options.factor = self.factor;
        options.merge_bytes_per_second = self.merge_rate;
        options.compression = self.compression;
        Ok(draft)
    }

    fn boundaries(&self) -> anyhow::Result<Vec<Vec<u8>>> {
        let mut keys: Vec<Vec<u8>> = Vec::with_capacity(self.boundary.len());
        for text in &self.boundary {
            let key = self.form.parse(text).context("--boundary")?;
            match keys.last() {
                None if key.is_empty() => {
                    wrong!(
                        "--boundary '': the first partition begins there by itself; leave it out"
                    )
                }
                Some(before) if *before >= key => wrong!(
                    "--boundary {}: boundaries have to rise, and the one before is {}",
                    show_key(&key),
                    show_key(before)
                ),
                _ => keys.push(key),
            }
        }
        Ok(keys)
    }

    fn values(&self) -> anyhow::Result<(ValueKind, Schema)> {
        let column = "value".to_owned();
        if self.value != ValueForm::Bytes && self.delta.is_some() {
            wrong!("--delta is for tables of --value bytes");
        }
        if self.value != ValueForm::Row && !self.column.is_empty() {
            wrong!("--column is for tables of --value row");
        }
        if self.value != ValueForm::List && self.item.is_some() {
            wrong!("--item is for tables of --value list");
        }
        Ok(match self.value {
            ValueForm::Bytes => {
                let schema = Schema::new(vec![Column::new(&column, Kind::Binary, false)]);
                (ValueKind::Bytes { column }, schema)
            }
            ValueForm::Row if self.column.is_empty() => {
                wrong!(
                    "--value row: a table of rows needs its columns, as by --column name:text --column score:int64"
                )
            }
            ValueForm::Row => match parse_schema(&self.column) {
                Ok(schema) => (ValueKind::Row, schema),
                Err(problem) => wrong!("--column: {problem}"),
            },
            ValueForm::List => {
                let Some(item) = &self.item else {
                    wrong!(
                        "--value list: a table of lists needs the type of their items, as by --item text"
                    )
                };
                let item = match parse_schema(&[format!("item:{item}")]) {
                    Ok(item) => item,
                    Err(_) => wrong!(
                        "--item: '{item}' is no type of items: give one such as int64 or text"
                    ),
                };
                let item = item.columns()[0].clone();
                let kind = item.kind.clone();
                let list = Kind::List {
                    item: Box::new(item),
                    length: None,
                };
                let schema = Schema::new(vec![Column::new(&column, list, false)]);
                (ValueKind::List { column, item: kind }, schema)
            }
        })
    }
}
