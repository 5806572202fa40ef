//! Describes the refusals of an object store, or of the way to it, with advice.
//!
//! The client library's errors repeat the request, how often it was tried and for how long, at each
//! of their levels. The useful part is at the bottom: a code in the store's answer, or why there
//! was none. It is reported once.

use std::error::Error as _;
use std::io::{self, ErrorKind};

use object_store::Error;

/// Codes of S3, and Azure's if they differ, that retrying does not change; their meaning; what to
/// do.
const CODES: [(&[&str], &str, &str); 10] = [
    (
        &["NoSuchBucket", "ContainerNotFound"],
        "there is no bucket of that name",
        "look for a typo in the URL, or make the bucket",
    ),
    (
        &["InvalidBucketName"],
        "no bucket can have that name",
        "look for a typo in the URL",
    ),
    (
        &["InvalidAccessKeyId"],
        "the store does not know the key id",
        "look at AWS_ACCESS_KEY_ID, and whether AWS_ENDPOINT_URL is the right server",
    ),
    (
        &["SignatureDoesNotMatch", "AuthenticationFailed"],
        "the secret key is not the one of the key id",
        "look at AWS_SECRET_ACCESS_KEY",
    ),
    (
        &["ExpiredToken", "InvalidToken", "TokenRefreshRequired"],
        "the credentials of this session are no longer valid",
        "get new ones",
    ),
    (
        &["RequestTimeTooSkewed"],
        "the clock of this machine differs from the store's",
        "set it right",
    ),
    (
        &[
            "PermanentRedirect",
            "AuthorizationHeaderMalformed",
            "IllegalLocationConstraintException",
        ],
        "the bucket is in another region",
        "set AWS_REGION to the bucket's",
    ),
    (
        &[
            "AccessDenied",
            "AllAccessDisabled",
            "AccountProblem",
            "AuthorizationPermissionMismatch",
        ],
        "these credentials may not do that",
        "docs/how-to/use-object-storage.md has the permissions that are needed; without the one to list, what is \
         absent is refused, too",
    ),
    (
        &["NotImplemented"],
        "the store cannot do what is asked",
        "docs/how-to/use-object-storage.md says what it has to do",
    ),
    (
        &["QuotaExceeded", "XMinioStorageFull"],
        "the store has no room",
        "make some",
    ),
];

/// The TLS library's text about a server whose first bytes are not TLS.
const NOT_TLS: &str = "InvalidContentType";

/// A refusal in its reported form.
struct Refusal {
    kind: ErrorKind,
    words: String,
}

/// Describes an object store's error for people. Its kind is `Other` only if retrying may help.
pub fn said(error: Error) -> io::Error {
    let refusal = refusal(&error);
    io::Error::new(refusal.kind, refusal.words)
}

/// Returns whether there is no bucket: nothing in it can then be called absent.
pub fn lacks_bucket(error: &Error) -> bool {
    let text = error.to_string();
    CODES[0].0.iter().any(|code| says(&text, code))
}

fn refusal(error: &Error) -> Refusal {
    let text = error.to_string();
    for (codes, meaning, advice) in CODES {
        if let Some(code) = codes.iter().find(|code| says(&text, code)) {
            let region = between(&text, "<Region>", "</Region>");
            let region = region.map_or(String::new(), |region| format!(", {region}"));
            return permanent(format!("{meaning}{region} ({code}): {advice}"));
        }
    }
    if text.contains("Received redirect without LOCATION") || text.contains("status code: 301") {
        return permanent(format!("{} ({}): {}", CODES[6].1, "a redirect", CODES[6].2));
    }
    if text.contains("scheme is not allowed") {
        return permanent(NO_TLS.to_owned());
    }
    if bottom(error).contains(NOT_TLS) {
        return permanent(
            "the endpoint answers without TLS: look at the port of AWS_ENDPOINT_URL, or give it as http:// and set \
             AWS_ALLOW_HTTP=true"
                .to_owned(),
        );
    }
    if let Some(why) = no_credentials(&text) {
        return permanent(why);
    }
    let kind = match error {
        Error::NotFound { .. } => ErrorKind::NotFound,
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => {
            ErrorKind::PermissionDenied
        }
        _ => ErrorKind::Other,
    };
    Refusal {
        kind,
        words: answer(&text).unwrap_or_else(|| bottom(error)),
    }
}

