//! Names that become file names: tables and runs.

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

/// The longest name of a table or a run, in bytes.
pub const MAX_NAME_BYTES: usize = 64;

/// A table's name: 1 to 64 of `A-Z a-z 0-9 _ . -`, not beginning with a dot or a hyphen. So it is a
/// plain file name and needs no quoting in a URL. It contains neither the colon nor the braces that
/// have a meaning in a wire key.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableName(Arc<str>);

/// The reason that a text is not a valid name.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{name:?} is not a valid {what} name: use 1 to 64 of A-Z a-z 0-9 _ . - and begin with neither \
     a dot nor a hyphen"
)]
pub struct NameError {
    what: &'static str,
    name: String,
}

impl TableName {
    pub fn new(name: &str) -> Result<Self, NameError> {
        check("table", name)?;
        Ok(Self(name.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the prefix of a key on the wire, and before hashing: the name and a colon.
    pub fn wire_prefix(&self) -> Vec<u8> {
        format!("{self}:").into_bytes()
    }
}

/// A run's id within its table; its files are `ID.run` and, when it has one, `ID.ext`. The rules
/// are those of a table's name, without dots.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId(String);

impl RunId {
    pub fn new(id: &str) -> Result<Self, NameError> {
        check("run", id)?;
        if id.contains('.') {
            return Err(NameError {
                what: "run",
                name: id.to_owned(),
            });
        }
        Ok(Self(id.to_owned()))
    }

    /// REQUIRES: the text follows the rules; we build it from digits, letters and hyphens.
    pub(crate) fn plain(id: String) -> Self {
        debug_assert!(Self::new(&id).is_ok(), "{id}");
        Self(id)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn check(what: &'static str, name: &str) -> Result<(), NameError> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    let good = (1..=MAX_NAME_BYTES).contains(&name.len())
        && name.bytes().all(plain)
        && !name.starts_with(['.', '-']);
    if good {
        Ok(())
    } else {
        Err(NameError {
            what,
            name: name.chars().take(80).collect(),
        })
    }
}

impl fmt::Debug for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Borrow<str> for TableName {
    fn borrow(&self) -> &str {
        self.as_str()
    }
}

impl FromStr for TableName {
    type Err = NameError;
    fn from_str(name: &str) -> Result<Self, NameError> {
        Self::new(name)
    }
}

impl Serialize for TableName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl Serialize for RunId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for TableName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        Self::new(&name).map_err(serde::de::Error::custom)
    }
}

impl<'de> Deserialize<'de> for RunId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let id = String::deserialize(deserializer)?;
        Self::new(&id).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_names_pass_and_anything_else_is_refused() {
        for good in ["a", "flights", "A-1_b.c", "9", &"x".repeat(64)] {
            assert_eq!(
                TableName::new(good).map(|name| name.to_string()),
                Ok(good.to_owned())
            );
        }
        let bad = [
            "", ".", "..", ".x", "-x", "a/b", "a:b", "{a}", "a b", "ä", "a\0", "a\n",
        ];
        for bad in bad.iter().copied().chain([&*"x".repeat(65)]) {
            assert!(TableName::new(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn run_ids_hold_no_dot_and_no_way_out_of_their_directory() {
        assert!(RunId::new("0003-19a1b2-00ff").is_ok());
        for bad in ["a.run", "..", "a/../b", "/etc/passwd", ""] {
            assert!(RunId::new(bad).is_err(), "{bad:?}");
            let json = serde_json::to_string(bad).expect("a string");
            assert!(serde_json::from_str::<RunId>(&json).is_err(), "{bad:?}");
        }
    }
}
