//! Forebay as a Rust library: a store of tables in a directory.
//!
//! [`open`] or [`open_or_create`] open a store.
//!
//! - A *batch table* is replaced as a whole: [`Store::push`] builds a version from files or
//!   records, verifies it and lets it serve; [`Store::batch`] reads it.
//! - A *live table* is written at any time: [`Store::create_live`], [`Store::live`].
//!
//! Keys are bytes or text. Values have the type of their table: bytes, numbers, rows of typed
//! columns or lists ([`Value`]). Scans are iterators. Every error is an [`Error`], whose
//! [`kind`](Error::kind) says what can be done about it.
//!
//! ```
//! use forebay::{DeltaKind, LiveOptions};
//!
//! # fn main() -> Result<(), forebay::Error> {
//! # let dir = tempfile::tempdir().expect("a directory");
//! # let dir = dir.path().join("store");
//! let store = forebay::open_or_create(dir)?;
//!
//! // A batch table: a new version at each push, all at once.
//! let people = [("1", "Ada"), ("2", "Bob")];
//! store.push("people").records(people).run()?;
//! let people = store.batch("people")?;
//! assert_eq!(people.get("1")?.and_then(|value| value.into_text()).as_deref(), Some("Ada"));
//!
//! // A live table, of numbers that deltas add to.
//! let clicks = LiveOptions::ordered().delta(DeltaKind::AddI64);
//! let clicks = store.live_or_create("clicks", clicks)?;
//! clicks.delta("page-7", 1)?;
//! clicks.delta("page-7", 2)?;
//! for record in clicks.prefix("page-")? {
//!     let (key, value) = record?;
//!     assert_eq!((&key[..], value.as_i64()), (&b"page-7"[..], Some(3)));
//! }
//! # Ok(())
//! # }
//! ```
//!
//! `docs/reference/rust.md` describes the library, and `examples/` has complete programs. All
//! objects may be used by several threads. Calls block on the device where they must. From
//! asynchronous code, call them on threads that may block.
//!
//! This crate is also the command `forebay`. It includes the server, the loader and access to
//! object stores. A program that only opens directories, and knows the types of its values, may
//! depend on `forebay-engine` alone.

/// Writes a line to standard error if possible. The command's work does not depend on it.
macro_rules! announce {
    ($($words:tt)*) => {{
        use std::io::Write as _;
        _ = writeln!(std::io::stderr(), $($words)*);
    }};
}

/// Ends a function with a [`WrongLine`](crate::error_kind::WrongLine).
macro_rules! wrong {
    ($($words:tt)*) => {
        return Err(crate::error_kind::WrongLine(format!($($words)*)).into())
    };
}

mod actor;
mod backing;
mod choices;
mod cli;
mod cluster_handle;
mod clustered;
mod commands;
mod context;
mod distributed;
mod distributed_load;
mod doctor;
mod embed;
mod error_kind;
mod exit;
mod global;
mod inserting;
mod key;
#[warn(missing_docs)]
mod library;
mod log;
#[cfg(test)]
mod malformed;
mod memory;
mod nodes;
mod open_table;
mod printing;
mod progress;
mod pulling;
mod rollout_args;
mod rollout_result;
mod row_taker;
mod target;
mod uploading;

#[doc(inline)]
pub use error_kind::ErrorKind;
#[doc(inline)]
pub use library::*;

/// Tests the code blocks of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/reference/rust.md")]
mod page {}

/// The parts of the binary and the Python package. They are not part of the library, and change
/// without notice.
#[doc(hidden)]
pub mod command_line {
    use std::process::ExitCode;

    use forebay_run::error::without_controls;
    use serde_json::json;

    use crate::embed::plain;

    pub use crate::context::Context;
    pub use crate::error_kind::words;
    pub use crate::open_table::OpenedTable;
    pub use crate::printing::human::parse_lifetime;
    pub use crate::row_taker::RowTaker;
    pub use crate::target::Target;

    /// Runs commands for a program that embeds them.
    pub mod embed {
        pub use crate::embed::*;
    }

    /// Pushes that tasks of another engine build.
    pub mod distributed {
        pub use crate::distributed::*;
        pub use crate::distributed_load::DistributedLoad;
    }

    /// Runs the command line of the process.
    pub fn main() -> ExitCode {
        let cli = crate::cli::parse(std::env::args_os()).unwrap_or_else(|error| exit_by(&error));
        forebay_io::raw::raise_open_files_limit();
        forebay_io::raw::ignore_file_size_signal();
        let context = Context::new(&cli.global);
        context.log_in(&cli.login);
        let done = crate::cli::run_apart(cli.command, &context);
        let done = done.map_err(|error| context.of_cluster(error));
        crate::exit::report(context.output, done)
    }

    /// Exits as the parser of the options says: with help, or with the error.
    fn exit_by(error: &clap::Error) -> ! {
        if !error.use_stderr() {
            error.exit();
        }
        let words = std::env::args_os().take_while(|word| word != "--");
        let words: Vec<_> = words.collect();
        let has = |option: &str| words.iter().any(|word| word == option);
        let text = error.render().to_string();
        if has("--json") {
            announce!(
                "{}",
                json!({"event": "error", "kind": "usage", "text": plain(error)})
            );
        } else if text.lines().all(|line| without_controls(line) == line) {
            // Printed in colours.
            let _ = error.print();
        } else {
            // The message repeats the user's input, which could change the terminal.
            text.lines()
                .for_each(|line| announce!("{}", without_controls(line)));
        }
        // A monitor would take 2 for a cluster that is down.
        let is_check = ["cluster", "status", "--check"].into_iter().all(has);
        std::process::exit(if is_check { 3 } else { error.exit_code() })
    }
}
