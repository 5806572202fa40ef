//! Keys as a plan's JSON has them: numbers (hashes, times) or strings.

use std::cmp::Ordering;
use std::fmt;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A key by which a table is ordered. Integers and strings compare exactly; an integer compares
/// with a fraction as its nearest double; numbers stand before strings.
#[derive(Debug, Clone)]
pub enum Key {
    Integer(i128),
    /// Finite.
    Fraction(f64),
    Text(String),
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        use Key::{Fraction, Integer, Text};
        match (self, other) {
            (Integer(a), Integer(b)) => a.cmp(b),
            (Integer(a), Fraction(b)) => (*a as f64).total_cmp(b),
            (Fraction(a), Integer(b)) => a.total_cmp(&(*b as f64)),
            (Fraction(a), Fraction(b)) => a.total_cmp(b),
            (Text(a), Text(b)) => a.cmp(b),
            (Text(_), _) => Ordering::Greater,
            (_, Text(_)) => Ordering::Less,
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
    pub fn is_text(&self) -> bool {
        matches!(self, Self::Text(_))
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(n) => write!(f, "{n}"),
            Self::Fraction(n) => write!(f, "{n}"),
            Self::Text(text) => write!(f, "{text:?}"),
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
        }
    }
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(KeyVisitor)
    }
}

struct KeyVisitor;

impl Visitor<'_> for KeyVisitor {
    type Value = Key;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key: a number or a string")
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
}
