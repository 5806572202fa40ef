//! The arguments of `forebay plan place`.

use std::path::PathBuf;

use clap::Args;
use forebay_cluster::traffic::TrafficWindow;
use forebay_engine::TableName;
use forebay_plan::placement::replicas::Objective;
use forebay_plan::placement::report::Method;

use super::from_load::parse_window;
use crate::printing::human;

/// Plan which node has which partitions, from their load
///
/// For a table of a cluster, the plan spreads the load that nodes measured. For a live table it
/// chooses the leader and the replicas of each partition. For a batch table it chooses which
/// partitions get more replicas, and on which nodes. Nothing is changed: forebay cluster apply FILE
/// --yes carries out the plan.
///
///   forebay plan place carts --from-load 1h --output plan.json --draw plan.svg
///
/// With --json {table, window, nodes, mean, bound, hottest_before, hottest_after, handed_over,
/// copies, copied_bytes, drops, batches, expected_s, partitions, note}.
///
/// With --input it reads one JSON object (docs/reference/placement-json.md describes it): nodes,
/// their slots or bytes, the load of each partition, and the current placement. Prints the load
/// that the placement can serve, its balance, the cost of a failure, the bytes to copy, and a
/// drawing. With --json one object {placement, R, capacity, copies_to_ship, measures, current,
/// migration, plan}.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct Place {
    /// A table of the cluster
    #[arg(required_unless_present = "input", requires = "from_load")]
    pub table: Option<TableName>,

    /// With a table, its load of the last minute, hour or day: 1m, 1h or 24h
    #[arg(long, value_name = "WINDOW", value_parser = parse_window, requires = "table")]
    pub from_load: Option<TrafficWindow>,

    /// The most replicas to copy [default: 20]
    #[arg(long, value_name = "N", requires = "table")]
    pub copies: Option<usize>,

    /// For a batch table: the most replicas beyond those of --replicas, as a share of all replicas
    /// [default: 0.25]
    #[arg(long, value_name = "SHARE", value_parser = parse_spare, allow_hyphen_values = true, requires = "table")]
    pub spare: Option<f64>,

    /// The file to write the plan to, for forebay cluster apply
    #[arg(long, value_name = "FILE", requires = "table")]
    pub output: Option<PathBuf>,

    /// How many bytes to copy before the preference lists of the copied ranges change [default: 1G]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, requires = "table")]
    pub batch: Option<u64>,

    /// A JSON file in place of a table; - is standard input
    #[arg(long, value_name = "FILE", conflicts_with = "table")]
    pub input: Option<PathBuf>,

    /// With --input. base, coarse, compact, balanced, complete or smooth: a new placement; migrate:
    /// from the current placement, with the fewest bytes copied [default: smooth]
    #[arg(long)]
    pub scheme: Option<Method>,

    /// With --input. The objective for the numbers of replicas: minmax, the least hottest replica;
    /// l1, the paper's [default: minmax]
    #[arg(long)]
    pub objective: Option<Objective>,

    /// The share of the best capacity that migrate must reach. With a table, copying ends once the
    /// hottest node is that close to the least possible load
    #[arg(long, value_name = "SHARE", value_parser = parse_share, default_value_t = 0.99)]
    pub share: f64,

    /// Draw the placement to an SVG file
    #[arg(long, value_name = "FILE.svg")]
    pub draw: Option<PathBuf>,
}

fn parse_share(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(share) if share > 0.0 && share <= 1.0 => Ok(share),
        _ => Err(format!("'{text}' is not a number above 0 and up to 1")),
    }
}

fn parse_spare(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(share) if (0.0..=10.0).contains(&share) => Ok(share),
        _ => Err(format!(
            "'{text}' is not a number from 0 to 10: 0.25 is a quarter more"
        )),
    }
}

fn parse_bytes(text: &str) -> Result<u64, String> {
    match human::parse_bytes(text)? {
        0 => Err("give 1 byte at least: write for example 64M, 1G".to_owned()),
        bytes => Ok(bytes),
    }
}
