//! Connections to object stores: S3, Google Cloud Storage, Azure Blob Storage and web servers.
//!
//! Credentials and endpoints come from the environment, as the providers' own tools take them.
//! Connecting sends nothing yet.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::http::HttpBuilder;
use object_store::multipart::MultipartStore;
use object_store::{BackoffConfig, ClientOptions, Error, ObjectStore, RetryConfig};

use crate::address::{Address, Kind};
use crate::environment;
use crate::refusals::{NO_TLS, said};

/// How long a request is retried, from its first try on, while the store does not answer or answers
/// that it cannot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// For a user who waits at a terminal.
    Short,
    /// For a push: a restart of the store must not end it.
    Long,
    /// For callers that ask again anyway.
    Little,
}

/// An object store with all required operations.
pub trait Backend: ObjectStore + MultipartStore {}

impl<T: ObjectStore + MultipartStore> Backend for T {}

/// Connects to the bucket of an address, for reading only. The prefix is ignored.
pub fn bucket(address: &Address, patience: Patience) -> io::Result<Arc<dyn ObjectStore>> {
    Ok(connect(address, patience)?)
}

/// Connects to a web server, for reading only. `url` has no path, and a query that each request
/// gets.
pub fn website(url: &str, patience: Patience) -> io::Result<Arc<dyn ObjectStore>> {
    install_cryptography();
    let client = patience.client().with_allow_http(true);
    let builder = HttpBuilder::new().with_url(url).with_client_options(client);
    let store = builder.with_retry(patience.retry()).build().map_err(said)?;
    Ok(Arc::new(store))
}

pub(crate) fn connect(address: &Address, patience: Patience) -> io::Result<Arc<dyn Backend>> {
    install_cryptography();
    environment::check(address.kind, |name| std::env::var(name).ok())?;
    let (retry, client) = (patience.retry(), patience.client());
    let bucket = &address.bucket;
    if address.kind == Kind::S3 && wants_clear("AWS_ALLOW_HTTP") {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, NO_TLS));
    }
    let backend: Result<Arc<dyn Backend>, Error> = match address.kind {
        Kind::S3 => AmazonS3Builder::from_env()
            .with_bucket_name(bucket)
            .with_retry(retry)
            .with_client_options(with_environment(client, "AWS_ALLOW_HTTP"))
            .build()
            .map(|store| Arc::new(store) as _),
        Kind::Google => GoogleCloudStorageBuilder::from_env()
            .with_bucket_name(bucket)
            .with_retry(retry)
            .with_client_options(client)
            .build()
            .map(|store| Arc::new(store) as _),
        Kind::Azure => MicrosoftAzureBuilder::from_env()
            .with_container_name(bucket)
            .with_retry(retry)
            .with_client_options(with_environment(client, "AZURE_ALLOW_HTTP"))
            .build()
            .map(|store| Arc::new(store) as _),
    };
    backend.map_err(said)
}

/// Another part of the process may have done so.
fn install_cryptography() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}

impl Patience {
    fn retry(self) -> RetryConfig {
        // The client draws a wait from up to `base` times the previous one: with 2 waits hardly
        // grow, with 3 they do.
        let (max_retries, seconds, base) = match self {
            Patience::Short => (8, 15, 2.0),
            // The time is the limit.
            Patience::Long => (10_000, 150, 3.0),
            Patience::Little => (2, 5, 2.0),
        };
        RetryConfig {
            backoff: BackoffConfig {
                init_backoff: Duration::from_millis(100),
                max_backoff: Duration::from_secs(4),
                base,
            },
            max_retries,
            retry_timeout: Duration::from_secs(seconds),
        }
    }

    /// Returns how long an outage may last.
    pub(crate) fn time(self) -> Duration {
        self.retry().retry_timeout
    }

    fn client(self) -> ClientOptions {
        let seconds = match self {
            Patience::Long => 60,
            Patience::Short | Patience::Little => 30,
        };
        ClientOptions::new()
            .with_connect_timeout(Duration::from_secs(5))
            .with_timeout(Duration::from_secs(seconds))
    }
}

/// Returns whether the endpoint of S3 has no TLS, and the user has not allowed that.
fn wants_clear(variable: &str) -> bool {
    let endpoints = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"];
    let given = endpoints.iter().filter_map(|name| std::env::var(name).ok());
    given.into_iter().any(|url| url.starts_with("http://")) && !is_allowed(variable)
}

fn is_allowed(variable: &str) -> bool {
    std::env::var(variable).is_ok_and(|value| matches!(&*value, "1" | "true" | "TRUE"))
}

/// Given options replace those of the environment; this one must come from it.
fn with_environment(client: ClientOptions, variable: &str) -> ClientOptions {
    client.with_allow_http(is_allowed(variable))
}
