//! Exit codes, and the output of a command's failure.

use std::io;
use std::process::ExitCode;

use forebay_cluster::status::Health;
use forebay_objects::OpenError;
use serde_json::json;

use crate::error_kind::{ErrorKind, WrongLine, words};
use crate::printing::Output;

/// How a command that did not fail has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Done,
    /// The version was built and kept, but the gate held its swap, or would hold it in a dry run.
    Held,
    /// In a cluster: the version was built and kept, and serves nowhere.
    Undone,
    /// In a cluster: done, except for excluded nodes.
    LeftOut,
    /// Accepting would lose something, and it was not accepted: nothing was changed.
    Unaccepted,
    /// A dry run that succeeded and reports that the push would fail.
    WouldFail,
    /// A monitor asked for the state of a cluster.
    Checked(Health),
}

const FAILED: u8 = 1;
const WRONG: u8 = 2;
const HELD: u8 = 3;
const BUSY: u8 = 4;
const UNDONE: u8 = 5;
const LEFT_OUT: u8 = 6;

/// Prints the error, if any, and returns the exit code.
pub fn report(output: Output, result: anyhow::Result<Outcome>) -> ExitCode {
    let error = match result {
        Ok(Outcome::Done) => return ExitCode::SUCCESS,
        Ok(Outcome::LeftOut) => return ExitCode::from(LEFT_OUT),
        Ok(Outcome::Undone) => return ExitCode::from(UNDONE),
        Ok(Outcome::Unaccepted) => return ExitCode::from(WRONG),
        Ok(Outcome::Held) => return ExitCode::from(HELD),
        Ok(Outcome::WouldFail) => return ExitCode::from(FAILED),
        Ok(Outcome::Checked(health)) => return ExitCode::from(checked(health)),
        Err(error) => error,
    };
    if is_closed_pipe(&error) {
        return ExitCode::from(FAILED);
    }
    report_error(output, &error);
    if is_wrong_line(&error) {
        return ExitCode::from(WRONG);
    }
    ExitCode::from(match ErrorKind::of(&error) {
        ErrorKind::Busy | ErrorKind::InUse => BUSY,
        ErrorKind::NotRolledOut => UNDONE,
        ErrorKind::GaveWay => HELD,
        _ => FAILED,
    })
}

/// Returns the exit code that plug-ins of monitors use.
fn checked(health: Health) -> u8 {
    match health {
        Health::Well => 0,
        Health::Degraded => 1,
        Health::Down => 2,
        Health::NotKnown => 3,
    }
}

/// Prints an error.
pub fn report_error(output: Output, error: &anyhow::Error) {
    let kind = ErrorKind::of(error);
    if output.json {
        let event = json!({"event": "error", "kind": kind.name(), "text": words(error)});
        announce!("{event}");
    } else {
        output.announce(&words(error));
    }
}

/// Returns whether the command line is wrong. A store's URL, and what the environment says of it,
/// are part of it.
pub fn is_wrong_line(error: &anyhow::Error) -> bool {
    let is_of_store = match error.downcast_ref() {
        None | Some(OpenError::Pull(_) | OpenError::Store(_)) => false,
        Some(_) => ErrorKind::of(error) == ErrorKind::Usage,
    };
    error.is::<WrongLine>() || is_of_store
}

/// Returns whether the reader of the output, such as `| head`, has closed it, which needs no
/// message.
pub fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let io = error.downcast_ref::<io::Error>();
    io.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
