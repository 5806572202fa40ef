//! `forebay create`: makes an empty live table.

use anyhow::{Context as _, bail};
use clap::Args;
use forebay_engine::live::{Budget, Durability, LiveOptions};
use forebay_engine::{TableName, ValueKind};
use forebay_load::sources::parse_schema;
use forebay_run::operation::DeltaKind;
use forebay_run::row::{Column, Kind, Schema};
use serde_json::json;

use crate::commands::push::{Compression, Order};
use crate::context::Context;
use crate::exit::Outcome;
use crate::human;

/// Make a live table, which takes writes at any time
///
/// It is empty; forebay load fills it, and clients of forebay serve write to it. A running server serves
/// it within a second. What it is made with stays as it is. With --json one object {table, mode, order,
/// partitions, durability}.
#[derive(Debug, Args)]
pub struct Create {
    pub table: TableName,

    /// Only live tables are made empty: forebay push makes batch tables
    #[arg(long, value_enum, default_value = "live")]
    pub mode: Mode,

    /// hashed for look-ups by key, ordered for ranges too
    #[arg(long, value_enum, default_value = "hashed")]
    pub order: Order,

    /// Number of partitions of a hashed table
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub partitions: u32,

    /// A key at which a partition of an ordered table begins; may be repeated
    #[arg(long, value_name = "KEY")]
    pub boundary: Vec<String>,

    /// What is stored for a key: bytes, rows of the columns given, lists of the items given
    #[arg(long, value_enum, default_value = "bytes", help_heading = "Values")]
    pub value: Value,

    /// What KV.DELTA adds; but for append the values are numbers, decimal text on the wire
    #[arg(long, value_enum, help_heading = "Values")]
    pub delta: Option<Delta>,

    /// A column of the rows: 'score:int64', 'name:text'; may be repeated
    #[arg(long, value_name = "NAME:TYPE", help_heading = "Values")]
    pub column: Vec<String>,

    /// The type of a list's items
    #[arg(long, value_name = "TYPE", help_heading = "Values")]
    pub item: Option<String>,

    /// When a write is acknowledged: sync when the device has it, or when the system has it, which is
    /// then synced every so many milliseconds (100ms), or left to the system (os)
    #[arg(
        long,
        value_name = "sync|<N>ms|os",
        default_value = "sync",
        help_heading = "Work"
    )]
    pub durability: Durability,

    /// How many runs are merged into one
    #[arg(long, value_name = "B", default_value_t = 4, help_heading = "Work")]
    pub factor: u32,

    /// Merges write at most so many bytes a second
    #[arg(long, value_name = "SIZE", value_parser = human::parse_bytes, help_heading = "Work")]
    pub merge_rate: Option<u64>,

    /// Compression of the pages
    #[arg(long, value_enum, default_value = "none", help_heading = "Work")]
    pub compression: Compression,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Mode {
    Live,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Value {
    Bytes,
    Row,
    List,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Delta {
    /// Integers, added; wraps around
    I64,
    /// Integers, added; stops at the least and the greatest
    I64Saturating,
    /// Floats, added
    F64,
    /// Bytes, joined
    Append,
    /// Integers, the lesser
    Min,
    /// Integers, the greater
    Max,
}

pub fn run(args: &Create, context: &Context) -> anyhow::Result<Outcome> {
    let options = args.options()?;
    let store = context.open_or_create_store()?;
    let table = store.create_live(&args.table, options, &Budget::new(0))?;
    let (options, name) = (table.options(), &args.table);
    let (order, partitions, durability) = (options.order, options.lowers.len(), args.durability);
    let object = json!({
        "table": name,
        "mode": "live",
        "order": order,
        "partitions": partitions,
        "durability": durability.to_string(),
    });
    context.print(&object, || {
        let partitions = human::counted(partitions as u64, "partition");
        let order = format!("{order:?}").to_lowercase();
        format!("{name} is made: live, {order}, {partitions}, durability {durability}")
    })?;
    Ok(Outcome::Done)
}

impl Create {
    fn options(&self) -> anyhow::Result<LiveOptions> {
        let mut options = match self.order {
            Order::Hashed if !self.boundary.is_empty() => {
                bail!("--boundary is for ordered tables: give a hashed one --partitions")
            }
            Order::Hashed => LiveOptions::hashed().partitions(self.partitions),
            Order::Ordered => {
                let keys = self.boundary.iter();
                LiveOptions::ordered(keys.map(|key| key.as_bytes().to_vec()).collect())
            }
        };
        (options.value, options.schema) = self.values()?;
        options.delta = self.delta.map(DeltaKind::from);
        options.durability = Some(self.durability);
        options.factor = self.factor;
        options.merge_bytes_per_second = self.merge_rate;
        options.compression = self.compression.into();
        Ok(options)
    }

    fn values(&self) -> anyhow::Result<(ValueKind, Schema)> {
        let column = "value".to_owned();
        if self.value != Value::Bytes && self.delta.is_some() {
            bail!("--delta is for tables of --value bytes");
        }
        if self.value != Value::Row && !self.column.is_empty() {
            bail!("--column is for tables of --value row");
        }
        if self.value != Value::List && self.item.is_some() {
            bail!("--item is for tables of --value list");
        }
        Ok(match self.value {
            Value::Bytes => {
                let schema = Schema::new(vec![Column::new(&column, Kind::Binary, false)]);
                (ValueKind::Bytes { column }, schema)
            }
            Value::Row if self.column.is_empty() => {
                bail!("a table of rows needs its columns: --column name:text --column score:int64")
            }
            Value::Row => (
                ValueKind::Row,
                parse_schema(&self.column).context("--column")?,
            ),
            Value::List => {
                let Some(item) = &self.item else {
                    bail!("a table of lists needs the type of their items: --item text")
                };
                let item = parse_schema(&[format!("item:{item}")]).context("--item")?;
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

impl From<Delta> for DeltaKind {
    fn from(delta: Delta) -> Self {
        match delta {
            Delta::I64 => Self::AddI64,
            Delta::I64Saturating => Self::AddI64Saturating,
            Delta::F64 => Self::AddF64,
            Delta::Append => Self::Append,
            Delta::Min => Self::Min,
            Delta::Max => Self::Max,
        }
    }
}
