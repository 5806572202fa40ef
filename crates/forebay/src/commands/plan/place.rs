//! `forebay plan place`: where replicas stand, and the way there.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use forebay_plan::draw::{svg, text};
use forebay_plan::placement::cluster::Input;
use forebay_plan::placement::replicas::Objective;
use forebay_plan::placement::report::{Method, report};

use crate::context::Context;
use crate::exit::Outcome;

/// Plan which node holds which partitions, from the load on them
///
/// Reads one JSON object (docs/plan.md describes it): nodes, their slots or bytes, the load of each
/// partition, and what stands where now. Prints what the placement carries, how even it is, what a
/// failure costs, what has to be shipped, and a drawing. With --json one object {placement, R,
/// capacity, copies_to_ship, measures, current, migration, plan}.
#[derive(Debug, Args)]
pub struct Place {
    /// The JSON file; - is standard input
    #[arg(long, value_name = "FILE")]
    pub input: PathBuf,

    /// base, coarse, compact, balanced, complete or smooth: from nothing; migrate: from the current
    /// placement, for the least data shipped
    #[arg(long, default_value = "smooth")]
    pub scheme: Method,

    /// What replicas are counted for: minmax, the least hottest replica; l1, the paper's
    #[arg(long, default_value = "minmax")]
    pub objective: Objective,

    /// The share of the best capacity that migrate has to reach
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

pub fn run(args: &Place, context: &Context) -> anyhow::Result<Outcome> {
    super::check_drawing(&args.input, args.draw.as_deref())?;
    let file = || args.input.display().to_string();
    let input: Input = super::read(&args.input, context)?;
    let cluster = input.check().with_context(file)?;
    let report = report(&cluster, args.scheme, args.objective, args.share).with_context(file)?;
    if let Some(path) = &args.draw {
        super::write(&args.input, &[(path.clone(), svg(&report.picture()))])?;
    }
    context.print(&report, || {
        let drawn = report
            .pictures()
            .map(|picture| text(&picture, super::WIDTH));
        drawn.join("")
    })?;
    Ok(Outcome::Done)
}
