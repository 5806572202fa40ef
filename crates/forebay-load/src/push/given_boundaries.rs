//! Parses the boundaries of partitions that the user gives.
//!
//! They are a JSON array of ascending places, of keys or of slots: `["g", {"key_hex": "00ff"}]`,
//! `[4096, 8192]`. A place may also have the form of a manifest: `{"key": "g"}`, `{"slot": 4096}`.
//! The very first place may be omitted.

use forebay_engine::{Bound, MAX_PARTITIONS};
use forebay_run::Order;
use serde::Deserialize;

use crate::sort::Boundaries;

/// Given boundaries. [`GivenBoundaries::of_order`] checks whether they fit the table's order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GivenBoundaries(Vec<Bound>);

/// An error of invalid boundaries.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BoundariesError {
    #[error(
        "the boundaries cannot be read: {0}; write a JSON array of keys or slots, as in [\"g\", \"p\"] or \
         [4096, 8192]"
    )]
    Json(String),
    #[error("the boundaries begin {count} partitions, and a table has {MAX_PARTITIONS} at most")]
    TooMany { count: usize },
    #[error("the boundary {bound} is of the other order: this table is {order}")]
    Kind { bound: Bound, order: &'static str },
    #[error("the boundaries do not rise: {before}, then {after}")]
    Order { before: Bound, after: Bound },
}

#[derive(Deserialize)]
#[serde(untagged)]
enum BoundaryPlace {
    Slot(u64),
    Key(String),
    Bound(Bound),
}

impl GivenBoundaries {
    /// Reads the JSON text.
    pub fn parse(json: &str) -> Result<Self, BoundariesError> {
        let places: Vec<BoundaryPlace> =
            serde_json::from_str(json).map_err(|error| BoundariesError::Json(error.to_string()))?;
        let bounds = places.into_iter().map(|place| match place {
            BoundaryPlace::Slot(slot) => slot_of(slot),
            BoundaryPlace::Key(key) => Ok(Bound::Key(key.into_bytes())),
            BoundaryPlace::Bound(bound) => Ok(bound),
        });
        bounds.collect::<Result<_, _>>().map(Self)
    }

    /// Returns the partitions of a table of that order; the first begins at the very start.
    pub fn of_order(&self, order: Order) -> Result<Boundaries, BoundariesError> {
        let (first, name) = match order {
            Order::Hashed => (Bound::Slot(0), "hashed"),
            Order::Ordered => (Bound::Key(Vec::new()), "ordered"),
        };
        let is_given = self.0.first() == Some(&first);
        let bounds = (!is_given).then_some(&first).into_iter().chain(&self.0);
        let bounds: Vec<&Bound> = bounds.collect();
        if bounds.len() > MAX_PARTITIONS {
            let count = bounds.len();
            return Err(BoundariesError::TooMany { count });
        }
        for pair in bounds.windows(2) {
            let (before, after) = (pair[0].clone(), pair[1].clone());
            match (&first, &after) {
                (Bound::Slot(_), Bound::Slot(_)) | (Bound::Key(_), Bound::Key(_)) => {}
                _ => {
                    let (bound, order) = (after, name);
                    return Err(BoundariesError::Kind { bound, order });
                }
            }
            if before >= after {
                return Err(BoundariesError::Order { before, after });
            }
        }
        Ok(Boundaries::at(bounds.into_iter().cloned().collect()))
    }
}

fn slot_of(slot: u64) -> Result<Bound, BoundariesError> {
    // The engine's own error for a slot that is out of range.
    let bound: Result<Bound, _> = serde_json::from_value(serde_json::json!({ "slot": slot }));
    bound.map_err(|error| BoundariesError::Json(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn boundaries(json: &str, order: Order) -> Result<Vec<Bound>, String> {
        let boundaries = GivenBoundaries::parse(json).and_then(|given| given.of_order(order));
        let boundaries = boundaries.map_err(|error| error.to_string())?;
        Ok((0..boundaries.len())
            .map(|at| boundaries.first_of(at).clone())
            .collect())
    }

    #[test]
    fn keys_and_slots_are_read_in_every_form() {
        let key = |key: &[u8]| Bound::Key(key.to_vec());
        let wanted = vec![key(b""), key(b"g"), key(b"p"), key(b"\xff\x00")];
        for json in [
            r#"["g", "p", {"key_hex": "ff00"}]"#,
            r#"["", {"key": "g"}, "p", {"key_hex": "ff00"}]"#,
        ] {
            assert_eq!(boundaries(json, Order::Ordered), Ok(wanted.clone()));
        }
        let wanted = vec![Bound::Slot(0), Bound::Slot(4096), Bound::Slot(8192)];
        for json in ["[4096, 8192]", r#"[0, {"slot": 4096}, 8192]"#] {
            assert_eq!(boundaries(json, Order::Hashed), Ok(wanted.clone()));
        }
        assert_eq!(boundaries("[]", Order::Hashed), Ok(vec![Bound::Slot(0)]));
    }

    #[test]
    fn invalid_boundaries_are_refused_with_the_reason() {
        let many = format!(
            "[{}]",
            (0..20_000)
                .map(|i| format!("\"{i:05}\""))
                .collect::<Vec<_>>()
                .join(",")
        );
        for (json, order, word) in [
            ("[1, 1]", Order::Hashed, "slot 1, then slot 1"),
            ("[\"b\", \"a\"]", Order::Ordered, "do not rise"),
            ("[\"b\"]", Order::Hashed, "hashed"),
            ("[7]", Order::Ordered, "slot 7"),
            ("[16384]", Order::Hashed, "out of range"),
            ("[99999999]", Order::Hashed, "cannot be read"),
            ("[-1]", Order::Hashed, "cannot be read"),
            ("{\"a\": 1}", Order::Ordered, "JSON array"),
            ("[null]", Order::Ordered, "cannot be read"),
            (&many, Order::Ordered, "16384 at most"),
        ] {
            let error = boundaries(json, order).unwrap_err();
            assert!(error.contains(word), "{word}: {error}");
        }
    }
}
