//! Keys in a plan's JSON: numbers (hashes, times), strings, or bytes that are no string.

use std::cmp::Ordering;
use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{self, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A key by which a table is ordered. Integers and strings compare exactly. An integer compares
/// with a fraction as its nearest double. Numbers sort before strings. Strings and bytes compare
/// byte by byte, so a string and its own bytes are one key.
#[derive(Debug, Clone)]
pub enum Key {
    Integer(i128),
    /// A finite fraction.
    Fraction(f64),
    Text(String),
    /// Bytes that are no string; in JSON `{"key_hex": "00ff"}`.
    Bytes(Vec<u8>),
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        use Key::{Fraction, Integer};
        match (self, other) {
            (Integer(a), Integer(b)) => a.cmp(b),
            (Integer(a), Fraction(b)) => (*a as f64).total_cmp(b),
            (Fraction(a), Integer(b)) => a.total_cmp(&(*b as f64)),
            (Fraction(a), Fraction(b)) => a.total_cmp(b),
            // A key that is no string and no bytes is a number.
            _ => self.as_bytes().cmp(&other.as_bytes()),
        }
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Key {}

impl Key {
    /// Makes a key of bytes: a string if they are one.
    pub fn from_bytes(bytes: Vec<u8>) -> Self {
        match String::from_utf8(bytes) {
            Ok(text) => Self::Text(text),
            Err(error) => Self::Bytes(error.into_bytes()),
        }
    }

    /// Returns the bytes of a string or of bytes, or none for a number.
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Integer(_) | Self::Fraction(_) => None,
            Self::Text(text) => Some(text.as_bytes()),
            Self::Bytes(bytes) => Some(bytes),
        }
    }

    /// Estimates which part of the keys from this one up to `end` is below `key`, as if they were
    /// evenly distributed. REQUIRES: `key` is in that range.
    pub fn part_below(&self, key: &Self, end: &Self) -> f64 {
        let number = |key: &Self| match key {
            Self::Integer(n) => *n as f64,
            Self::Fraction(n) => *n,
            Self::Text(_) | Self::Bytes(_) => 0.0,
        };
        let [from, at, to] = match (self.as_bytes(), key.as_bytes(), end.as_bytes()) {
            (Some(from), Some(at), Some(to)) => as_fractions([from, at, to]),
            _ => [number(self), number(key), number(end)],
        };
        match from < to {
            true => ((at - from) / (to - from)).clamp(0.0, 1.0),
            false => 1.0,
        }
    }

    /// Returns whether it is a string or bytes, and no number: a table's keys are all one or the
    /// other.
    pub fn is_text(&self) -> bool {
        self.as_bytes().is_some()
    }
}

/// The number of bytes after the common prefix that decide the position of a key.
const DECIDING_BYTES: usize = 12;

/// Returns strings as numbers from 0 to 1 whose digits are their bytes, in the first alphabet that
/// has them all.
fn as_fractions(keys: [&[u8]; 3]) -> [f64; 3] {
    let [first, _, last] = keys;
    let common = first.iter().zip(last).take_while(|(a, b)| a == b).count();
    let tails = keys.map(|key| key.get(common..).unwrap_or_default());
    let tails = tails.map(|tail| &tail[..tail.len().min(DECIDING_BYTES)]);
    let bytes = || tails.iter().copied().flatten();
    let alphabets: [&[u8]; 3] = [
        b"0123456789",
        b"0123456789abcdef",
        b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz",
    ];
    let has_all = |alphabet: &&[u8]| bytes().all(|byte| alphabet.contains(byte));
    let alphabet = alphabets.into_iter().find(has_all);
    let base = alphabet.map_or(256, <[u8]>::len) as f64;
    let digit = |byte: &u8| match alphabet {
        Some(alphabet) => alphabet.partition_point(|other| other < byte),
        None => usize::from(*byte),
    };
    tails.map(|tail| {
        let digits = tail.iter().rev();
        digits.fold(0.0, |sum, byte| (sum + digit(byte) as f64) / base)
    })
}

/// Bytes that are written as two digits each.
struct Hex<'a>(&'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(n) => write!(f, "{n}"),
            Self::Fraction(n) => write!(f, "{n}"),
            Self::Text(text) => write!(f, "{text:?}"),
            Self::Bytes(bytes) => write!(f, "0x{}", Hex(bytes)),
        }
    }
}

impl Serialize for Key {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Integer(n) => match (u64::try_from(*n), i64::try_from(*n)) {
                (Ok(n), _) => serializer.serialize_u64(n),
                (_, Ok(n)) => serializer.serialize_i64(n),
                _ => serializer.serialize_f64(*n as f64),
            },
            Self::Fraction(n) => serializer.serialize_f64(*n),
            Self::Text(text) => serializer.serialize_str(text),
            Self::Bytes(bytes) => {
                let mut map = serializer.serialize_map(Some(1))?;
                map.serialize_entry("key_hex", &Hex(bytes).to_string())?;
                map.end()
            }
        }
    }
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(KeyVisitor)
    }
}

