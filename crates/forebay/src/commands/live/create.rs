//! `forebay create`: creates an empty live table.

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
use crate::choices::{COMPRESSIONS, DELTAS, ORDERS};
use crate::commands::creating::StoreCreation;
use crate::context::Context;
use crate::exit::Outcome;
use crate::key::KeyForm;
use crate::printing::human::{self, parse_partitions};

/// Partitions of a hashed table in a cluster: enough for every node to lead some.
const IN_CLUSTER: u32 = 16;

/// Create a live table, which takes writes at any time
///
/// The table is empty; forebay load fills it, and clients of forebay serve write to it. A running
/// server serves it within a second. Its settings cannot be changed later. With --json one object
/// {table, mode, order, partitions, durability, ttl}, and store_created if there was no store; in a
/// cluster also {replicas, replication, led}.
///
/// In a cluster each partition has replicas on several nodes. A majority of them stores a write
/// before it is acknowledged. The command ends once all partitions take writes.
#[derive(Debug, Args)]
pub struct Create {
    /// The table's name; clients find its keys at TABLE:KEY
    #[arg(value_name = "TABLE")]
    pub table: TableName,

    /// Only live tables are created empty; forebay push creates batch tables
    #[arg(long, value_enum, default_value = "live")]
    pub mode: Mode,

    /// hashed for look-ups by key, ordered for ranges too
    #[arg(long, value_parser = ORDERS.parser(), default_value = "hashed")]
    pub order: Order,

    /// Number of partitions of a hashed table [default: 4, in a cluster 16]
    #[arg(long, value_name = "N", value_parser = parse_partitions)]
    pub partitions: Option<u32>,

    /// The first key of a partition of an ordered table; may be repeated
    #[arg(long, value_name = "KEY")]
    pub boundary: Vec<String>,

    #[command(flatten)]
    pub form: KeyForm,

    /// The values: bytes, rows of the given columns, or lists of items of the given type
    #[arg(long, value_enum, default_value = "bytes", help_heading = "Values")]
    pub value: ValueForm,

    /// What KV.DELTA does to values. Values are numbers, except with append; on the wire they are
    /// decimal text
    #[arg(long, value_parser = DELTAS.parser(), help_heading = "Values")]
    pub delta: Option<DeltaKind>,

    /// A column of the rows, such as 'score:int64' or 'name:text'; may be repeated
    #[arg(long, value_name = "NAME:TYPE", help_heading = "Values")]
    pub column: Vec<String>,

    /// The type of a list's items
    #[arg(long, value_name = "TYPE", help_heading = "Values")]
    pub item: Option<String>,

    /// When keys expire: this long after they were set (7d, 12h, 90m, 30s, 500ms), unless a command
    /// such as EXPIRE sets another time; per-key: only keys with such a command; never: no key can
    /// expire. [default: per-key; with --delta never, because expiry takes 8 bytes of each
    /// KV.DELTA]
    #[arg(
        long,
        value_name = "TIME|per-key|never",
        value_parser = parse_ttl,
        help_heading = "Values"
    )]
    pub ttl: Option<Expiry>,

    /// When a write is acknowledged: sync, once the device has it; a time such as 100ms, once the
    /// system has it, and the system syncs at that interval; os, once the system has it, without a
    /// sync
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

    /// The most bytes that merges write a second [default: no limit]
    #[arg(long, value_name = "SIZE", value_parser = human::parse_rate, help_heading = "Work")]
    pub merge_rate: Option<u64>,

    #[command(flatten)]
    pub replicas: ReplicaArgs,

    /// Create the store if it does not exist. Without this only ./forebay-data is created, for use
    /// without --store
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

/// Where a new table is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    Alone,
    Cluster,
}

/// Parses when keys expire.
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
