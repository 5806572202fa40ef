//! The end of a history: what a merge writes that includes the oldest run.

use std::borrow::Cow;

use crate::error::Result;
use crate::operation::Operation;
use crate::record::settled;
use crate::scan::Cursor;
use crate::times::Times;

/// A [`Cursor`] over records that nothing older lies beneath: deletes are left out, inserts and
/// deltas become updates, and what had expired is left out.
pub struct SettledCursor<C> {
    inner: C,
    expired_ms: u64,
}

impl<C: Cursor> SettledCursor<C> {
    /// Leaves out what expired at `expired_ms` or before. REQUIRES: no operation beside those of
    /// `inner` was or will be written before that moment, or else a delta written while its value
    /// lasted would find none. So it is now only where `inner` has all there is; else the time at
    /// which the oldest of the other records can have been written.
    pub fn new(inner: C, expired_ms: u64) -> Self {
        Self { inner, expired_ms }
    }

    pub fn inner(&self) -> &C {
        &self.inner
    }
}

impl<C: Cursor> Cursor for SettledCursor<C> {
    #[inline]
    fn advance(&mut self) -> Result<bool> {
        while self.inner.advance()? {
            let value = self.inner.value();
            if value.is_some_and(|(_, expires_ms)| expires_ms > self.expired_ms) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn hash(&self) -> u64 {
        self.inner.hash()
    }

    fn head(&self) -> u64 {
        self.inner.head()
    }

    fn key(&self) -> &[u8] {
        self.inner.key()
    }

    fn operation(&self) -> Operation<'_> {
        let settled = self.value().map(|(value, expires_ms)| {
            Operation::Update(value).with_times(Times::until(expires_ms))
        });
        settled.unwrap_or(Operation::Delete)
    }

    #[inline]
    fn encoded(&self) -> (u8, Cow<'_, [u8]>) {
        settled(self.inner.encoded())
    }

    #[inline]
    fn value(&self) -> Option<(&[u8], u64)> {
        self.inner.value()
    }

    fn age(&self) -> u64 {
        self.inner.age()
    }
}
