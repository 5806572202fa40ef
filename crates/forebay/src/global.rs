//! The options of every command.

use std::path::PathBuf;

use clap::Args;

use crate::nodes::login::path_parser;

/// The default store.
pub const DEFAULT_STORE: &str = "./forebay-data";

/// The options of every command.
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

    /// Where pushes to object storage build their files before upload, and keep what a killed push
    /// has uploaded [default: a directory of the user's cache]
    #[arg(
        long,
        global = true,
        env = "FOREBAY_WORK_DIR",
        value_parser = path_parser(),
        value_name = "DIR",
        help_heading = "Everywhere"
    )]
    pub work_dir: Option<PathBuf>,

    /// Print results as JSON on standard output, progress and messages as JSON lines on standard
    /// error
    #[arg(long, global = true, help_heading = "Everywhere")]
    pub json: bool,

    /// Print no progress, no messages, and no text of what was done. Errors are still printed, and
    /// so is requested data: values, lists, with --json the result
    #[arg(long, short, global = true, help_heading = "Everywhere")]
    pub quiet: bool,
}
