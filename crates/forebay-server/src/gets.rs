//! Looking up the keys of several GETs together.

use forebay_engine::{TableName, Tables};

use crate::command::{Stop, find_version, reply_found};
use crate::execute::{Outcome, settle};
use crate::resp::Reply;
use crate::users::User;

/// What a look-up of several keys came to; the keys behind the first `answered` have to wait.
pub struct LookedUp<'a> {
    pub answered: usize,
    pub failed: usize,
    pub table: Option<&'a TableName>,
}

/// Replies with the values of keys of one table, as far as they are in memory.
pub fn look_up<'t>(
    tables: &'t Tables,
    user: &User,
    table: &[u8],
    keys: &[&[u8]],
    reply: &mut Reply,
) -> LookedUp<'t> {
    let version = match find_version(tables, user, table) {
        Ok(version) => version,
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
        let outcome = version.try_get_many(&keys[answered..], |_, found| {
            if missed {
                return;
            }
            let start = reply.len();
            match settle(reply_found(reply, version, &found), start, reply) {
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
            settle(Err(Stop::from(error)), reply.len(), reply);
            answered += 1;
            failed += 1;
        }
    }
    LookedUp {
        answered,
        failed,
        table: Some(version.table()),
    }
}
