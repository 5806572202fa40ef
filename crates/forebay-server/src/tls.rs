//! Loads TLS configurations from PEM files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_io::Disk;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{RootCertStore, ServerConfig};
use thiserror::Error;
use tokio_rustls::TlsAcceptor;

use crate::certificate_end::not_after_unix_s;
use crate::config::TlsFiles;

/// A loaded TLS configuration.
#[derive(Clone)]
pub struct LoadedTls {
    pub acceptor: TlsAcceptor,
    /// When the first of the chain's certificates expires, in seconds since 1970; `None`: unknown.
    pub ends_unix_s: Option<i64>,
}

/// The reason why TLS cannot be loaded.
#[derive(Debug, Error)]
pub enum TlsError {
    #[error("cannot read {}: {source}", path.display())]
    Io {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{} has no {what} in PEM form: {problem}", path.display())]
    Pem {
        path: PathBuf,
        what: &'static str,
        problem: String,
    },
    #[error("the certificate {} and the key {} do not serve: {source}", certificate.display(), key.display())]
    Rustls {
        certificate: PathBuf,
        key: PathBuf,
        source: rustls::Error,
    },
}

/// Loads certificate and key, and the authorities of clients if they have to show certificates. TLS
/// 1.2 and 1.3.
pub fn load(disk: &dyn Disk, files: &TlsFiles) -> Result<LoadedTls, TlsError> {
    let chain = certificates(disk, &files.certificate)?;
    let ends = chain.iter().filter_map(|one| not_after_unix_s(one));
    let ends_unix_s = ends.min();
    let key = PrivateKeyDer::from_pem_slice(&read(disk, &files.key)?)
        .map_err(|error| pem(&files.key, "private key", error.to_string()))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let clients = match &files.client_ca {
        Some(path) => clients_of(disk, path, Arc::clone(&provider))?,
        None => WebPkiClientVerifier::no_client_auth(),
    };
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| {
            let builder = builder.with_client_cert_verifier(clients);
            builder.with_single_cert(chain, key)
        });
    match config {
        Ok(config) => Ok(LoadedTls {
            acceptor: TlsAcceptor::from(Arc::new(config)),
            ends_unix_s,
        }),
        Err(source) => {
            let TlsFiles {
                certificate, key, ..
            } = files.clone();
            Err(TlsError::Rustls {
                certificate,
                key,
                source,
            })
        }
    }
}

/// Returns a verifier that accepts clients with a certificate signed by an authority in the file.
fn clients_of(
    disk: &dyn Disk,
    path: &Path,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let what = "certificate of an authority";
    let mut roots = RootCertStore::empty();
    for certificate in certificates(disk, path)? {
        let added = roots.add(certificate);
        added.map_err(|error| pem(path, what, error.to_string()))?;
    }
    let built = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
    built.map_err(|error| pem(path, what, error.to_string()))
}

fn certificates(disk: &dyn Disk, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let bytes = read(disk, path)?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let chain = chain.map_err(|error| pem(path, "certificate", error.to_string()))?;
    if chain.is_empty() {
        return Err(pem(path, "certificate", "the file has none".to_owned()));
    }
    Ok(chain)
}

fn pem(path: &Path, what: &'static str, problem: String) -> TlsError {
    let path = path.to_path_buf();
    TlsError::Pem {
        path,
        what,
        problem,
    }
}

fn read(disk: &dyn Disk, path: &Path) -> Result<Vec<u8>, TlsError> {
    disk.read(path).map_err(|source| TlsError::Io {
        path: path.to_path_buf(),
        source,
    })
}
