//! Settles records that have nothing older, for a merge that includes the oldest run.

use std::borrow::Cow;

use crate::error::Result;
use crate::operation::Operation;
use crate::record::settled;
use crate::scan::Cursor;
use crate::times::Times;

/// A [`Cursor`] over records without older ones: it omits deletes and expired records, and turns
/// inserts and deltas into updates.
pub struct SettledCursor<C> {
    inner: C,
    expired_ms: u64,
}

impl<C: Cursor> SettledCursor<C> {
    /// Omits records that expired at `expired_ms` or before. REQUIRES: no operation outside of
    /// `inner` was or will be written before that time; otherwise a delta written before the expiry
    /// would miss its value. So `expired_ms` is the present only if `inner` has all operations.
    /// Else it is the earliest time at which one of the other records can have been written.
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
