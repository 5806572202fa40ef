//! What every command takes.

use std::path::PathBuf;

use clap::Args;

use crate::login::path_parser;

/// The store where none is named.
pub const DEFAULT_STORE: &str = "./forebay-data";

/// What every command takes.
#[derive(Debug, Args)]
pub struct Global {
    /// The store: a directory, or the URL of one in object storage: s3://BUCKET/PREFIX, gs://,
    /// az://
    #[arg(
        long,
        global = true,
        env = "FOREBAY_STORE",
        default_value = DEFAULT_STORE,
        value_name = "URL",
        help_heading = "Everywhere"
    )]
    pub store: String,

    /// Where pushes to object storage build their files before they are sent, and keep what a
    /// killed push has sent [default: a directory of the user's cache]
    #[arg(
        long,
        global = true,
        env = "FOREBAY_WORK_DIR",
        value_parser = path_parser(),
        value_name = "DIR",
        help_heading = "Everywhere"
    )]
    pub work_dir: Option<PathBuf>,

    /// Results as JSON on standard output, progress and messages as JSON lines on standard error
    #[arg(long, global = true, help_heading = "Everywhere")]
    pub json: bool,

    /// No progress, no messages, and no text of what was done; errors are still printed, and what
    /// was asked for: values, lists, with --json the result
    #[arg(long, short, global = true, help_heading = "Everywhere")]
    pub quiet: bool,
}
