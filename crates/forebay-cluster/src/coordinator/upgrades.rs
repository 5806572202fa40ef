//! Raising the catalog's format.
//!
//! Nothing is rewritten: documents keep the format that they were written in, and what is written
//! from now on has the new one.

use super::Step;
use crate::formats::cannot_upgrade;

impl Step<'_> {
    pub fn take_upgrade(&mut self, format: u64) -> Result<(), String> {
        if format <= self.format {
            return Ok(());
        }
        cannot_upgrade(&self.model, format)?;
        self.format = format;
        Ok(())
    }
}