struct KeyVisitor;

/// The JSON form of bytes.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HexKey {
    #[serde(deserialize_with = "from_hex")]
    key_hex: Vec<u8>,
}

fn from_hex<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let pair = |pair: &[u8]| {
        let digit = |byte: &u8| char::from(*byte).to_digit(16);
        match pair {
            [high, low] => Some((digit(high)? << 4 | digit(low)?) as u8),
            _ => None,
        }
    };
    let bytes: Option<Vec<u8>> = text.as_bytes().chunks(2).map(pair).collect();
    bytes.ok_or_else(|| de::Error::custom("is not pairs of hex digits"))
}

impl<'de> Visitor<'de> for KeyVisitor {
    type Value = Key;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key: a number, a string or {\"key_hex\": digits}")
    }

    fn visit_u64<E: de::Error>(self, n: u64) -> Result<Key, E> {
        Ok(Key::Integer(n.into()))
    }

    fn visit_i64<E: de::Error>(self, n: i64) -> Result<Key, E> {
        Ok(Key::Integer(n.into()))
    }

    fn visit_f64<E: de::Error>(self, n: f64) -> Result<Key, E> {
        // -0 and 0 are one key.
        Ok(Key::Fraction(n + 0.0))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Key, E> {
        Ok(Key::Text(text.to_owned()))
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<Key, A::Error> {
        let hex = HexKey::deserialize(MapAccessDeserializer::new(fields))?;
        Ok(Key::from_bytes(hex.key_hex))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_sort_as_their_kind_does_and_survive_json() {
        let text = r#"[18446744073709551615,"b",-3,"a",2.5,2]"#;
        let mut keys: Vec<Key> = serde_json::from_str(text).expect("keys");
        keys.sort();
        let sorted = serde_json::to_string(&keys).expect("JSON");
        assert_eq!(sorted, r#"[-3,2,2.5,18446744073709551615,"a","b"]"#);
        assert!(serde_json::from_str::<Key>("[1]").is_err());
        assert!(serde_json::from_str::<Key>("null").is_err());
    }

    #[test]
    fn a_key_is_placed_by_its_digits() {
        let text = |text: &str| Key::Text(text.to_owned());
        let near = |from: Key, key: Key, end: Key, expected: f64| {
            let part = from.part_below(&key, &end);
            assert!((part - expected).abs() < 0.01, "{from} {key} {end}: {part}");
        };
        let number = Key::Integer;
        near(number(-100), number(-50), number(100), 0.25);
        near(number(0), Key::Fraction(0.5), number(1), 0.5);
        near(text("k0010000"), text("k0015000"), text("k0020000"), 0.5);
        near(text("k00ff"), text("k017f"), text("k01ff"), 0.5);
        near(text("apple"), text("melon"), text("z"), 0.49);
        near(text("a/1"), text("a/1/x"), text("b"), 0.0);
        near(text(""), text("m"), text("z"), 0.8);
        let bytes = |byte: u8| Key::Bytes(vec![0xff, byte]);
        near(bytes(0), bytes(64), bytes(255), 0.25);
        near(text("a"), text("a"), text("a"), 1.0);
    }

    #[test]
    fn bytes_sort_among_strings_and_survive_json() {
        let text = r#"[{"key_hex":"ff"},"b",{"key_hex":"61FF00"},"a",{"key_hex":""},"\u00e9",7]"#;
        let mut keys: Vec<Key> = serde_json::from_str(text).expect("keys");
        keys.sort();
        let sorted = serde_json::to_string(&keys).expect("JSON");
        assert_eq!(
            sorted,
            r#"[7,"","a",{"key_hex":"61ff00"},"b","é",{"key_hex":"ff"}]"#
        );
        assert_eq!(keys[3].to_string(), "0x61ff00");
        assert_eq!(
            Key::Bytes(b"a".to_vec()),
            Key::from_bytes(b"a".to_vec()),
            "one key"
        );
        assert!(matches!(Key::from_bytes(b"a".to_vec()), Key::Text(_)));
        assert!(Key::Bytes(vec![]).is_text() && !Key::Integer(1).is_text());
        for wrong in [
            r#"{"key_hex":"0"}"#,
            r#"{"key_hex":"0g"}"#,
            r#"{"key_hex":"é0"}"#,
            r#"{"key_hex":"+1"}"#,
            r#"{"key_hex":1}"#,
            r#"{"hex":"00"}"#,
            r#"{"key_hex":"00","x":1}"#,
            "{}",
        ] {
            assert!(serde_json::from_str::<Key>(wrong).is_err(), "{wrong}");
        }
    }
}
