//! Keys that several reads see at one moment: those of a command with several keys, or of a MULTI.

use forebay_engine::Source;
use forebay_engine::live::{KeySnapshot, LiveTable, Stored};

use super::txn::Txn;
use crate::command::CommandError;

/// Keys of a live table as they were at one moment; those of a partition share the moment.
#[derive(Debug)]
pub struct Moment<'a> {
    pub table: &'a LiveTable,
    /// Sorted.
    pub keys: Vec<&'a [u8]>,
    pub snapshot: KeySnapshot<'a, 'a>,
}

/// The values of keys that are held before a command reads them.
#[derive(Debug, Clone, Copy)]
pub enum KeyGuard<'a> {
    Moments(&'a [Moment<'a>]),
    /// All keys that the command names, as the previous commands of a MULTI that writes left them.
    Txn(&'a Txn<'a>),
}

impl KeyGuard<'_> {
    pub const NOTHING: Self = KeyGuard::Moments(&[]);

    pub fn is_nothing(self) -> bool {
        matches!(self, KeyGuard::Moments([]))
    }

    /// Returns a key's held value. `None` if it is not held.
    #[inline]
    pub fn stored(
        self,
        source: Source<'_>,
        key: &[u8],
        may_wait: bool,
    ) -> Result<Option<Option<Stored>>, CommandError> {
        match self.is_nothing() {
            true => Ok(None),
            false => self.stored_in(source, key, may_wait),
        }
    }

    fn stored_in(
        self,
        source: Source<'_>,
        key: &[u8],
        may_wait: bool,
    ) -> Result<Option<Option<Stored>>, CommandError> {
        let moments = match self {
            KeyGuard::Txn(txn) => return txn.look(key).map(Some),
            KeyGuard::Moments(moments) => moments,
        };
        let found = moments
            .iter()
            .find(|moment| moment.table.name() == source.table())
            .and_then(|moment| Some((moment, moment.keys.binary_search(&key).ok()?)));
        let Some((moment, index)) = found else {
            return Ok(None);
        };
        let stored = moment.snapshot.stored(index, may_wait)?;
        stored.map(Some).ok_or(CommandError::NotResident)
    }
}
