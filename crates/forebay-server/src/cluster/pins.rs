//! TLS between nodes, with pinned certificates.
//!
//! Each node creates a certificate for itself, and the catalog lists the nodes' certificates. A
//! connection is accepted if the other side shows one of them. Names, authorities and dates do not
//! matter. Two certificates of a node may be pinned while it changes from one to the other.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use ring::digest::{SHA256, digest};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

/// The SHA-256 of a certificate.
pub type Pin = [u8; 32];

/// The certificates of nodes. They may change while connections are made.
#[derive(Default)]
pub struct PinnedPeers {
    pins: ArcSwap<BTreeSet<Pin>>,
}

/// Returns the pin of a certificate, which the catalog stores in hex.
pub fn pin_of(certificate: &CertificateDer<'_>) -> Pin {
    let mut pin = Pin::default();
    pin.copy_from_slice(digest(&SHA256, certificate).as_ref());
    pin
}

impl PinnedPeers {
    pub fn new(pins: impl IntoIterator<Item = Pin>) -> Arc<Self> {
        let pinned = Self::default();
        pinned.set(pins);
        Arc::new(pinned)
    }

    /// Replaces the accepted certificates. A server ends connections with others within a tenth of
    /// a second.
    pub fn set(&self, pins: impl IntoIterator<Item = Pin>) {
        self.pins.store(Arc::new(pins.into_iter().collect()));
    }

    pub fn contains(&self, pin: &Pin) -> bool {
        self.pins.load().contains(pin)
    }

    fn check(&self, certificate: &CertificateDer<'_>) -> Result<(), Error> {
        match self.contains(&pin_of(certificate)) {
            true => Ok(()),
            false => Err(CertificateError::ApplicationVerificationFailure.into()),
        }
    }
}

impl fmt::Debug for PinnedPeers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PinnedPeers({})", self.pins.load().len())
    }
}

/// The configuration of TLS between nodes, in which both sides show certificates.
#[derive(Debug, Clone)]
pub struct PeerTls {
    pub server: Arc<rustls::ServerConfig>,
    pub client: Arc<rustls::ClientConfig>,
    /// The certificates that both of them accept.
    pub peers: Arc<PinnedPeers>,
}

impl PeerTls {
    /// Creates a TLS 1.3 configuration with this node's certificate, for connections to nodes with
    /// a pinned one.
    pub fn pinned(
        certificate: CertificateDer<'static>,
        key: PrivateKeyDer<'static>,
        peers: &Arc<PinnedPeers>,
    ) -> Result<Self, Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = Arc::new(PinVerifier {
            peers: Arc::clone(peers),
            provider: Arc::clone(&provider),
        });
        let peers = Arc::clone(peers);
        let versions = &[&rustls::version::TLS13];
        let mut server = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(versions)?
            .with_client_cert_verifier(Arc::clone(&verifier) as Arc<dyn ClientCertVerifier>)
            .with_single_cert(vec![certificate.clone()], key.clone_key())?;
        // A resumed session shows no certificate: it would accept a node that was pinned only
        // earlier.
        server.send_tls13_tickets = 0;
        server.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
        let client = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)?
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_client_auth_cert(vec![certificate], key)?;
        Ok(Self {
            server: Arc::new(server),
            client: Arc::new(client),
            peers,
        })
    }
}

#[derive(Debug)]
struct PinVerifier {
    peers: Arc<PinnedPeers>,
    provider: Arc<CryptoProvider>,
}

impl PinVerifier {
    /// Verifies that the other side has the certificate's key.
    fn signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
        is_tls13: bool,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        match is_tls13 {
            true => verify_tls13_signature(message, certificate, signed, algorithms),
            false => verify_tls12_signature(message, certificate, signed, algorithms),
        }
    }

    fn schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

impl ServerCertVerifier for PinVerifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.peers.check(certificate)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signature(message, certificate, signed, false)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signature(message, certificate, signed, true)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes()
    }
}

impl ClientCertVerifier for PinVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.peers.check(certificate)?;
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signature(message, certificate, signed, false)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signature(message, certificate, signed, true)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes()
    }
}
