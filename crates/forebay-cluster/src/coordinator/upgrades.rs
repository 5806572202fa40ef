//! Raises the catalog's format.
//!
//! Nothing is rewritten. Existing documents keep their format, and documents written from now on
//! have the new one.

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
