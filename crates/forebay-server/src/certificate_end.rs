//! Reads the end of a certificate's validity.
//!
//! The TLS library checks dates but does not expose them. This module skips the few fields before
//! the date, in the layout of RFC 5280. The date is only shown to operators: no decision depends on
//! it.

const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
/// `[0] EXPLICIT`, around the version of the certificate's format.
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

const DAY_SECONDS: i64 = 24 * 3600;

/// Returns the moment after which a DER certificate is not valid, in seconds since 1970. `None` if
/// its form is not known.
pub fn not_after_unix_s(certificate: &[u8]) -> Option<i64> {
    let (certificate, _) = field(certificate, SEQUENCE)?;
    let (signed, _) = field(certificate, SEQUENCE)?;
    let rest = match field(signed, VERSION) {
        Some((_, rest)) => rest,
        None => signed,
    };
    let (_serial, rest) = field(rest, INTEGER)?;
    let (_algorithm, rest) = field(rest, SEQUENCE)?;
    let (_issuer, rest) = field(rest, SEQUENCE)?;
    let (validity, _) = field(rest, SEQUENCE)?;
    let (_, not_after) = any(validity)?;
    time(not_after)
}

/// Returns the content of a field with this tag, and the bytes after it.
fn field(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let ((found, content), rest) = any(bytes)?;
    (found == tag).then_some((content, rest))
}

/// A field's one-byte tag and its content.
type Field<'a> = (u8, &'a [u8]);

/// Returns the first field, and the bytes after it.
fn any(bytes: &[u8]) -> Option<(Field<'_>, &[u8])> {
    let (tag, rest) = bytes.split_first()?;
    let (first, rest) = rest.split_first()?;
    let (len, rest) = match usize::from(*first) {
        len if len < 0x80 => (len, rest),
        // The length takes this many bytes.
        count @ 0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(count - 0x80)?;
            let digits = digits.iter();
            (
                digits.fold(0, |len, digit| len << 8 | usize::from(*digit)),
                rest,
            )
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(len)?;
    Some(((*tag, content), rest))
}

/// `YYMMDDHHMMSSZ` or `YYYYMMDDHHMMSSZ`, the only forms that certificates may have.
fn time(bytes: &[u8]) -> Option<i64> {
    let ((tag, text), _) = any(bytes)?;
    let digits = text.strip_suffix(b"Z")?;
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let (year, rest) = match (tag, digits.len()) {
        (UTC_TIME, 12) => {
            let year = number(&digits[..2]);
            (year + if year < 50 { 2000 } else { 1900 }, &digits[2..])
        }
        (GENERALIZED_TIME, 14) => (number(&digits[..4]), &digits[4..]),
        _ => return None,
    };
    let part = |at: usize| number(&rest[at..at + 2]);
    let (month, day) = (part(0), part(2));
    let is_date = (1..=12).contains(&month) && (1..=31).contains(&day);
    let seconds = part(4) * 3600 + part(6) * 60 + part(8);
    is_date.then(|| days(year, month, day) * DAY_SECONDS + seconds)
}

fn number(digits: &[u8]) -> i64 {
    let digits = digits.iter().map(|digit| i64::from(digit - b'0'));
    digits.fold(0, |number, digit| number * 10 + digit)
}

/// Returns the days from 1970-01-01 to a day. Its years begin in March, so that leap days are last.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let months = (month + 9) % 12;
    let leaps = year / 4 - year / 100 + year / 400;
    // 719,468 days are between March of the year 0 and 1970.
    year * 365 + leaps + (153 * months + 2) / 5 + day - 1 - 719_468
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    fn made(year: i32, month: u8, day: u8) -> Vec<u8> {
        let mut params = CertificateParams::new(vec!["a.example".to_owned()]).expect("a name");
        params.not_after = date_time_ymd(year, month, day);
        let key = KeyPair::generate().expect("a key");
        params.self_signed(&key).expect("signed").der().to_vec()
    }

    #[test]
    fn the_end_date_of_a_certificate_is_read() {
        for (year, month, day, seconds) in [
            (1999, 12, 31, 946_598_400),
            (2024, 2, 29, 1_709_164_800),
            (2026, 11, 23, 1_795_392_000),
            (2049, 12, 31, 2_524_521_600),
            // From 2050 on dates are written in the longer form.
            (2050, 1, 1, 2_524_608_000),
            (4096, 1, 1, 67_090_118_400),
        ] {
            let end = not_after_unix_s(&made(year, month, day));
            assert_eq!(end, Some(seconds), "{year}-{month}-{day}");
        }
    }

    #[test]
    fn invalid_certificates_have_no_end_date() {
        let whole = made(2030, 1, 1);
        let end = whole.windows(13).position(|at| at == b"300101000000Z");
        let end = end.expect("the date as text") + 13;
        for len in 0..end {
            // Its lengths say that more follows.
            assert_eq!(not_after_unix_s(&whole[..len]), None, "{len}");
        }
        for at in 0..end {
            let mut changed = whole.clone();
            changed[at] ^= 0xff;
            // It must not panic. A result after a change of the serial number is correct.
            let _ = not_after_unix_s(&changed);
        }
        for text in [&b""[..], b"x", b"-----BEGIN CERTIFICATE-----"] {
            assert_eq!(not_after_unix_s(text), None);
        }
    }
}