/// The message about an endpoint without TLS that was not allowed.
pub const NO_TLS: &str = "the endpoint has no TLS (http://), which sends data and signatures in the clear: set \
                          AWS_ALLOW_HTTP=true if that is wanted, else give it as https://";

fn permanent(words: String) -> Refusal {
    Refusal {
        kind: ErrorKind::PermissionDenied,
        words,
    }
}

fn says(text: &str, code: &str) -> bool {
    text.contains(&format!("<Code>{code}</Code>")) || text.contains(&format!("\"code\":\"{code}\""))
}

fn no_credentials(text: &str) -> Option<String> {
    let asked = [
        "169.254.169.254",
        "169.254.170.2",
        "metadata.google.internal",
    ];
    let variables = match text {
        _ if text.contains("GCS") => "GOOGLE_APPLICATION_CREDENTIALS to the file of an account",
        _ if text.contains("Azure") => "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
        _ => "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    };
    asked.iter().any(|host| text.contains(host)).then(|| {
        format!(
            "there are no credentials: set {variables} (docs/how-to/use-object-storage.md has the others); this machine has no \
             role of its own either"
        )
    })
}

/// Returns the status, code and message of an answer.
fn answer(text: &str) -> Option<String> {
    let (_, rest) = text.split_once("status code: ")?;
    let (status, body) = rest.split_once(": ").unwrap_or((rest, ""));
    let status = status.trim();
    let code = between(body, "<Code>", "</Code>").map(|code| format!(" {code}"));
    let message = between(body, "<Message>", "</Message>").map(|text| format!(": {text}"));
    Some(format!(
        "the store answered {status}{}{}",
        code.unwrap_or_default(),
        message.unwrap_or_default()
    ))
}

/// Returns why there was no answer: the text of the last cause, and the server that was asked.
fn bottom(error: &Error) -> String {
    let mut last = error.to_string();
    let mut source = error.source();
    let mut is_connect = false;
    while let Some(cause) = source {
        let words = cause.to_string();
        is_connect |= words.contains("(Connect)");
        if !words.is_empty() {
            last = words;
        }
        source = cause.source();
    }
    let text = error.to_string();
    let url =
        between(&text, "://", " ").map(|rest| rest.split('/').next().unwrap_or(rest).to_owned());
    match url {
        Some(host) if is_connect || last.contains("timed out") => format!(
            "no answer from {host}: {last}; look whether it runs, and at AWS_ENDPOINT_URL and AWS_REGION"
        ),
        _ => last,
    }
}

fn between<'a>(text: &'a str, begin: &str, end: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(begin)?;
    Some(rest.split_once(end)?.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(status: &str, body: &str) -> io::Error {
        let text = format!(
            "Error performing GET http://h/b/k in 3ms, after 2 retries, max_retries: 2, retry_timeout: 5s  - Server \
             returned non-2xx status code: {status}: {body}"
        );
        said(Error::Generic {
            store: "S3",
            source: text.into(),
        })
    }

    #[test]
    fn permanent_errors_are_distinguished_from_transient_ones() {
        for (code, word) in [
            ("NoSuchBucket", "no bucket"),
            ("InvalidAccessKeyId", "AWS_ACCESS_KEY_ID"),
            ("SignatureDoesNotMatch", "AWS_SECRET_ACCESS_KEY"),
            ("PermanentRedirect", "AWS_REGION"),
            ("AccessDenied", "permissions"),
        ] {
            let error = refused(
                "403 Forbidden",
                &format!("<Error><Code>{code}</Code></Error>"),
            );
            assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{code}");
            let words = error.to_string();
            assert!(
                words.contains(word) && words.matches(code).count() == 1,
                "{words}"
            );
        }
        let body =
            "<Error><Code>AuthorizationHeaderMalformed</Code><Region>eu-west-1</Region></Error>";
        let words = refused("400 Bad Request", body).to_string();
        assert!(words.contains("another region, eu-west-1"), "{words}");
        let body = "<Error><Code>SlowDown</Code><Message>Reduce your rate</Message></Error>";
        let busy = refused("503 Service Unavailable", body);
        assert_eq!(busy.kind(), ErrorKind::Other);
        let words = busy.to_string();
        assert_eq!(
            words,
            "the store answered 503 Service Unavailable SlowDown: Reduce your rate"
        );
    }
}
