//! `forebay plan`: the planners, one module a subcommand. They read a JSON file, and touch no
//! store.

pub mod insert;
pub mod place;
pub mod replicas;
pub mod workload;

use std::io::{self, Read, Write};
use std::path::Path;

use anyhow::{Context as _, anyhow};
use clap::{Args, Subcommand};
use serde::de::DeserializeOwned;

use crate::context::Context;
use crate::exit::Outcome;
use crate::result_file::ResultFile;

/// Columns of what is drawn in the terminal.
const WIDTH: usize = 110;

/// Plan splits, moves, replicas and placements; nothing is changed
#[derive(Debug, Args)]
pub struct Plan {
    #[command(subcommand)]
    pub planner: Planner,
}

#[derive(Debug, Subcommand)]
pub enum Planner {
    Insert(insert::Insert),
    Replicas(replicas::Replicas),
    Place(place::Place),
    Workload(workload::Workload),
}

pub fn run(args: &Plan, context: &Context) -> anyhow::Result<Outcome> {
    match &args.planner {
        Planner::Insert(args) => insert::run(args, context),
        Planner::Replicas(args) => replicas::run(args, context),
        Planner::Place(args) => place::run(args, context),
        Planner::Workload(args) => workload::run(args, context),
    }
}

/// Reads a planner's input: a file, or standard input for `-`.
fn read<T: DeserializeOwned>(path: &Path, context: &Context) -> anyhow::Result<T> {
    let text = if path == Path::new("-") {
        let mut text = Vec::new();
        io::stdin().lock().read_to_end(&mut text).map(|_| text)
    } else {
        context.disk.read(path)
    };
    let text = text.map_err(|error| anyhow!("cannot read {}: {error}", path.display()))?;
    forebay_plan::input::read(&text).with_context(|| path.display().to_string())
}

/// Writes a drawing; the file appears, or replaces the one of its name, when it is complete.
fn write(path: &Path, content: &[u8]) -> anyhow::Result<()> {
    let written = ResultFile::create(path).and_then(|mut file| {
        file.write_all(content)?;
        Ok(file.finish()?)
    });
    written.with_context(|| format!("cannot write {}", path.display()))
}
