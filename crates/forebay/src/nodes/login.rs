//! A command's login to the nodes of a cluster: user, password, TLS.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use forebay_cluster::HostPort;
use forebay_io::Disk;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

/// The options for nodes that require users or TLS.
#[derive(Debug, Clone, Default, Args)]
pub struct LoginArgs {
    /// If the nodes of a cluster have a users file: a file with one line, user:password
    #[arg(
        long,
        global = true,
        env = "FOREBAY_LOGIN",
        value_parser = path_parser(),
        value_name = "FILE",
        help_heading = "Nodes of a cluster"
    )]
    pub login: Option<PathBuf>,

    /// If their client ports use TLS: the certificates in PEM of the authorities that signed theirs
    #[arg(
        long,
        global = true,
        env = "FOREBAY_TLS_CA",
        value_parser = path_parser(),
        value_name = "FILE",
        help_heading = "Nodes of a cluster"
    )]
    pub tls_ca: Option<PathBuf>,

    /// If they require a client certificate: its chain in PEM
    #[arg(
        long,
        global = true,
        env = "FOREBAY_TLS_CERT",
        value_parser = path_parser(),
        requires_all = ["tls_key", "tls_ca"],
        value_name = "FILE",
        help_heading = "Nodes of a cluster"
    )]
    pub tls_cert: Option<PathBuf>,

    /// Its private key in PEM
    #[arg(
        long,
        global = true,
        env = "FOREBAY_TLS_KEY",
        value_parser = path_parser(),
        requires = "tls_cert",
        value_name = "FILE",
        help_heading = "Nodes of a cluster"
    )]
    pub tls_key: Option<PathBuf>,
}

/// The content of those files.
#[derive(Clone, Default)]
pub struct NodeLogin {
    pub user: Option<(String, String)>,
    pub tls: Option<Arc<ClientConfig>>,
}

impl std::fmt::Debug for NodeLogin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let user = self.user.as_ref().map(|(user, _)| user);
        write!(f, "NodeLogin({user:?}, tls: {})", self.tls.is_some())
    }
}

impl NodeLogin {
    /// Checks that no password is sent unencrypted: nodes that other machines can reach must use
    /// TLS, whatever answers at their addresses.
    pub fn check_for(&self, nodes: &[HostPort]) -> anyhow::Result<()> {
        let is_here = |node: &&HostPort| {
            let address = node.host.trim_matches(['[', ']']).parse::<IpAddr>();
            node.host == "localhost" || address.is_ok_and(|address| address.is_loopback())
        };
        let far = nodes.iter().find(|node| !is_here(node));
        match far.filter(|_| self.tls.is_none()) {
            None => Ok(()),
            Some(node) => wrong!(
                "node {node} is not on this machine, so its port speaks TLS: --tls-ca FILE says who signed the nodes' \
                 certificates"
            ),
        }
    }
}

/// Returns the parser of a path option. A variable with an empty value counts as not set.
pub fn path_parser() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().map(PathBuf::from)
}

/// Returns the path, if it is not empty.
pub fn given(path: &Option<PathBuf>) -> Option<&Path> {
    path.as_deref().filter(|path| !path.as_os_str().is_empty())
}

impl LoginArgs {
    pub fn read(&self, disk: &dyn Disk) -> anyhow::Result<NodeLogin> {
        let user = given(&self.login).map(|path| login(disk, path));
        let tls = given(&self.tls_ca).map(|path| self.tls(disk, path));
        Ok(NodeLogin {
            user: user.transpose()?,
            tls: tls.transpose()?,
        })
    }

    fn tls(&self, disk: &dyn Disk, ca: &Path) -> anyhow::Result<Arc<ClientConfig>> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(disk, "--tls-ca", ca)? {
            let added = roots.add(certificate);
            added.with_context(|| format!("--tls-ca {}: it is no authority's", ca.display()))?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions()?;
        let builder = builder.with_root_certificates(roots);
        let config = match (given(&self.tls_cert), given(&self.tls_key)) {
            (Some(cert), Some(key)) => {
                let chain = certificates(disk, "--tls-cert", cert)?;
                let key = read(disk, "--tls-key", key)?;
                let key = PrivateKeyDer::from_pem_slice(&key)
                    .context("--tls-key: it has no private key in PEM form")?;
                let config = builder.with_client_auth_cert(chain, key);
                config.context("--tls-cert and --tls-key do not go together")?
            }
            _ => builder.with_no_client_auth(),
        };
        Ok(Arc::new(config))
    }
}

fn read(disk: &dyn Disk, option: &str, path: &Path) -> anyhow::Result<Vec<u8>> {
    let read = disk.read(path);
    read.with_context(|| format!("{option}: cannot read {}", path.display()))
}

fn certificates(
    disk: &dyn Disk,
    option: &str,
    path: &Path,
) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let bytes = read(disk, option, path)?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    match chain {
        Ok(chain) if !chain.is_empty() => Ok(chain),
        _ => wrong!(
            "{option}: {} has no certificate in PEM form",
            path.display()
        ),
    }
}

fn login(disk: &dyn Disk, path: &Path) -> anyhow::Result<(String, String)> {
    let bytes = read(disk, "--login", path)?;
    let text = String::from_utf8(bytes).ok();
    let line = text.as_deref().map(str::trim_end);
    let both = line.and_then(|line| line.split_once(':'));
    match both {
        Some((user, password)) if !user.is_empty() && !password.contains('\n') => {
            Ok((user.to_owned(), password.to_owned()))
        }
        _ => wrong!("--login: {} is not one line, user:password", path.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_password_is_sent_unencrypted_to_other_machines() {
        let at = |host: &str| HostPort::new(host, 6379);
        let clear = NodeLogin::default();
        for here in ["127.0.0.1", "127.3.3.3", "localhost", "::1", "[::1]"] {
            assert!(clear.check_for(&[at(here)]).is_ok(), "{here}");
        }
        for far in ["10.77.0.1", "db.example", "::2"] {
            let refused = clear.check_for(&[at("127.0.0.1"), at(far)]).unwrap_err();
            assert!(refused.to_string().contains("--tls-ca"), "{refused}");
        }
    }
}
