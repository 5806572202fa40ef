//! Looking up the keys of several GETs together; in a live table one by one.

use forebay_engine::{Lookup, TableName};

use crate::command::{CommandError, find_source, reply_found};
use crate::execute::{Outcome, settle};
use crate::resp::Reply;
use crate::table_view::TableView;
use crate::users::User;
use forebay_engine::{Source, SourceError};

/// What a look-up of several keys came to; the keys behind the first `answered` have to wait.
pub struct LookedUp<'a> {
    pub answered: usize,
    pub failed: usize,
    pub table: Option<&'a TableName>,
}

/// Replies with the values of keys of one table, as far as they are in memory.
pub fn look_up<'t>(
    tables: &'t TableView,
    user: &User,
    table: &[u8],
    keys: &[&[u8]],
    reply: &mut Reply,
) -> LookedUp<'t> {
    let source = match find_source(tables, user, table) {
        Ok(source) => source,
        Err(stop) => {
            let refuse = |_: &&[u8]| settle(Err(stop.clone()), reply.len(), reply);
            let failed = keys.iter().map(refuse).count();
            return LookedUp {
                answered: failed,
                failed,
                table: None,
            };
        }
    };
    let (mut answered, mut failed, mut missed) = (0, 0, false);
    while answered < keys.len() && !missed {
        let outcome = try_get_many(source, &keys[answered..], |found| {
            if missed {
                return;
            }
            let start = reply.len();
            match settle(reply_found(reply, source, &found), start, reply) {
                Outcome::NotResident => missed = true,
                outcome => {
                    answered += 1;
                    failed += usize::from(outcome == Outcome::Failed);
                }
            }
        });
        if let Err(error) = outcome
            && !missed
        {
            settle(Err(CommandError::from(error)), reply.len(), reply);
            answered += 1;
            failed += 1;
        }
    }
    LookedUp {
        answered,
        failed,
        table: Some(source.table()),
    }
}

/// What keys have, in their order; stops at the first error, and in a live table at the first key that
/// would have to wait.
fn try_get_many(
    source: Source<'_>,
    keys: &[&[u8]],
    mut found: impl FnMut(Lookup<'_>),
) -> Result<(), SourceError> {
    match source {
        Source::Batch(version) => Ok(version.try_get_many(keys, |_, value| found(value))?),
        Source::Live(_) => {
            for key in keys {
                let value = source.try_get(key)?;
                let waits = matches!(value, Lookup::NotResident);
                found(value);
                if waits {
                    break;
                }
            }
            Ok(())
        }
    }
}
