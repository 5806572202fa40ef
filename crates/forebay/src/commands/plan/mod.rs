//! `forebay plan`: the planners, one module for each subcommand.
//!
//! With --input they read a JSON file and no store. With a table they read its cluster and change
//! nothing.

mod from_load;
pub mod insert;
pub mod insert_args;
mod insert_table;
pub mod place;
mod place_args;
mod place_table;
pub mod replicas;
pub mod workload;

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use clap::{Args, Subcommand};
use forebay_plan::draw::{Picture, svg};
use serde::de::DeserializeOwned;

use crate::context::Context;
use crate::exit::Outcome;
use crate::printing::result_file::{ResultFile, is_no_file, is_same_file, is_stdout};

/// Columns of a drawing in the terminal.
const WIDTH: usize = 110;

/// Plan splits, moves, replicas and placements; nothing is changed
#[derive(Debug, Args)]
pub struct Plan {
    #[command(subcommand)]
    pub planner: Planner,
}

#[derive(Debug, Subcommand)]
pub enum Planner {
    Insert(Box<insert_args::Insert>),
    Replicas(replicas::Replicas),
    Place(place_args::Place),
    Workload(workload::Workload),
}

pub fn run(args: Plan, context: &Context) -> anyhow::Result<Outcome> {
    match args.planner {
        Planner::Insert(args) => insert::run(*args, context),
        Planner::Replicas(args) => replicas::run(&args, context),
        Planner::Place(args) => place::run(&args, context),
        Planner::Workload(args) => workload::run(&args, context),
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

/// Refuses a drawing that would go to standard output, where the plan goes, or replace the input.
fn check_drawing(input: &Path, drawing: Option<&Path>) -> anyhow::Result<()> {
    let Some(drawing) = drawing else {
        return Ok(());
    };
    if is_stdout(drawing) {
        wrong!(
            "--draw {}: standard output has the plan; name a file",
            drawing.display()
        );
    }
    if is_same_file(input, drawing) {
        wrong!(
            "--draw {} is the input, or the file of --output: name another one",
            drawing.display()
        );
    }
    let extension = drawing.extension();
    let is_svg = extension.is_some_and(|extension| extension.eq_ignore_ascii_case("svg"));
    if !is_svg && !is_no_file(drawing) {
        wrong!(
            "--draw {}: a drawing is SVG: give a name that ends in .svg",
            drawing.display()
        );
    }
    Ok(())
}

/// Writes drawings. Each file appears, or replaces the one of its name, when all are complete.
fn write(input: &Path, drawings: &[(PathBuf, String)]) -> anyhow::Result<()> {
    for (path, _) in drawings {
        check_drawing(input, Some(path))?;
    }
    write_files(drawings)
}

/// Writes files of any kind, as `write` does.
fn write_files(contents: &[(PathBuf, String)]) -> anyhow::Result<()> {
    let mut files = Vec::with_capacity(contents.len());
    for (path, content) in contents {
        let written = ResultFile::create(path).and_then(|mut file| {
            file.write_all(content.as_bytes())?;
            Ok(file)
        });
        let named = || format!("cannot write {}", path.display());
        files.push((path, written.with_context(named)?));
    }
    for (path, file) in files {
        let finished = file.finish();
        finished.with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// Returns the drawings of all regions with their file names.
fn drawings(pictures: &[Picture], path: &Path) -> Vec<(PathBuf, String)> {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let path_of = |region: usize| match region {
        0 => path.to_owned(),
        _ => path.with_file_name(format!("{stem}-{region}.svg")),
    };
    let drawn = pictures.iter().map(svg).enumerate();
    drawn.map(|(region, svg)| (path_of(region), svg)).collect()
}
