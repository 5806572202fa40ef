//! `forebay plan place`: plans the placement of replicas and the moves to it.

use std::path::Path;

use anyhow::Context as _;
use forebay_plan::draw::{svg, text};
use forebay_plan::placement::cluster::Input;
use forebay_plan::placement::report::{Method, report};
use forebay_plan::placement::schemes::Scheme;

use super::place_args::Place;
use super::place_table;
use crate::context::Context;
use crate::exit::Outcome;

pub fn run(args: &Place, context: &Context) -> anyhow::Result<Outcome> {
    match (&args.input, &args.table, args.from_load) {
        (Some(input), _, _) => run_file(input, args, context),
        (None, Some(table), Some(window)) => place_table::run(table, window, args, context),
        _ => wrong!("give a table and --from-load, or --input FILE"),
    }
}

fn run_file(input: &Path, args: &Place, context: &Context) -> anyhow::Result<Outcome> {
    super::check_drawing(input, args.draw.as_deref())?;
    let file = || input.display().to_string();
    let read: Input = super::read(input, context)?;
    let cluster = read.check().with_context(file)?;
    let (scheme, objective) = (
        args.scheme.unwrap_or(Method::Scheme(Scheme::Smooth)),
        args.objective.unwrap_or_default(),
    );
    let report = report(&cluster, scheme, objective, args.share).with_context(file)?;
    if let Some(path) = &args.draw {
        super::write(input, &[(path.clone(), svg(&report.picture()))])?;
    }
    context.print(&report, || {
        let drawn = report
            .pictures()
            .map(|picture| text(&picture, super::WIDTH));
        drawn.join("")
    })?;
    Ok(Outcome::Done)
}
