//! `forebay plan workload`: draws loads from a distribution, as input for planners.

use clap::Args;
use forebay_plan::draw::{Picture, PictureRows, Stage, text};
use forebay_plan::placement::workload::{Distribution, Stream};
use serde_json::{Value, json};

use crate::choices::DISTRIBUTIONS;
use crate::context::Context;
use crate::error_kind::WrongLine;
use crate::exit::Outcome;

/// The most requests. Each is drawn separately.
const MOST_REQUESTS: u64 = 1_000_000_000;
const MOST_PARTITIONS: usize = 10_000_000;

/// Draw requests on partitions from a distribution, as input for the planners
///
/// The distribution's range, without the two ends that have a probability of 1e-7 each, is divided
/// into equal chunks, one for each partition. With --json one object {distribution, parameters,
/// partitions, requests, seed, shares, load}: the expected share of requests of each partition, and
/// the requests that it got.
#[derive(Debug, Args)]
#[command(allow_negative_numbers = true)]
pub struct Workload {
    #[arg(long, value_name = "DISTRIBUTION", value_parser = DISTRIBUTIONS.parser())]
    pub distribution: Distribution,

    /// The number of partitions
    #[arg(long, value_name = "P")]
    pub partitions: usize,

    /// The number of requests to draw
    #[arg(long, value_name = "Q", default_value_t = 30_000)]
    pub requests: u64,

    /// The seed: the same seed draws the same requests
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,

    /// For beta [default: 2]
    #[arg(long, value_name = "A")]
    pub alpha: Option<f64>,

    /// For beta [default: 2]
    #[arg(long, value_name = "B")]
    pub beta: Option<f64>,

    /// For normal [default: 0]
    #[arg(long, value_name = "MEAN")]
    pub mean: Option<f64>,

    /// The standard deviation, for normal [default: 1]
    #[arg(long, value_name = "D")]
    pub deviation: Option<f64>,

    /// For powerlaw [default: 3] and for gamma [default: 5]
    #[arg(long, value_name = "SHAPE")]
    pub shape: Option<f64>,

    /// For zipf [default: 1]
    #[arg(long, value_name = "E")]
    pub exponent: Option<f64>,
}

pub fn run(args: &Workload, context: &Context) -> anyhow::Result<Outcome> {
    if args.requests > MOST_REQUESTS {
        wrong!(
            "--requests: more than {MOST_REQUESTS} are not drawn one by one; draw fewer and scale them"
        );
    }
    if args.partitions > MOST_PARTITIONS {
        wrong!("--partitions: at most {MOST_PARTITIONS}");
    }
    let distribution = distribution(args)?;
    let shares = distribution.shares(args.partitions);
    let shares = shares.map_err(|problem| WrongLine(problem.to_string()))?;
    let load = Stream::new(&shares, args.seed).counts(args.requests);
    let object = object(args, &distribution, &shares, &load);
    context.print(&object, || terminal(args, &load))?;
    Ok(Outcome::Done)
}

/// Returns the distribution with its parameters. A parameter of another distribution is refused.
fn distribution(args: &Workload) -> anyhow::Result<Distribution> {
    let mut distribution = args.distribution;
    let mut parameters: Vec<(&str, &mut f64)> = match &mut distribution {
        Distribution::Uniform => Vec::new(),
        Distribution::Beta { alpha, beta } => vec![("alpha", alpha), ("beta", beta)],
        Distribution::Normal { mean, deviation } => vec![("mean", mean), ("deviation", deviation)],
        Distribution::PowerLaw { shape } | Distribution::Gamma { shape } => vec![("shape", shape)],
        Distribution::Zipf { exponent } => vec![("exponent", exponent)],
    };
    let given = [
        ("alpha", args.alpha),
        ("beta", args.beta),
        ("mean", args.mean),
        ("deviation", args.deviation),
        ("shape", args.shape),
        ("exponent", args.exponent),
    ];
    for (name, value) in given {
        let Some(value) = value else { continue };
        match parameters.iter_mut().find(|taken| taken.0 == name) {
            Some((_, parameter)) => **parameter = value,
            None => {
                let distribution = DISTRIBUTIONS.name_of(args.distribution);
                wrong!("--{name} is no parameter of {distribution}");
            }
        }
    }
    Ok(distribution)
}

fn object(args: &Workload, distribution: &Distribution, shares: &[f64], load: &[u64]) -> Value {
    let mut object = json!(distribution);
    object["partitions"] = json!(args.partitions);
    object["requests"] = json!(args.requests);
    object["seed"] = json!(args.seed);
    object["shares"] = json!(shares);
    object["load"] = json!(load);
    object
}

fn terminal(args: &Workload, load: &[u64]) -> String {
    let most = load.iter().copied().max().unwrap_or(0);
    let mean = args.requests as f64 / args.partitions as f64;
    let line = format!(
        "{}: {} requests on {} partitions, at most {most} on one, {:.2} x the mean",
        DISTRIBUTIONS.name_of(args.distribution),
        args.requests,
        args.partitions,
        if mean > 0.0 { most as f64 / mean } else { 0.0 }
    );
    let loads = load.iter().map(|&count| count as f64).collect();
    let picture = Picture {
        lines: vec![line],
        stages: vec![Stage::new("requests", 0, loads)],
        rows: PictureRows::Partitions,
        ..Picture::default()
    };
    text(&picture, super::WIDTH)
}
