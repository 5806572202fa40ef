//! `forebay get`: reads the values of some keys.

use anyhow::Context as _;
use clap::Args;

use crate::context::Context;
use crate::exit::Outcome;
use crate::key::KeyForm;
use crate::printing::render::Renderer;
use crate::target::Target;

/// Read some keys of a table
///
/// Rows are printed as JSON, values of bytes as they are, absent keys as (absent). With --json: one
/// array with one element for each key, null if absent; bytes that are not UTF-8 as {"base64":
/// "..."}.
#[derive(Debug, Args)]
pub struct Get {
    /// The table: its serving version, or a version, such as flights or flights@3
    #[arg(value_name = "TABLE[@V]")]
    pub target: Target,

    /// Keys, without the table's name
    #[arg(required = true, value_name = "KEY")]
    pub keys: Vec<String>,

    #[command(flatten)]
    pub form: KeyForm,
}

pub fn run(args: &Get, context: &Context) -> anyhow::Result<Outcome> {
    let keys = args.keys.iter().map(|key| args.form.parse(key));
    let keys: Vec<Vec<u8>> = keys.collect::<anyhow::Result<_>>()?;
    let opened = context.open_target_for(&args.target, Some(&keys))?;
    let source = opened.source();
    let renderer = Renderer::new(source);
    let mut out = Vec::new();
    for (place, (key, bytes)) in args.keys.iter().zip(&keys).enumerate() {
        if context.output.json {
            out.push(if place == 0 { b'[' } else { b',' });
        }
        let written = match (source.get(bytes)?, context.output.json) {
            (Some(value), true) => renderer.json(&value, &mut out),
            (Some(value), false) => renderer.text(&value, &mut out),
            (None, json) => {
                out.extend_from_slice(if json { b"null" } else { b"(absent)" });
                Ok(())
            }
        };
        written.with_context(|| format!("key {key}"))?;
        if !context.output.json {
            out.push(b'\n');
        }
    }
    if context.output.json {
        out.extend(b"]\n");
    }
    context.print_raw(&out)?;
    Ok(Outcome::Done)
}
