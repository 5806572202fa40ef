//! Draws the progress of a long command: bars on a terminal, lines in a log, objects for machines.
//!
//! All three go to standard error, so that standard output holds the result and nothing else.

mod bars;
mod lines;
mod meter;

use std::io::IsTerminal;

use forebay_load::progress::{Progress, Silent};

use crate::printing::Output;

/// Returns the display for the output: none with --quiet, objects with `--json`, bars on a
/// terminal, lines otherwise.
pub fn for_output(output: Output) -> Box<dyn Progress + Send> {
    match output {
        Output { quiet: true, .. } => Box::new(Silent),
        Output { json: true, .. } => Box::new(lines::Lines::new(lines::Form::Json)),
        _ if std::io::stderr().is_terminal() => Box::new(bars::Bars::new()),
        _ => Box::new(lines::Lines::new(lines::Form::Text)),
    }
}
