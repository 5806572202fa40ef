//! A node's certificate, which the node creates, and the certificates of other nodes.

use std::collections::BTreeSet;
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use forebay_cluster::Trusted;
use forebay_engine::{from_hex, to_hex};
use forebay_io::{Disk, dir_of};
use forebay_server::{PeerTls, Pin, PinnedPeers, pin_of};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// The file in a node's cache with its certificate and key, in PEM.
const FILE: &str = "node.pem";

/// A node's own certificate, and the check of other nodes' certificates.
#[derive(Debug)]
pub struct NodeKey {
    pub tls: PeerTls,
    /// The key in the form that the catalog has.
    pub key: String,
    pub trusted: Arc<TrustedNodes>,
}

#[derive(Debug, Default)]
pub struct TrustedNodes {
    pins: Arc<PinnedPeers>,
    /// This node's own key.
    own: Pin,
}

impl Trusted for TrustedNodes {
    fn trust(&self, keys: BTreeSet<String>) {
        let pins = keys.iter().filter_map(|key| from_hex(key)?.try_into().ok());
        self.pins.set(pins.chain([self.own]));
    }
}

impl NodeKey {
    /// Returns the certificate of the node whose cache this is, and creates it if there is none.
    pub fn of(disk: &dyn Disk, cache: &Path, name: &str) -> anyhow::Result<Self> {
        let path = cache.join(FILE);
        let at = || format!("the node's certificate {}", path.display());
        let pem = match disk.read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => make(disk, &path, name),
            pem => pem.map_err(anyhow::Error::from),
        };
        let pem = pem.with_context(at)?;
        let again = || {
            format!(
                "{} cannot be used: remove it, and the node makes another",
                at()
            )
        };
        let certificate = CertificateDer::from_pem_slice(&pem).with_context(again)?;
        let key = PrivateKeyDer::from_pem_slice(&pem).with_context(again)?;
        let own = pin_of(&certificate);
        let pins = PinnedPeers::new([own]);
        let tls = PeerTls::pinned(certificate, key, &pins).with_context(again)?;
        Ok(Self {
            tls,
            key: to_hex(&own),
            trusted: Arc::new(TrustedNodes { pins, own }),
        })
    }
}

fn make(disk: &dyn Disk, path: &Path, name: &str) -> anyhow::Result<Vec<u8>> {
    let made = rcgen::generate_simple_self_signed(vec![name.to_owned()])?;
    let pem = made.cert.pem() + &made.signing_key.serialize_pem();
    let new = path.with_extension("pem.new");
    match disk.remove(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    let mut file = disk.create_secret(&new)?;
    file.write_all(pem.as_bytes())?;
    file.sync()?;
    drop(file);
    disk.rename(&new, path)?;
    disk.sync_dir(dir_of(path))?;
    Ok(pem.into_bytes())
}
