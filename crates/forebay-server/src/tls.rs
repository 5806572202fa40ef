//! TLS from PEM files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_io::Disk;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use thiserror::Error;
use tokio_rustls::TlsAcceptor;

use crate::config::TlsFiles;

/// Why TLS cannot be had.
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

/// Reads certificate and key. TLS 1.2 and 1.3, no client certificates.
pub fn acceptor(disk: &dyn Disk, files: &TlsFiles) -> Result<TlsAcceptor, TlsError> {
    let pem = |path: &Path, what: &'static str, problem: String| {
        let path = path.to_path_buf();
        TlsError::Pem {
            path,
            what,
            problem,
        }
    };
    let certificate = read(disk, &files.certificate)?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&certificate).collect();
    let chain = chain.map_err(|error| pem(&files.certificate, "certificate", error.to_string()))?;
    if chain.is_empty() {
        return Err(pem(
            &files.certificate,
            "certificate",
            "there is none".to_owned(),
        ));
    }
    let key = PrivateKeyDer::from_pem_slice(&read(disk, &files.key)?)
        .map_err(|error| pem(&files.key, "private key", error.to_string()))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key));
    match config {
        Ok(config) => Ok(TlsAcceptor::from(Arc::new(config))),
        Err(source) => {
            let TlsFiles { certificate, key } = files.clone();
            Err(TlsError::Rustls {
                certificate,
                key,
                source,
            })
        }
    }
}

fn read(disk: &dyn Disk, path: &Path) -> Result<Vec<u8>, TlsError> {
    disk.read(path).map_err(|source| TlsError::Io {
        path: path.to_path_buf(),
        source,
    })
}
