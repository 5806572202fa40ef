//! The meaning of an answer to a write: done, to be resent, or neither.

use std::str::FromStr as _;

use forebay_cluster::HostPort;

use super::resp::RespAnswer;

/// The outcome of a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Done,
    /// Nothing was written; this node leads.
    Moved(HostPort),
    /// Nothing was written, for now.
    NotWritten(String),
    /// It was written, or was not, or will be.
    Unknown(String),
    /// It was not written, and resending it will not help.
    Refused(String),
}

/// Codes of servers that say that nothing was written, for now.
const PASSING: [&str; 5] = [
    "NOREPLICAS ",
    "CLUSTERDOWN ",
    "LOADING ",
    "OOM ",
    "ERR max number of clients",
];
/// Codes after which the outcome is unknown.
const UNKNOWN: [&str; 3] = ["UNCERTAIN ", "MISCONF ", "TRYAGAIN "];
/// The text of TRYAGAIN when it is certain that nothing was written.
const NOTHING_WRITTEN: &str = "nothing was written";

impl Verdict {
    pub fn of(answer: &RespAnswer) -> Self {
        let RespAnswer::Error(words) = answer else {
            return Verdict::Done;
        };
        if let Some(moved) = words.strip_prefix("MOVED ") {
            let address = moved.split(' ').nth(1);
            let node = address.and_then(|address| HostPort::from_str(address).ok());
            return match node {
                Some(node) => Verdict::Moved(node),
                None => Verdict::NotWritten(words.clone()),
            };
        }
        let is_of = |codes: &[&str]| codes.iter().any(|code| words.starts_with(code));
        let is_certain = words.starts_with("TRYAGAIN ") && words.contains(NOTHING_WRITTEN);
        if is_certain || is_of(&PASSING) {
            Verdict::NotWritten(words.clone())
        } else if is_of(&UNKNOWN) {
            Verdict::Unknown(words.clone())
        } else {
            Verdict::Refused(words.clone())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_say_whether_to_send_again() {
        let of = |words: &str| Verdict::of(&RespAnswer::Error(words.to_owned()));
        let same = |words: &str| words.to_owned();
        assert_eq!(
            Verdict::of(&RespAnswer::Simple("OK".to_owned())),
            Verdict::Done
        );
        let node = HostPort::new("10.0.0.1", 7379);
        assert_eq!(of("MOVED 12 10.0.0.1:7379"), Verdict::Moved(node));
        for words in [
            "MOVED 12",
            "TRYAGAIN nothing was written: nobody leads",
            "NOREPLICAS no majority answers",
            "LOADING it has just started",
            "ERR max number of clients reached",
        ] {
            assert_eq!(of(words), Verdict::NotWritten(same(words)));
        }
        for words in [
            "UNCERTAIN nobody knows",
            "TRYAGAIN no answer",
            "MISCONF a sync failed",
        ] {
            assert_eq!(of(words), Verdict::Unknown(same(words)));
        }
        for words in [
            "NOPERM user",
            "ERR unknown command 'KV.WRITE'",
            "WRONGTYPE rows",
        ] {
            assert_eq!(of(words), Verdict::Refused(same(words)));
        }
    }
}
