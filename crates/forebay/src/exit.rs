//! Exit codes, and how a command's failure is told.

use std::io;
use std::process::ExitCode;

use forebay_cluster::status::Health;
use forebay_objects::OpenError;
use serde_json::json;

use crate::error_kind::{ErrorKind, WrongLine, words};
use crate::output::Output;

/// How a command that did not fail has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Done,
    /// The version was built and kept, but the gate held its swap; or would, of a dry run.
    Held,
    /// In a cluster: the version was built and kept, and serves nowhere.
    Undone,
    /// In a cluster: done, but for nodes that were left out.
    LeftOut,
    /// Something is lost if that is accepted, which it was not: nothing was changed.
    Unaccepted,
    /// A dry run that was done and has told of a push that would fail.
    WouldFail,
    /// The state of a cluster was asked for by a monitor.
    Checked(Health),
}

const FAILED: u8 = 1;
const WRONG: u8 = 2;
const HELD: u8 = 3;
const BUSY: u8 = 4;
const UNDONE: u8 = 5;
const LEFT_OUT: u8 = 6;

/// Prints what went wrong, if anything, and gives the exit code.
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

/// As plug-ins of monitors have it.
fn checked(health: Health) -> u8 {
    match health {
        Health::Well => 0,
        Health::Degraded => 1,
        Health::Down => 2,
        Health::NotKnown => 3,
    }
}

/// Prints what went wrong.
pub fn report_error(output: Output, error: &anyhow::Error) {
    let kind = ErrorKind::of(error);
    if output.json {
        let event = json!({"event": "error", "kind": kind.name(), "text": words(error)});
        announce!("{event}");
    } else {
        output.announce(&words(error));
    }
}

/// Whether the command line is wrong. A store's URL and what the environment says of it are a part
/// of it.
pub fn is_wrong_line(error: &anyhow::Error) -> bool {
    let is_of_store = match error.downcast_ref() {
        None | Some(OpenError::Pull(_) | OpenError::Store(_)) => false,
        Some(_) => ErrorKind::of(error) == ErrorKind::Usage,
    };
    error.is::<WrongLine>() || is_of_store
}

/// Whoever read our output (`| head`) has enough: not worth a message.
pub fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let io = error.downcast_ref::<io::Error>();
    io.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
