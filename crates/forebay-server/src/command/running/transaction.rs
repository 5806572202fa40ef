//! MULTI, EXEC, DISCARD: commands that run together.
//!
//! Commands are checked and queued as they arrive, and run together at EXEC. If all of them read,
//! no swap happens between them: all see the versions that served when EXEC began. They see the
//! keys of a partition of a live table as of one moment. If one of them writes, all must be on keys
//! of one partition of one live table. No other write to the partition happens between them.

use super::call::SessionCall;
use crate::command::{Answer, COMMANDS, Command, CommandError, Run, Watches};
use crate::resp::{Args, OwnedArgs};

/// The most bytes of the queued commands of one MULTI.
const MAX_QUEUED_BYTES: usize = 16 << 20;

/// The commands since MULTI.
#[derive(Debug, Default)]
pub struct QueuedCommands {
    pub commands: Vec<(usize, OwnedArgs)>,
    bytes: usize,
    /// The watched keys as of EXEC.
    pub watches: Watches,
    /// Whether a command was refused: EXEC will not run any.
    pub failed: bool,
}

impl QueuedCommands {
    /// Creates a queue of these commands, without watched keys.
    pub fn of(commands: Vec<(usize, OwnedArgs)>) -> Self {
        Self {
            commands,
            ..Self::default()
        }
    }

    #[must_use]
    pub fn watching(mut self, watches: Watches) -> Self {
        self.watches = watches;
        self
    }

    pub fn writes(&self) -> bool {
        self.commands
            .iter()
            .any(|(place, _)| COMMANDS[*place].writes())
    }

    /// Queues the command at place `place` of the command table.
    pub fn push(
        &mut self,
        place: usize,
        command: &Command,
        args: &Args<'_>,
    ) -> Result<(), CommandError> {
        let reads = matches!(command.run, Run::Read(_) | Run::Walk(_));
        if !reads && !command.writes() && !command.is_of_no_table() {
            let name = command.name.to_uppercase();
            return Err(CommandError::error(format!(
                "ERR {name} is not allowed in a transaction"
            )));
        }
        let args = args.to_owned();
        self.bytes += args.memory_bytes() + size_of::<(usize, OwnedArgs)>();
        if self.bytes > MAX_QUEUED_BYTES {
            return Err(CommandError::error(format!(
                "ERR the commands of a transaction are larger than {MAX_QUEUED_BYTES} bytes"
            )));
        }
        self.commands.push((place, args));
        Ok(())
    }
}

pub fn multi(call: &mut SessionCall<'_>) -> Answer {
    if call.session.queued.is_some() {
        return Err(CommandError::error("ERR MULTI calls can not be nested"));
    }
    call.session.queued = Some(QueuedCommands::default());
    call.reply.ok();
    Ok(())
}

/// Refuses EXEC. A valid EXEC runs where the connection runs commands.
pub fn exec(_: &mut SessionCall<'_>) -> Answer {
    Err(CommandError::error("ERR EXEC without MULTI"))
}

pub fn discard(call: &mut SessionCall<'_>) -> Answer {
    match call.session.queued.take() {
        Some(_) => {
            call.session.watches.clear();
            call.reply.ok();
        }
        None => return Err(CommandError::error("ERR DISCARD without MULTI")),
    }
    Ok(())
}
