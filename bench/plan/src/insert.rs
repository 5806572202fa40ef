//! The bulk insert planner: what its plans cost beside the bound, and how long they take.

use std::time::Instant;

use clap::Args;
use forebay_plan::insert::{Mode, Problem, solve};
use serde_json::{Value, json};

use crate::generate::{FAMILIES, instance};

#[derive(Debug, Args)]
pub struct Instances {
    #[arg(long)]
    machines: usize,
    #[arg(long)]
    partitions: usize,
    /// Instances of each family.
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// Only these families.
    #[arg(long, value_delimiter = ',')]
    families: Vec<String>,
}

#[derive(Debug, Args)]
pub struct Plan {
    #[command(flatten)]
    instances: Instances,
    #[arg(long)]
    mode: Mode,
    /// How long to polish each.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
}

impl Instances {
    fn each(&self, mut show: impl FnMut(&str, u64, &Problem) -> Value) {
        let wanted = |family: &&&str| {
            self.families.is_empty() || self.families.iter().any(|name| name == **family)
        };
        for family in FAMILIES.iter().filter(wanted) {
            for seed in 0..self.seeds {
                let problem = instance(family, self.machines, self.partitions, seed);
                println!("{}", show(family, seed, &problem));
            }
        }
    }
}

/// Plans each instance; one JSON line for each.
pub fn plan(args: &Plan) {
    args.instances.each(|family, seed, problem| {
        let started = Instant::now();
        let solution = solve(problem, args.mode, 1, &mut || {
            started.elapsed().as_secs_f64() >= args.seconds
        });
        json!({
            "family": family,
            "seed": seed,
            "milliseconds": started.elapsed().as_secs_f64() * 1e3,
            "cost": solution.cost,
            "lower_bound": solution.lower_bound,
            "cost_no_moves": problem.cost(&problem.homes()),
        })
    });
}

/// Prints the instances as `forebay plan insert` reads them, a line each.
pub fn dump(args: &Instances) {
    args.each(|family, seed, problem| {
        let part = |item: &forebay_plan::insert::InsertItem| {
            json!({"e": item.moving, "n": item.insert, "h": item.home})
        };
        json!({
            "name": format!("{family} {seed}"),
            "machines": problem.machines.len(),
            "partitions": problem.items.iter().map(part).collect::<Vec<_>>(),
        })
    });
}
