//! A push or a load before it runs: command-line arguments and the source of the rows.
//!
//! It has the arguments that the command line would have, so that names, defaults and messages of
//! options are defined once.

use std::fmt;
use std::sync::Arc;

use clap::Parser;
use forebay_engine::Store;
use forebay_load::progress::{Progress, Silent};
use forebay_load::sources::Batches;

use super::error::Error;
use super::problem::Problem;
use crate::cli::{Cli, Command};
use crate::context::{Context, Listener};
use crate::embed::plain;

/// The arguments and the rows of a push or a load.
pub(super) struct Job {
    pub store: Store,
    command: &'static str,
    table: String,
    words: Vec<String>,
    sources: Vec<String>,
    pub batches: Option<Batches>,
    are_records: bool,
    listener: Option<Listener>,
}

/// The source's name if the rows do not come from files.
const HANDED_OVER: &str = "records";

impl Job {
    pub fn new(command: &'static str, store: Store, table: &str) -> Self {
        Self {
            store,
            command,
            table: table.to_owned(),
            words: Vec::new(),
            sources: Vec::new(),
            batches: None,
            are_records: false,
            listener: None,
        }
    }

    pub fn option(&mut self, name: &str, value: impl fmt::Display) {
        self.words.push(format!("--{name}={value}"));
    }

    pub fn flag(&mut self, name: &str) {
        self.words.push(format!("--{name}"));
    }

    /// Sets rows of two columns, `key` and `value`.
    pub fn records(&mut self, batches: Batches) {
        self.batches = Some(batches);
        self.are_records = true;
    }

    fn is_given(&self, name: &str) -> bool {
        let start = format!("--{name}=");
        self.words.iter().any(|word| word.starts_with(&start))
    }

    /// Returns the options that records need, unless the changed version defines them.
    fn words_of_records(&self) -> Vec<String> {
        let defaults = [("key", "{key}"), ("value", "value")].into_iter();
        let missing = |(name, _): &(&str, &str)| {
            self.are_records && !self.is_given(name) && !self.is_given("onto")
        };
        let word = |(name, value)| format!("--{name}={value}");
        defaults.filter(missing).map(word).collect()
    }

    pub fn source(&mut self, source: String) {
        self.sources.push(source);
    }

    pub fn listener(&mut self, progress: impl Progress + Send + 'static) {
        self.listener = Some(Arc::new(progress));
    }

    pub fn progress(&self) -> Listener {
        self.listener.clone().unwrap_or_else(|| Arc::new(Silent))
    }

    /// Parses the command.
    pub fn parse(&self) -> Result<(Command, Context), Error> {
        let store = self.store.root().to_str().ok_or_else(|| {
            let path = self.store.root().display();
            Problem::Words(format!("{path}: the path of a store to write to is UTF-8"))
        })?;
        let handed_over = self.batches.as_ref().map(|_| HANDED_OVER.to_owned());
        let (words, sources) = (self.words.iter(), self.sources.iter());
        let line = ["forebay", self.command].map(str::to_owned).into_iter();
        let line = line
            .chain([format!("--store={store}")])
            .chain(words.cloned());
        let line = line.chain(self.words_of_records());
        let line = line.chain(["--".to_owned(), self.table.clone()]);
        let line = line.chain(handed_over).chain(sources.cloned());
        let cli = Cli::try_parse_from(line);
        let cli = cli.map_err(|error| Problem::Words(plain(&error)))?;
        let context = Context::embedded(&cli.global, self.progress());
        Ok((cli.command, context))
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (words, sources) = (self.words.join(" "), self.sources.join(" "));
        write!(f, "{} {words} {} {sources}", self.command, self.table)
    }
}
