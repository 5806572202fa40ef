//! Passing over commands that are too long.

use super::Pipeline;
use crate::resp::{LongCommand, ProtocolError};

impl Pipeline {
    /// Begins to pass over the command that the parser refused; returns whether its end can be
    /// found. REQUIRES that no GETs are collected.
    pub(super) fn begin_to_pass_over(&mut self, error: &ProtocolError) -> bool {
        let Some((read, missing)) = self.parser.read_until(error) else {
            return false;
        };
        // Who has not said who it is sends nothing long.
        if self.session.user.is_none() {
            return false;
        }
        self.start = self.at + read;
        self.at = self.start;
        self.parser.restart();
        self.too_long = Some(LongCommand::new(error.clone(), missing));
        true
    }

    /// Passes over a command that is too long, and answers it when all of it has come; returns
    /// whether the next one is due.
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
