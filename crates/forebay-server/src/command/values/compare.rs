//! KV.GETV, KV.SETV, KV.DELV: compare-and-set by the version of a value.
//!
//! A change happens only if the key still has the version that was read. A version is the first
//! half of the SHA-256 of a key's expiry and value, as 32 hex digits. An absent key has a version
//! of its own. A value that was changed and changed back has the same version again. The hash is
//! cryptographic, so that clients who choose values cannot make two with the same version.

use forebay_engine::Source;
use forebay_engine::live::Stored;
use ring::digest::{Context, SHA256};

use crate::command::keys::expire::{self, ExpiryChange};
use crate::command::running::call::Call;
use crate::command::running::txn::{Edit, NEVER_MS, is_never};
use crate::command::running::value::reply_value;
use crate::command::{Answer, CommandError, shown};
use crate::resp::Reply;

/// The version of a key: a hash of its expiry and value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyVersion([u8; 16]);

impl KeyVersion {
    const ABSENT: Self = KeyVersion([0; 16]);

    pub fn of(stored: Option<&Stored>) -> Self {
        let Some(Stored { value, expires_ms }) = stored else {
            return Self::ABSENT;
        };
        // A table with a TTL of its own records "never expires" differently.
        let expires_ms = match is_never(*expires_ms) {
            true => NEVER_MS,
            false => *expires_ms,
        };
        let mut hash = Context::new(&SHA256);
        hash.update(&expires_ms.to_le_bytes());
        hash.update(value);
        let mut version = [0; 16];
        version.copy_from_slice(&hash.finish().as_ref()[..16]);
        Self(version)
    }

    pub fn parse(text: &[u8]) -> Result<Self, CommandError> {
        let digits = std::str::from_utf8(text).ok().filter(|digits| {
            digits.len() == 32 && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
        });
        let number = digits.and_then(|digits| u128::from_str_radix(digits, 16).ok());
        let number = number.ok_or_else(|| {
            let text = shown(text);
            CommandError::error(format!(
                "ERR '{text}' is no version of a key: KV.GETV and KV.SETV give them, 32 hex digits"
            ))
        })?;
        Ok(Self(number.to_be_bytes()))
    }

    /// 32 hex digits.
    pub fn text(self) -> String {
        format!("{:032x}", u128::from_be_bytes(self.0))
    }

    fn reply(self, reply: &mut Reply) {
        reply.bulk(self.text().as_bytes());
    }
}

/// KV.GETV key: its version, and the value as GET gives it.
pub fn getv(call: &mut Call<'_>) -> Answer {
    let (source, key) = call.locate(call.args.get(1))?;
    let stored = stored(call, source, key)?;
    call.reply.array(2);
    KeyVersion::of(stored.as_ref()).reply(call.reply);
    let value = stored.as_ref().map(|stored| &stored.value[..]);
    reply_value(call.reply, source, value)?;
    call.check_size()
}

/// Returns a key's value and expiry, as of one moment.
fn stored(call: &Call<'_>, source: Source<'_>, key: &[u8]) -> Result<Option<Stored>, CommandError> {
    if let Some(stored) = call.held.stored(source, key, call.may_wait)? {
        return Ok(stored);
    }
    match source {
        Source::Live(table) => {
            let snapshot = match call.may_wait {
                true => Some(table.snapshot_keys(&[key])?),
                false => table.try_snapshot_keys(&[key])?,
            };
            let snapshot = snapshot.ok_or(CommandError::NotResident)?;
            let stored = snapshot.stored(0, call.may_wait)?;
            stored.ok_or(CommandError::NotResident)
        }
        // A version is immutable except for expiry: expired keys count as absent.
        Source::Batch(_) => {
            let value = call.value(source, key)?;
            let expires_ms = call.expires_ms(source, key)?;
            Ok(value.zip(expires_ms).map(|(value, expires_ms)| Stored {
                value: value.into_owned(),
                expires_ms,
            }))
        }
    }
}

/// KV.SETV key value version [EX s | PX ms | EXAT s | PXAT ms | KEEPTTL]: the new version, or null
/// if the key has another version than the given one.
pub fn setv(edit: &mut Edit<'_, '_>) -> Answer {
    let wanted = KeyVersion::parse(edit.args.get(3))?;
    let until = parse_expiry(edit)?.until(edit, "kv.setv")?;
    let value = edit.encode(edit.args.get(2))?;
    if KeyVersion::of(edit.old()) != wanted {
        edit.reply.null();
        return Ok(());
    }
    expire::put(edit, value, until)?;
    KeyVersion::of(edit.old()).reply(edit.reply);
    Ok(())
}

fn parse_expiry<'a>(edit: &Edit<'a, '_>) -> Result<ExpiryChange<'a>, CommandError> {
    let (mut expiry, mut at) = (ExpiryChange::default(), 4);
    while at < edit.args.len() {
        let (change, arguments) =
            ExpiryChange::parse(&edit.args, at).ok_or_else(CommandError::syntax)?;
        if matches!(change, ExpiryChange::Persist) {
            return Err(CommandError::syntax());
        }
        expiry = expiry.and(change)?;
        at += arguments;
    }
    Ok(expiry)
}

/// KV.DELV key version: 1 if it deleted the key, 0 if the key is absent or has another version.
pub fn delv(edit: &mut Edit<'_, '_>) -> Answer {
    let wanted = KeyVersion::parse(edit.args.get(2))?;
    let deletes = edit.old().is_some() && KeyVersion::of(edit.old()) == wanted;
    if deletes {
        edit.txn.delete(edit.key());
    }
    edit.reply.int(i64::from(deletes));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(value: &[u8], expires_ms: u64) -> KeyVersion {
        let value = value.to_vec();
        KeyVersion::of(Some(&Stored { value, expires_ms }))
    }

    #[test]
    fn a_version_depends_on_value_and_expiry() {
        assert_eq!(of(b"a", NEVER_MS), of(b"a", NEVER_MS));
        assert_eq!(
            of(b"a", NEVER_MS),
            of(b"a", NEVER_MS - 1),
            "neither ever expires"
        );
        let all = [
            KeyVersion::of(None),
            of(b"", NEVER_MS),
            of(b"a", NEVER_MS),
            of(b"b", NEVER_MS),
            of(b"a", 5),
            of(b"a", 6),
        ];
        for (at, version) in all.iter().enumerate() {
            assert!(!all[..at].contains(version), "{at}");
        }
    }

    #[test]
    fn versions_are_32_hex_digits() {
        let text = b"0123456789abcdef0123456789ABCDEF";
        let mut reply = Reply::default();
        KeyVersion::parse(text)
            .expect("a version")
            .reply(&mut reply);
        let lower = text.to_ascii_lowercase();
        assert_eq!(reply.bytes(), [b"$32\r\n", &lower[..], b"\r\n"].concat());
        for text in [
            &b""[..],
            b"0",
            b"+123456789abcdef0123456789abcdef",
            b"0123456789abcdef0123456789abcdeg",
            b"0123456789abcdef0123456789abcdef0",
            b"\xff123456789abcdef0123456789abcdef",
        ] {
            assert!(KeyVersion::parse(text).is_err(), "{text:?}");
        }
    }
}
