//! `forebay plan replicas`: how many replicas each partition gets.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use forebay_plan::draw::{Picture, Stage, svg, text};
use forebay_plan::placement::cluster::{Cluster, Input};
use forebay_plan::placement::replicas::{Objective, objective_value};
use serde_json::json;

use crate::context::Context;
use crate::exit::Outcome;

/// Plan how many replicas each partition gets, from the load on them
///
/// Reads the same JSON object as `plan place` (docs/plan.md), of which nodes and load are enough
/// beside total, the number of all replicas, and max, the most of one partition. With --json one
/// object {R, objective}: the replicas of each partition, and the hottest load per replica (minmax)
/// or the paper's sum of differences of shares (l1).
#[derive(Debug, Args)]
pub struct Replicas {
    /// The JSON file; - is standard input
    #[arg(long, value_name = "FILE")]
    pub input: PathBuf,

    /// What is to be least: minmax, the hottest load per replica; l1, the paper's sum of |R_i / S -
    /// load_i / load|
    #[arg(long, default_value = "minmax")]
    pub objective: Objective,

    /// Draw loads and replicas into an SVG file
    #[arg(long, value_name = "FILE.svg")]
    pub draw: Option<PathBuf>,
}

pub fn run(args: &Replicas, context: &Context) -> anyhow::Result<Outcome> {
    super::check_drawing(&args.input, args.draw.as_deref())?;
    let file = || args.input.display().to_string();
    let input: Input = super::read(&args.input, context)?;
    let cluster = input.check().with_context(file)?;
    let replicas = cluster
        .replicas(&cluster.loads, args.objective)
        .with_context(file)?;
    let value = objective_value(&cluster.loads, &replicas, args.objective);
    let picture = picture(&cluster, &replicas);
    if let Some(path) = &args.draw {
        super::write(&args.input, &[(path.clone(), svg(&picture))])?;
    }
    let object = json!({"R": replicas, "objective": value});
    context.print(&object, || text(&picture, super::WIDTH))?;
    Ok(Outcome::Done)
}

fn picture(cluster: &Cluster, replicas: &[usize]) -> Picture {
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
        ..Picture::default()
    }
}
