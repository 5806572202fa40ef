//! The parts of a store's URL.

use object_store::path::Path as Key;
use percent_encoding::percent_decode_str;
use thiserror::Error;

/// The parsed URL of a store in object storage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    pub kind: Kind,
    pub bucket: String,
    /// The prefix of all keys; may be empty.
    pub prefix: Key,
}

/// The kind of object storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    S3,
    Google,
    Azure,
}

/// The most bytes of a key; every provider has a limit.
const MOST_KEY_BYTES: usize = 1024;
/// The most bytes of a bucket's name.
const MOST_BUCKET_BYTES: usize = 222;

/// Why a URL does not name a store.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum AddressError {
    #[error("{url}: stores are at s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX")]
    Scheme { url: String },
    #[error("{url}: it names no bucket; write {scheme}://BUCKET/PREFIX")]
    NoBucket { url: String, scheme: String },
    #[error("{url}: {problem}; the prefix is made of names with single slashes between them")]
    Prefix { url: String, problem: String },
    #[error("{begin}...: its {what} has {bytes} bytes, and {most} at most are possible")]
    TooLong {
        begin: String,
        what: &'static str,
        bytes: usize,
        most: usize,
    },
}

/// Returns whether a store's name is the URL of one in object storage, by its scheme.
pub fn is_remote(text: &str) -> bool {
    text.split_once("://")
        .is_some_and(|(scheme, _)| kind_of(scheme).is_some())
}

/// Returns the path on this machine of a `file:` URL, from the text after `file://`: absolute, with
/// `%20` and the like decoded. `None`: it is not an absolute path in UTF-8.
pub fn path_of_file_url(rest: &str) -> Option<String> {
    let path = rest.strip_prefix("localhost").unwrap_or(rest);
    if !path.starts_with('/') {
        return None;
    }
    let decoded = percent_decode_str(path).decode_utf8().ok()?;
    Some(decoded.into_owned())
}

impl Address {
    pub fn parse(url: &str) -> Result<Self, AddressError> {
        let scheme = || AddressError::Scheme {
            url: url.to_owned(),
        };
        let (name, rest) = url.split_once("://").ok_or_else(scheme)?;
        let kind = kind_of(name).ok_or_else(scheme)?;
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        check_length(url, "bucket", bucket, MOST_BUCKET_BYTES)?;
        check_length(url, "key", prefix, MOST_KEY_BYTES)?;
        let plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        if bucket.is_empty() || !bucket.chars().all(plain) {
            return Err(AddressError::NoBucket {
                url: url.to_owned(),
                scheme: name.to_owned(),
            });
        }
        let bad = |problem: String| AddressError::Prefix {
            url: url.to_owned(),
            problem,
        };
        let prefix = prefix.trim_end_matches('/');
        if prefix.starts_with('/') {
            return Err(bad("it begins with a slash".to_owned()));
        }
        if prefix.split('/').any(|part| part == "." || part == "..") {
            return Err(bad("it has a name . or ..".to_owned()));
        }
        let prefix = Key::parse(prefix).map_err(|error| bad(error.to_string()))?;
        Ok(Self {
            kind,
            bucket: bucket.to_owned(),
            prefix,
        })
    }

    /// Returns the URL in the form that messages use.
    pub fn url(&self) -> String {
        let scheme = match self.kind {
            Kind::S3 => "s3",
            Kind::Google => "gs",
            Kind::Azure => "az",
        };
        let bucket = &self.bucket;
        match self.prefix.as_ref() {
            "" => format!("{scheme}://{bucket}"),
            prefix => format!("{scheme}://{bucket}/{prefix}"),
        }
    }
}

fn check_length(
    url: &str,
    what: &'static str,
    part: &str,
    most: usize,
) -> Result<(), AddressError> {
    if part.len() <= most {
        return Ok(());
    }
    Err(AddressError::TooLong {
        begin: url.chars().take(40).collect(),
        what,
        bytes: part.len(),
        most,
    })
}

fn kind_of(scheme: &str) -> Option<Kind> {
    match scheme {
        "s3" | "s3a" => Some(Kind::S3),
        "gs" => Some(Kind::Google),
        "az" => Some(Kind::Azure),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_and_written_one_way() {
        for (url, written) in [
            ("s3://b", "s3://b"),
            ("s3://b/", "s3://b"),
            ("s3://b/a/c/", "s3://b/a/c"),
            ("s3a://b/a", "s3://b/a"),
            ("gs://my.bucket/x", "gs://my.bucket/x"),
            ("az://container/x", "az://container/x"),
        ] {
            assert!(is_remote(url));
            assert_eq!(
                Address::parse(url).map(|at| at.url()).as_deref(),
                Ok(written)
            );
        }
    }

    #[test]
    fn file_urls_are_decoded() {
        let path = |rest| path_of_file_url(rest).unwrap_or_default();
        assert_eq!(path("/srv/my%20store"), "/srv/my store");
        assert_eq!(path("localhost/srv/50%"), "/srv/50%");
        assert_eq!(path("/srv/%C3%BC"), "/srv/ü");
        for rest in ["srv", "host/srv", "localhost", "/srv/%FF"] {
            assert_eq!(path_of_file_url(rest), None, "{rest}");
        }
    }

    #[test]
    fn addresses_without_a_bucket_are_refused() {
        for url in [
            "s3://",
            "s3:///x",
            "s3://b/../x",
            "s3://b//x",
            "s3://u@b/x",
            "http://b/x",
        ] {
            assert!(Address::parse(url).is_err(), "{url}");
        }
        let long = "a".repeat(66_000);
        for url in [format!("s3://b/{long}"), format!("s3://{long}/x")] {
            let reported = Address::parse(&url).unwrap_err().to_string();
            assert!(
                reported.contains("has 66000 bytes") && reported.len() < 120,
                "{reported}"
            );
        }
        assert!(!is_remote("/srv/forebay") && !is_remote("file:///x") && !is_remote("./s3"));
    }
}
