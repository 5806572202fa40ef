//! The server's secrets in files that may change while it runs: users, the token, the certificates.
//!
//! They are read together: if one is invalid, none changes.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::{ArcSwap, Guard};
use forebay_io::Disk;
use thiserror::Error;
use tokio_rustls::TlsAcceptor;

use crate::config::ServerConfig;
use crate::tls::{self, LoadedTls, TlsError};
use crate::users::{Token, Users, UsersError};

/// The contents of the files.
#[derive(Default)]
pub struct Secrets {
    /// `None`: every client is [`crate::shared::Shared::anyone`].
    pub users: Option<Users>,
    pub token: Option<Token>,
    tls: Option<LoadedTls>,
}

/// The current secrets.
#[derive(Debug)]
pub struct SecretFiles {
    current: ArcSwap<Secrets>,
    /// Increases when the files were read again, and when connections have to check for other
    /// changes.
    generation: AtomicU64,
}

/// The reason why one of the files is invalid.
#[derive(Debug, Error)]
pub enum SecretsError {
    #[error("cannot read the token file {}: {source}", path.display())]
    Token {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("the token in {} is shorter than 16 characters: `openssl rand -hex 32` makes one", path.display())]
    ShortToken { path: PathBuf },
    #[error(
        "the certificate in {} has ended: put the new one there, and send SIGHUP again",
        path.display()
    )]
    Ended { path: PathBuf },
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error(transparent)]
    Users(#[from] UsersError),
}

impl Secrets {
    fn read(config: &ServerConfig, disk: &dyn Disk) -> Result<Self, SecretsError> {
        let tls = config.tls.as_ref();
        let tls = tls.map(|files| tls::load(disk, files)).transpose()?;
        let users = config.users.as_ref();
        let users = users.map(|path| Users::read(disk, path)).transpose()?;
        let token = config.http_token.as_ref();
        let token = token.map(|path| read_token(disk, path)).transpose()?;
        Ok(Self { users, token, tls })
    }

    /// Returns whether the certificate for clients has expired.
    pub fn ended(&self, now_unix_ms: u64) -> bool {
        let ends = self.tls.as_ref().and_then(|tls| tls.ends_unix_s);
        ends.is_some_and(|ends| ends <= (now_unix_ms / 1000) as i64)
    }
}

impl SecretFiles {
    pub fn read(config: &ServerConfig, disk: &dyn Disk) -> Result<Self, SecretsError> {
        Ok(Self {
            current: ArcSwap::from_pointee(Secrets::read(config, disk)?),
            generation: AtomicU64::new(0),
        })
    }

    /// Reads all files again. An error leaves everything unchanged. An expired certificate is also
    /// an error: clients do not trust it, and the previous one may still be valid.
    pub fn reload(
        &self,
        config: &ServerConfig,
        disk: &dyn Disk,
        now_unix_ms: u64,
    ) -> Result<(), SecretsError> {
        let secrets = Secrets::read(config, disk)?;
        if let Some(files) = config.tls.as_ref().filter(|_| secrets.ended(now_unix_ms)) {
            let path = files.certificate.clone();
            return Err(SecretsError::Ended { path });
        }
        self.current.store(Arc::new(secrets));
        self.generation.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Makes connections check for changes.
    pub fn touch(&self) {
        self.generation.fetch_add(1, Ordering::Release);
    }

    pub fn load(&self) -> Guard<Arc<Secrets>> {
        self.current.load()
    }

    #[inline]
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Returns the TLS acceptor for new connections.
    pub fn acceptor(&self) -> Option<TlsAcceptor> {
        self.load().tls.as_ref().map(|tls| tls.acceptor.clone())
    }

    /// Returns when the certificate for clients expires, in seconds since 1970.
    pub fn certificate_ends_unix_s(&self) -> Option<i64> {
        self.load().tls.as_ref()?.ends_unix_s
    }
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Secrets")
            .field("users", &self.users)
            .finish_non_exhaustive()
    }
}

fn read_token(disk: &dyn Disk, path: &Path) -> Result<Token, SecretsError> {
    let bytes = disk.read(path).map_err(|source| SecretsError::Token {
        path: path.to_path_buf(),
        source,
    })?;
    let token = String::from_utf8_lossy(&bytes).trim().to_owned();
    if token.len() < 16 {
        return Err(SecretsError::ShortToken {
            path: path.to_path_buf(),
        });
    }
    Ok(Token::new(token))
}
