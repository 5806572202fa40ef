//! The arguments of `forebay plan place`.

use std::path::PathBuf;

use clap::Args;
use forebay_cluster::traffic::TrafficWindow;
use forebay_engine::TableName;
use forebay_plan::placement::replicas::Objective;
use forebay_plan::placement::report::Method;

use super::from_load::parse_window;
use crate::human;

/// Plan which node holds which partitions, from the load on them
///
/// Of a table of a cluster, so that the load that nodes measured lies evenly on them: of a live
/// table who leads which partition, and who holds it; of a batch table which partitions are on more
/// nodes, and on which. Nothing is changed: forebay cluster apply FILE --yes carries the plan out.
///
///   forebay plan place carts --from-load 1h --output plan.json --draw plan.svg
///
/// With --json {table, window, nodes, mean, bound, hottest_before, hottest_after, handed_over,
/// copies, copied_bytes, drops, batches, expected_s, partitions, note}.
///
/// With --input it reads one JSON object (docs/reference/placement-json.md describes it): nodes,
/// their slots or bytes, the load of each partition, and what stands where now. Prints what the
/// placement carries, how even it is, what a failure costs, what has to be shipped, and a drawing.
/// With --json one object {placement, R, capacity, copies_to_ship, measures, current, migration,
/// plan}.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct Place {
    /// A table of the cluster
    #[arg(required_unless_present = "input", requires = "from_load")]
    pub table: Option<TableName>,

    /// Of the table the load of the last minute, hour or day: 1m, 1h or 24h
    #[arg(long, value_name = "WINDOW", value_parser = parse_window, requires = "table")]
    pub from_load: Option<TrafficWindow>,

    /// How many replicas are copied at most [default: 20]
    #[arg(long, value_name = "N", requires = "table")]
    pub copies: Option<usize>,

    /// Of a batch table: by how much there may be more replicas in all than its --replicas make
    /// [default: 0.25]
    #[arg(long, value_name = "SHARE", value_parser = parse_spare, allow_hyphen_values = true, requires = "table")]
    pub spare: Option<f64>,

    /// Where the plan goes, for forebay cluster apply
    #[arg(long, value_name = "FILE", requires = "table")]
    pub output: Option<PathBuf>,

    /// How much is copied before the lists of what was copied change [default: 1G]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, requires = "table")]
    pub batch: Option<u64>,

    /// In place of a table a JSON file; - is standard input
    #[arg(long, value_name = "FILE", conflicts_with = "table")]
    pub input: Option<PathBuf>,

    /// Of a file. base, coarse, compact, balanced, complete or smooth: from nothing; migrate: from
    /// the current placement, for the least data shipped [default: smooth]
    #[arg(long)]
    pub scheme: Option<Method>,

    /// Of a file. What replicas are counted for: minmax, the least hottest replica; l1, the paper's
    /// [default: minmax]
    #[arg(long)]
    pub objective: Option<Objective>,

    /// The share of the best capacity that migrate has to reach; of a table nothing more is copied
    /// once the hottest node is that near to the least that is possible
    #[arg(long, value_name = "SHARE", value_parser = parse_share, default_value_t = 0.99)]
    pub share: f64,

    /// Draw the placement into an SVG file
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
