//! Skips commands that are too long.

use super::Pipeline;
use crate::resp::{LongCommand, ProtocolError};

impl Pipeline {
    /// Begins to skip the command that the parser refused. Returns whether its end can be found.
    /// REQUIRES that no GETs are collected.
    pub(super) fn begin_to_pass_over(&mut self, error: &ProtocolError) -> bool {
        let Some((read, missing)) = self.parser.read_until(error) else {
            return false;
        };
        // An unauthenticated client sends nothing long.
        if self.session.user.is_none() {
            return false;
        }
        self.start = self.at + read;
        self.at = self.start;
        self.parser.restart();
        self.too_long = Some(LongCommand::new(error.clone(), missing));
        true
    }

    /// Skips a command that is too long, and answers it when all of it has arrived. Returns whether
    /// the next command can be parsed.
    pub(super) fn pass_over(&mut self) -> Result<bool, ProtocolError> {
        let Some(rest) = &mut self.too_long else {
            return Ok(true);
        };
        self.start += rest.pass(&self.input[self.start..])?;
        self.at = self.start;
        if !rest.is_over() {
            return Ok(false);
        }
        let answer = rest.answer();
        self.too_long = None;
        self.reply.error(&answer);
        if let Some(queued) = &mut self.session.queued {
            queued.failed = true;
        }
        Ok(true)
    }
}
