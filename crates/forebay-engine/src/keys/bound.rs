//! The bounds of partitions.

use std::fmt;

use forebay_run::hash::SLOTS;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::keys::key_text::{from_hex, show_key, to_hex};

/// A position in a table's order.
///
/// In JSON: `{"slot": 4096}`, `{"key": "text"}`, or `{"key_hex": "00ff"}` for a key that is not
/// UTF-8.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bound {
    /// A Redis slot, below 16,384, in a hashed table.
    Slot(u16),
    /// A key in an ordered table; the empty key is before all others.
    Key(Vec<u8>),
}

impl Bound {
    pub(crate) fn into_slot(self) -> Option<u16> {
        match self {
            Bound::Slot(slot) => Some(slot),
            Bound::Key(_) => None,
        }
    }

    pub(crate) fn into_key(self) -> Option<Vec<u8>> {
        match self {
            Bound::Key(key) => Some(key),
            Bound::Slot(_) => None,
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum WrittenBound {
    Slot(u16),
    Key(String),
    KeyHex(String),
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bound::Slot(slot) => write!(f, "slot {slot}"),
            Bound::Key(key) => write!(f, "key {}", show_key(key)),
        }
    }
}

impl Serialize for Bound {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let written = match self {
            Bound::Slot(slot) => WrittenBound::Slot(*slot),
            Bound::Key(key) => match std::str::from_utf8(key) {
                Ok(text) => WrittenBound::Key(text.to_owned()),
                Err(_) => WrittenBound::KeyHex(to_hex(key)),
            },
        };
        written.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Bound {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match WrittenBound::deserialize(deserializer)? {
            WrittenBound::Slot(slot) if u32::from(slot) < SLOTS => Ok(Bound::Slot(slot)),
            WrittenBound::Slot(slot) => Err(serde::de::Error::custom(format!(
                "slot {slot} is out of range: there are {SLOTS}"
            ))),
            WrittenBound::Key(text) => Ok(Bound::Key(text.into_bytes())),
            WrittenBound::KeyHex(digits) => from_hex(&digits)
                .map(Bound::Key)
                .ok_or_else(|| serde::de::Error::custom("key_hex is not pairs of hex digits")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn slots_out_of_range_and_bad_hex_are_refused() {
        for bad in [
            r#"{"slot":16384}"#,
            r#"{"key_hex":"0"}"#,
            r#"{"key_hex":"0g"}"#,
            r#""x""#,
        ] {
            assert!(serde_json::from_str::<Bound>(bad).is_err(), "{bad}");
        }
        assert_eq!(
            serde_json::from_str::<Bound>(r#"{"slot":5}"#).ok(),
            Some(Bound::Slot(5))
        );
    }

    proptest! {
        #[test]
        fn any_key_is_read_back(key in proptest::collection::vec(any::<u8>(), 0..20)) {
            let bound = Bound::Key(key);
            let text = serde_json::to_string(&bound).expect("written");
            prop_assert_eq!(serde_json::from_str::<Bound>(&text).expect("read"), bound);
        }
    }
}
