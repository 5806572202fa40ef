//! Checks the environment variables of a provider before the client library gets them.
//!
//! A value that cannot be part of a request would otherwise make the library stop the program.

use std::io;

use reqwest::Url;

use crate::address::Kind;

/// The variables of a provider that contain URLs, and those that become part of requests.
const S3: ([&str; 3], &[&str]) = (
    ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"],
    &[
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AWS_REGION",
        "AWS_DEFAULT_REGION",
    ],
);
const AZURE: ([&str; 3], &[&str]) = (
    [
        "AZURE_STORAGE_ENDPOINT",
        "AZURE_ENDPOINT",
        "AZURE_STORAGE_AUTHORITY_HOST",
    ],
    &[
        "AZURE_STORAGE_ACCOUNT_NAME",
        "AZURE_STORAGE_ACCOUNT_KEY",
        "AZURE_STORAGE_SAS_KEY",
    ],
);

/// Refuses values that cannot be part of a request. `get` returns those of the environment.
pub fn check(kind: Kind, get: impl Fn(&str) -> Option<String>) -> io::Result<()> {
    let (urls, words) = match kind {
        Kind::S3 => S3,
        Kind::Azure => AZURE,
        Kind::Google => return Ok(()),
    };
    let problems = urls
        .iter()
        .filter_map(|name| url_problem(name, &get(name)?));
    let words = words
        .iter()
        .filter_map(|name| word_problem(name, &get(name)?));
    let lacking = half_problem(kind, &get);
    match problems.chain(words).chain(lacking).next() {
        Some(problem) => Err(io::Error::new(io::ErrorKind::InvalidInput, problem)),
        None => Ok(()),
    }
}

fn url_problem(name: &str, value: &str) -> Option<String> {
    let how = "write http://HOST:PORT or https://HOST, or unset it";
    let is_plain = !value.contains(|c: char| c.is_whitespace() || c.is_control());
    let url = Url::parse(value).ok().filter(|_| is_plain);
    let is_web = |url: &Url| matches!(url.scheme(), "http" | "https") && url.has_host();
    match url.is_some_and(|url| is_web(&url)) {
        true => None,
        false => Some(format!("{name} is {value:?}, which is no address: {how}")),
    }
}

/// A key's two parts must both be set, or neither.
fn half_problem(kind: Kind, get: &impl Fn(&str) -> Option<String>) -> Option<String> {
    let halves = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"];
    let lacking = halves.iter().find(|name| get(name).is_none())?;
    let set = halves.iter().find(|name| get(name).is_some())?;
    (kind == Kind::S3).then(|| format!("{set} is set and {lacking} is not: set both or none"))
}

/// Describes a problem without showing secrets.
fn word_problem(name: &str, value: &str) -> Option<String> {
    let is_other = |c: char| !c.is_ascii_graphic();
    let what = match value.chars().find(|c| is_other(*c))? {
        '\n' | '\r' => "a line break",
        ' ' | '\t' => "a space",
        _ => "a character that is not of ASCII",
    };
    Some(format!(
        "{name} has {what} in it, which none has: set it without"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(name: &str, value: &str) -> Result<(), String> {
        let get = |asked: &str| (asked == name).then(|| value.to_owned());
        check(Kind::S3, get).map_err(|error| error.to_string())
    }

    #[test]
    fn values_unusable_for_requests_are_refused() {
        for url in [
            "",
            "127.0.0.1:9000",
            "localhost",
            "http://",
            " http://a",
            "http://a:99999",
            "ftp://a",
        ] {
            let refused = checked("AWS_ENDPOINT_URL", url).expect_err(url);
            assert!(refused.contains("AWS_ENDPOINT_URL is"), "{refused}");
        }
        for url in [
            "http://127.0.0.1:9000",
            "https://s3.example.com",
            "http://[::1]:9/",
        ] {
            assert_eq!(checked("AWS_ENDPOINT_URL", url), Ok(()));
        }
        for (value, what) in [
            ("k\n", "line break"),
            ("us east 1", "space"),
            ("k\u{e9}", "ASCII"),
        ] {
            let refused = checked("AWS_ACCESS_KEY_ID", value).expect_err("refused");
            assert!(
                refused.contains(what) && !refused.contains(value),
                "{refused}"
            );
        }
        let alone = checked("AWS_SECRET_ACCESS_KEY", "a/b+c=").expect_err("half");
        assert!(alone.contains("AWS_ACCESS_KEY_ID is not"), "{alone}");
        let both = |_: &str| Some("http://h/a/b+c=".to_owned());
        assert!(check(Kind::S3, both).is_ok());
    }
}
