//! `forebay plan insert`: plans splits and moves before a bulk insert.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use forebay_plan::draw::text;
use forebay_plan::insert::{InsertPlan, Mode, Request, plan};

use super::insert_args::Insert;
use super::{drawings, insert_table};
use crate::context::Context;
use crate::exit::Outcome;

pub fn run(args: Insert, context: &Context) -> anyhow::Result<Outcome> {
    if args.seconds.is_some() && args.mode != Mode::Polish {
        wrong!("--seconds goes with --mode polish: the other modes take as long as they take");
    }
    match (&args.input, &args.table) {
        (Some(input), _) => run_file(input, &args, context),
        (None, Some(table)) => {
            let table = table.clone();
            insert_table::run(table, args, context)
        }
        (None, None) => wrong!("give a table and sources, or --input FILE"),
    }
}

fn run_file(input: &Path, args: &Insert, context: &Context) -> anyhow::Result<Outcome> {
    if let Some(option) = args.of_table.first_given() {
        wrong!(
            "{option} is about a table's sources, and --input gives all there is: leave one out"
        );
    }
    super::check_drawing(input, args.draw.as_deref())?;
    let file = input.display();
    let started = context.clock.monotonic();
    let request: Request = super::read(input, context)?;
    let time = args.seconds.unwrap_or_else(|| polish_time(&request));
    let over = &mut || context.clock.monotonic().saturating_sub(started) >= time;
    let mut plan = plan(&request, args.mode, over).with_context(|| format!("{file}"))?;
    if let Some(bytes) = args.batch_bytes {
        let InsertPlan { own, regions, .. } = &mut plan;
        std::iter::once(own)
            .chain(regions)
            .for_each(|region| region.cut(bytes as f64));
    }
    if let Some(path) = &args.draw {
        super::write(input, &drawings(&plan.pictures(), path))?;
    }
    context.print(&plan, || {
        let pictures = plan.pictures();
        let drawn: Vec<String> = pictures
            .iter()
            .map(|picture| text(picture, super::WIDTH))
            .collect();
        drawn.join("\n")
    })?;
    Ok(Outcome::Done)
}

/// Returns the time to polish: one second for 250 partitions.
fn polish_time(request: &Request) -> Duration {
    let partitions = request.partitions.as_ref().map_or(0, Vec::len);
    let tables = request.tables.iter().flatten();
    let partitions = partitions + tables.map(|table| table.home.len()).sum::<usize>();
    Duration::from_secs_f64((partitions as f64 / 250.0).clamp(0.5, 10.0))
}
