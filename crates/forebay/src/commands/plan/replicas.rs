//! `forebay plan replicas`: plans the number of replicas of each partition.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use forebay_cluster::planning::{batch_loads_of, loads_of};
use forebay_cluster::traffic::TrafficWindow;
use forebay_engine::TableName;
use forebay_plan::draw::{Picture, PictureRows, Stage, svg, text};
use forebay_plan::placement::cluster::{Input, PlacementProblem};
use forebay_plan::placement::replicas::{Objective, objective_value};
use serde_json::json;

use super::from_load::{measured, parse_window};
use crate::context::Context;
use crate::exit::Outcome;

/// Plan how many replicas each partition gets, from their load
///
/// For a table of a cluster, the plan uses the load that its nodes measured, and keeps the total
/// number of replicas. It shows where the load is; use `plan place` to relieve nodes. A live table
/// keeps the number of replicas of its `cluster replicas`, and one replica of each partition
/// answers.
///
/// With --input it reads the same JSON object as `plan place` (docs/reference/placement-json.md),
/// of which nodes and load are required. It also needs total, the number of all replicas, and max,
/// the most replicas of one partition. With --json one object {R, objective}: the replicas of each
/// partition, and the hottest load per replica (minmax) or the paper's sum of differences of shares
/// (l1).
#[derive(Debug, Args)]
pub struct Replicas {
    /// A table of the cluster
    #[arg(required_unless_present = "input", requires = "from_load")]
    pub table: Option<TableName>,

    /// With a table, its load of the last minute, hour or day: 1m, 1h or 24h
    #[arg(long, value_name = "WINDOW", value_parser = parse_window, requires = "table")]
    pub from_load: Option<TrafficWindow>,

    /// A JSON file in place of a table; - is standard input
    #[arg(long, value_name = "FILE", conflicts_with = "table")]
    pub input: Option<PathBuf>,

    /// The objective to minimize: minmax, the hottest load per replica; l1, the paper's sum of |R_i
    /// / S - load_i / load|
    #[arg(long, default_value = "minmax")]
    pub objective: Objective,

    /// Draw loads and replicas to an SVG file
    #[arg(long, value_name = "FILE.svg")]
    pub draw: Option<PathBuf>,
}

pub fn run(args: &Replicas, context: &Context) -> anyhow::Result<Outcome> {
    let input = args.input.clone().unwrap_or_default();
    super::check_drawing(&input, args.draw.as_deref())?;
    let (read, name): (Input, String) = match (&args.table, args.from_load) {
        (Some(table), Some(window)) => (loads(table, window, context)?, table.to_string()),
        _ => (super::read(&input, context)?, input.display().to_string()),
    };
    let file = || name.clone();
    let cluster = read.check().with_context(file)?;
    let replicas = cluster
        .replicas(&cluster.loads, args.objective)
        .with_context(file)?;
    let value = objective_value(&cluster.loads, &replicas, args.objective);
    let picture = picture(&cluster, &replicas);
    if let Some(path) = &args.draw {
        super::write(&input, &[(path.clone(), svg(&picture))])?;
    }
    let object = json!({"R": replicas, "objective": value});
    context.print(&object, || text(&picture, super::WIDTH))?;
    Ok(Outcome::Done)
}

/// Returns the nodes and the partitions of a table as they are now.
fn loads(table: &TableName, window: TrafficWindow, context: &Context) -> anyhow::Result<Input> {
    let known = measured(table, context)?;
    let rates = match &known.batch {
        None => loads_of((&known.model, &known.survey), table, window)?,
        Some(summaries) => batch_loads_of(&known.model, summaries, &known.reads, (table, window))?,
    };
    let partitions = rates.loads.len();
    Ok(Input {
        name: Some(table.to_string()),
        nodes: rates.nodes,
        load: rates.loads,
        total: Some(partitions * rates.replicas),
        ..Input::default()
    })
}

fn picture(cluster: &PlacementProblem, replicas: &[usize]) -> Picture {
    let loads = &cluster.loads;
    let total: usize = replicas.iter().sum();
    let mean = loads.iter().sum::<f64>() / total.max(1) as f64;
    let value = |objective| objective_value(loads, replicas, objective);
    let hottest = value(Objective::MinMax);
    let each = loads
        .iter()
        .zip(replicas)
        .map(|(load, &count)| load / count.max(1) as f64);
    Picture {
        title: format!("{total} replicas of {} partitions", loads.len()),
        lines: vec![format!(
            "the hottest has {:.2} x the mean load per replica; shares of replicas and of load differ by \
             {:.4} in all",
            if mean > 0.0 { hottest / mean } else { 1.0 },
            value(Objective::L1)
        )],
        stages: vec![
            Stage::new("load", 0, loads.clone()),
            Stage::new(
                "replicas",
                1,
                replicas.iter().map(|&count| count as f64).collect(),
            ),
            Stage::new("load per replica", 2, each.collect()),
        ],
        rows: PictureRows::Partitions,
        ..Picture::default()
    }
}
