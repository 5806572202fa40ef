//! `forebay scan`: prints a table's records in their order.

use std::io::Write;
use std::ops::Bound;

use anyhow::bail;
use clap::Args;
use forebay_engine::{Scan as TableScan, Source};
use forebay_run::Order;
use forebay_run::scan::{Direction, ScanRange};

use crate::context::Context;
use crate::exit::Outcome;
use crate::key::KeyForm;
use crate::printing::render::Renderer;
use crate::target::Target;

/// Print the records of a table, those of an ordered table by key
///
/// One line for each record: the key, a tab, the value. With --json one object a line with "key",
/// or "key_hex" with --hex, and "value". A hashed table is printed in the order of its hashes, and
/// takes no bounds.
#[derive(Debug, Args)]
pub struct Scan {
    /// The table: its serving version, or the version V
    #[arg(value_name = "TABLE[@V]")]
    pub target: Target,

    /// First key, inclusive
    #[arg(long, value_name = "KEY")]
    pub from: Option<String>,

    /// End key, exclusive
    #[arg(long, value_name = "KEY")]
    pub to: Option<String>,

    /// Only keys that begin with this
    #[arg(long, value_name = "KEY", conflicts_with_all = ["from", "to"])]
    pub prefix: Option<String>,

    /// Stop after N records
    #[arg(long, value_name = "N")]
    pub limit: Option<u64>,

    /// Print from the last key to the first
    #[arg(long)]
    pub reverse: bool,

    #[command(flatten)]
    pub form: KeyForm,
}

pub fn run(args: &Scan, context: &Context) -> anyhow::Result<Outcome> {
    let opened = context.open_target(&args.target)?;
    let renderer = Renderer::new(opened.source());
    let mut scan = begin(args, opened.source())?;
    let mut left = args.limit.unwrap_or(u64::MAX);
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let mut line = Vec::new();
    while left > 0 && scan.advance()? {
        left -= 1;
        line.clear();
        if context.output.json {
            line.extend(if args.form.hex {
                &b"{\"key_hex\":"[..]
            } else {
                b"{\"key\":"
            });
            args.form.write_json(scan.key(), &mut line);
            line.extend(b",\"value\":");
            renderer.json(scan.value(), &mut line)?;
            line.push(b'}');
        } else {
            args.form.write(scan.key(), &mut line);
            line.push(b'\t');
            renderer.text(scan.value(), &mut line)?;
        }
        line.push(b'\n');
        out.write_all(&line)?;
    }
    out.flush()?;
    Ok(Outcome::Done)
}

fn begin(args: &Scan, source: Source<'_>) -> anyhow::Result<TableScan> {
    let direction = if args.reverse {
        Direction::Backward
    } else {
        Direction::Forward
    };
    if args.from.is_none() && args.to.is_none() && args.prefix.is_none() {
        return Ok(source.scan(ScanRange::all(), direction));
    }
    if source.order() == Order::Hashed {
        let how = match source {
            Source::Batch(_) => "push",
            Source::Live(_) => "create",
        };
        bail!(
            "table {} is hashed, so its keys have no order to take a range of: leave --from, \
             --to and --prefix out, or {how} it with --order ordered",
            source.table()
        );
    }
    let key = |text: &Option<String>| text.as_ref().map(|text| args.form.parse(text)).transpose();
    if let Some(prefix) = key(&args.prefix)? {
        return Ok(source.scan_prefix(&prefix, direction)?);
    }
    let (from, to) = (key(&args.from)?, key(&args.to)?);
    let from = from.as_deref().map_or(Bound::Unbounded, Bound::Included);
    let to = to.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
    Ok(source.scan_keys(from, to, direction)?)
}
