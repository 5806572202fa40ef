//! Runs the commands for a program that embeds them.
//!
//! Arguments, defaults, errors and results are the same, with results as JSON. Progress and
//! messages, which the binary prints to a person, go to a [`Listener`].

use clap::Parser;
use forebay_engine::StoreError;
use forebay_load::sources::Batches;

use crate::cli::{self, Cli, Command};
use crate::commands::live::load;
use crate::commands::publish::push;
use crate::context::Context;
pub use crate::context::Listener;
use crate::error_kind::words;
pub use crate::exit::Outcome;

/// Why a command gave no result.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The command does not accept the arguments.
    #[error("{0}")]
    Words(String),
    #[error("{}", words(.0))]
    Failed(anyhow::Error),
}

/// Runs a command, given as the arguments of a command line without the program's name. Returns how
/// it ended and what it printed: one JSON document. With `batches` a push or a load reads its rows
/// from them.
pub fn run(
    words: &[String],
    batches: Option<Batches>,
    listener: Listener,
) -> Result<(Outcome, String), CommandError> {
    let line = ["forebay", "--json"].map(str::to_owned);
    let line = line.iter().chain(words);
    let cli = Cli::try_parse_from(line).map_err(|error| CommandError::Words(plain(&error)))?;
    forebay_io::raw::raise_open_files_limit();
    let context = Context::embedded(&cli.global, listener);
    let outcome = match (cli.command, batches) {
        (Command::Push(args), Some(batches)) => push::run_batches(args, batches, &context),
        (Command::Load(args), Some(batches)) => load::run_batches(args, batches, &context),
        (Command::Serve(_) | Command::Scan(_) | Command::Man(_) | Command::Completions(_), _) => {
            return Err(CommandError::Words(
                "this command prints as it goes: run the forebay binary".to_owned(),
            ));
        }
        (command, _) => cli::run(command, &context),
    };
    let outcome = outcome.map_err(CommandError::Failed)?;
    let text = String::from_utf8_lossy(&context.take_result()).into_owned();
    match outcome {
        Outcome::Undone => Err(CommandError::Failed(undone(&text))),
        outcome => Ok((outcome, text)),
    }
}

/// Returns an error for a push that a cluster reverted: for a program it has failed.
fn undone(object: &str) -> anyhow::Error {
    let object: serde_json::Value = serde_json::from_str(object).unwrap_or_default();
    let problem = object["undone"]
        .as_str()
        .unwrap_or("the version serves nowhere");
    let problem = problem.to_owned();
    let gave_way = false;
    StoreError::NotRolledOut { problem, gave_way }.into()
}

/// Returns the parser's message without the parts for a terminal.
pub(crate) fn plain(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let end = text
        .find("\n\nUsage:")
        .or_else(|| text.find("\n\nFor more"));
    text[..end.unwrap_or(text.len())].trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use forebay_load::progress::Silent;

    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn results_are_json_and_errors_have_the_text_of_the_command_line() {
        let dir = tempfile::tempdir().unwrap();
        let store = dir.path().join("s");
        let create = format!("create t --durability os --store {}", store.display());
        let (outcome, text) = run(&words(&create), None, Arc::new(Silent)).unwrap();
        assert_eq!(outcome, Outcome::Done);
        assert!(text.starts_with("{\"durability\":\"os\"") || text.contains("\"mode\":\"live\""));
        let again = run(&words(&create), None, Arc::new(Silent)).unwrap_err();
        assert!(
            again.to_string().contains("table t exists already"),
            "{again}"
        );
        let wrong = run(&words("create t --order sideways"), None, Arc::new(Silent));
        let wrong = wrong.unwrap_err().to_string();
        assert!(
            wrong.starts_with("invalid value 'sideways' for '--order") && !wrong.contains("Usage"),
            "{wrong}"
        );
        let refused = run(&words("serve"), None, Arc::new(Silent)).unwrap_err();
        assert!(matches!(refused, CommandError::Words(_)));
    }
}
