//! Sealed documents: small JSON texts with a checksum that detects damage.
//!
//! A sealed document is a JSON text, a line feed, and one last line `xxh3 HHHHHHHHHHHHHHHH`: the
//! XXH3-64 of all bytes before that line, as 16 lower-case hex digits, and a line feed. The
//! checksum detects any byte that was changed, added or cut off.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use thiserror::Error;
use xxhash_rust::xxh3::xxh3_64;

/// `xxh3 `, 16 digits, line feed.
const LAST_LINE_BYTES: usize = 22;

/// The reason that a document cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DocumentError {
    #[error("its last line is not a checksum: the file was cut short or is not one of ours")]
    NoChecksum,
    #[error("its checksum does not match its content")]
    Checksum,
    #[error("it is of format {found}, this program reads format {known}: use a newer forebay")]
    Format { found: u64, known: u64 },
    #[error("it does not have the shape of its format: {0}")]
    Shape(String),
    #[error("it contradicts itself: {0}")]
    Inconsistent(String),
}

/// Returns the document's bytes for the file, and its checksum.
pub fn seal<T: Serialize>(document: &T) -> Result<(Vec<u8>, u64), DocumentError> {
    let mut bytes = serde_json::to_vec_pretty(document).map_err(shape)?;
    bytes.push(b'\n');
    let sum = xxh3_64(&bytes);
    Ok((seal_text(bytes), sum))
}

/// Appends the last line that a manifest or a pointer needs to be accepted. For manual repair of
/// such a file, and for tests: readers still check the content.
pub fn seal_text(mut text: Vec<u8>) -> Vec<u8> {
    let sum = xxh3_64(&text);
    text.extend_from_slice(last_line(sum).as_bytes());
    text
}

/// Checks the seal and the format number named `format_field`, then parses the document. Returns it
/// with its checksum, which identifies it.
pub fn unseal<T: DeserializeOwned>(
    bytes: &[u8],
    format_field: &str,
    known: u64,
) -> Result<(T, u64), DocumentError> {
    let (body, sum) = checked_body(bytes)?;
    check_format(body, format_field, known)?;
    Ok((serde_json::from_slice(body).map_err(shape)?, sum))
}

/// A function that converts a document to the next format, except for the number; `None` if the
/// document lacks a field of its format.
pub(crate) type Upgrade = fn(&mut Value) -> Option<()>;

/// A document that may have had an older format.
pub(crate) struct Unsealed<T> {
    pub document: T,
    /// Identifies the document as it was read.
    pub sum: u64,
    /// The original format.
    pub format: u64,
}

/// Does [`unseal`] for a document that may have an older format. `upgrades` convert each older
/// format to the next one, the last of them to the known format.
pub(crate) fn unseal_upgrading<T: DeserializeOwned>(
    bytes: &[u8],
    format_field: &str,
    known: u64,
    upgrades: &[Upgrade],
) -> Result<Unsealed<T>, DocumentError> {
    let (body, sum) = checked_body(bytes)?;
    let format = format_of(body, format_field)?;
    let document = match known
        .checked_sub(format)
        .and_then(|n| usize::try_from(n).ok())
    {
        Some(0) => serde_json::from_slice(body).map_err(shape)?,
        Some(behind) if behind <= upgrades.len() => {
            let mut document: Value = serde_json::from_slice(body).map_err(shape)?;
            for upgrade in &upgrades[upgrades.len() - behind..] {
                let lacking = || DocumentError::Shape("it lacks what its format has".to_owned());
                upgrade(&mut document).ok_or_else(lacking)?;
            }
            document[format_field] = known.into();
            serde_json::from_value(document).map_err(shape)?
        }
        _ => {
            let found = format;
            return Err(DocumentError::Format { found, known });
        }
    };
    Ok(Unsealed {
        document,
        sum,
        format,
    })
}

/// Returns the sealed bytes and their checksum.
fn checked_body(bytes: &[u8]) -> Result<(&[u8], u64), DocumentError> {
    let cut = bytes
        .len()
        .checked_sub(LAST_LINE_BYTES)
        .ok_or(DocumentError::NoChecksum)?;
    let (body, line) = bytes.split_at(cut);
    if !line.starts_with(b"xxh3 ") || !line.ends_with(b"\n") {
        return Err(DocumentError::NoChecksum);
    }
    let sum = xxh3_64(body);
    if line != last_line(sum).as_bytes() {
        return Err(DocumentError::Checksum);
    }
    Ok((body, sum))
}

/// Later formats may be completely different, so the number is read before anything else.
pub(crate) fn check_format(body: &[u8], field: &str, known: u64) -> Result<(), DocumentError> {
    match format_of(body, field)? {
        found if found == known => Ok(()),
        found => Err(DocumentError::Format { found, known }),
    }
}

fn format_of(body: &[u8], field: &str) -> Result<u64, DocumentError> {
    let value: Value = serde_json::from_slice(body).map_err(shape)?;
    let found = value.get(field).and_then(Value::as_u64);
    found.ok_or_else(|| DocumentError::Shape(format!("the field {field:?} is missing")))
}

fn shape(error: serde_json::Error) -> DocumentError {
    DocumentError::Shape(error.to_string())
}

fn last_line(sum: u64) -> String {
    format!("xxh3 {sum:016x}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde::Deserialize;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Note {
        format: u64,
        text: String,
    }

    fn sealed(format: u64, text: &str) -> Vec<u8> {
        seal(&Note {
            format,
            text: text.to_owned(),
        })
        .expect("sealed")
        .0
    }

    #[test]
    fn every_flipped_bit_and_every_truncation_is_detected() {
        let bytes = sealed(1, "abc def");
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut changed = bytes.clone();
                changed[at] ^= 1 << bit;
                assert!(
                    unseal::<Note>(&changed, "format", 1).is_err(),
                    "byte {at} bit {bit}"
                );
            }
            assert!(
                unseal::<Note>(&bytes[..at], "format", 1).is_err(),
                "cut at {at}"
            );
        }
        let longer = [&bytes[..], b"\n"].concat();
        assert!(unseal::<Note>(&longer, "format", 1).is_err());
    }

    #[test]
    fn an_unknown_format_is_refused_by_name() {
        let error = unseal::<Note>(&sealed(7, "x"), "format", 1).expect_err("refused");
        assert_eq!(error, DocumentError::Format { found: 7, known: 1 });
        assert!(error.to_string().contains("format 7"), "{error}");
    }

    proptest! {
        #[test]
        fn sealed_text_is_read_back(text in ".*") {
            let (note, _) = unseal::<Note>(&sealed(1, &text), "format", 1).expect("read back");
            prop_assert_eq!(note.text, text);
        }

        #[test]
        fn any_bytes_give_an_error_not_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            prop_assert!(unseal::<Note>(&bytes, "format", 1).is_err());
        }
    }
}
