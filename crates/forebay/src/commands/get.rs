//! `forebay get`: the values of some keys.

use clap::Args;

use crate::context::Context;
use crate::exit::Outcome;
use crate::render::Renderer;
use crate::target::Target;

/// Read some keys of a table
///
/// A row prints as JSON, a value of bytes as it is, an absent key as (absent). With --json: one
/// array with an element a key, null when absent; bytes that are not UTF-8 as {"base64": "..."}.
#[derive(Debug, Args)]
pub struct Get {
    /// The table, as it serves or at a version: flights, flights@3
    #[arg(value_name = "TABLE[@V]")]
    pub target: Target,

    /// Keys, without the table's name
    #[arg(required = true, value_name = "KEY")]
    pub keys: Vec<String>,
}

pub fn run(args: &Get, context: &Context) -> anyhow::Result<Outcome> {
    let version = context.open_version(&args.target)?;
    let renderer = Renderer::new(version.manifest());
    let mut out = Vec::new();
    let mut failed = None;
    version.get_many(&args.keys, |place, value| {
        if context.output.json {
            out.push(if place == 0 { b'[' } else { b',' });
        }
        let written = match (&value, context.output.json) {
            (Some(value), true) => renderer.json(value, &mut out),
            (Some(value), false) => renderer.text(value, &mut out),
            (None, json) => {
                out.extend_from_slice(if json { b"null" } else { b"(absent)" });
                Ok(())
            }
        };
        if let Err(error) = written {
            failed.get_or_insert(error.context(format!("key {}", args.keys[place])));
        }
        if !context.output.json {
            out.push(b'\n');
        }
    })?;
    if let Some(error) = failed {
        return Err(error);
    }
    if context.output.json {
        out.extend(b"]\n");
    }
    context.print_raw(&out)?;
    Ok(Outcome::Done)
}
