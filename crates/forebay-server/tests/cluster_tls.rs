//! Nodes that know each other by pinned certificates.

use std::sync::Arc;
use std::time::Duration;

use crate::common::cluster::{GATEWAY, InOneProcess, LISTEN, PEER, at, host, key_in, value};
use crate::common::{self, Reply};
use bytes::Bytes;
use forebay_cluster::{HostPort, Peers};
use forebay_io::{Clock as _, SystemClock};
use forebay_server::{ClusterConfig, PeerClient, PeerTls, Pin, PinnedPeers, ServerConfig, pin_of};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

type OwnCertificate = (CertificateDer<'static>, PrivateKeyDer<'static>);

fn made() -> OwnCertificate {
    let made = rcgen::generate_simple_self_signed(vec!["a node".to_owned()]).expect("made");
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
    (made.cert.der().clone(), key)
}

fn tls((certificate, key): &OwnCertificate, peers: &Arc<PinnedPeers>) -> PeerTls {
    PeerTls::pinned(certificate.clone(), key.clone_key(), peers).expect("TLS")
}

fn pins(own: &[&OwnCertificate]) -> Vec<Pin> {
    own.iter()
        .map(|(certificate, _)| pin_of(certificate))
        .collect()
}

/// Each node accepts the nodes whose certificates are pinned on it.
fn cluster(of: &[OwnCertificate; 3], peers: &Arc<PinnedPeers>) -> InOneProcess {
    InOneProcess::changed(|node, config| {
        let own = &of[node as usize - 1];
        if let Some(cluster) = &mut config.cluster {
            cluster.peer_tls = Some(tls(own, peers));
        }
    })
}

#[test]
fn nodes_reach_each_other_by_pinned_certificates_alone() {
    let nodes = [made(), made(), made()];
    let peers = PinnedPeers::new(pins(&[&nodes[0], &nodes[1]]));
    let cluster = cluster(&nodes, &peers);
    let mut client = cluster.client(1, GATEWAY);
    let ask = |client: &mut common::Client<_>, class: usize| {
        let wire = key_in("few", class);
        let n: u32 = wire[wire.len() - 4..].parse().expect("a number");
        match client.ask(&format!("GET {wire}")) {
            Reply::Bulk(bytes) => assert_eq!(bytes, value(n, 0).into_bytes()),
            Reply::Error(words) => return Err(words),
            other => panic!("{other:?}"),
        }
        Ok(())
    };
    assert_eq!(ask(&mut client, 1), Ok(()));
    let reported = ask(&mut client, 2).expect_err("not pinned");
    assert!(reported.starts_with("CLUSTERDOWN"), "{reported}");
    peers.set(pins(&[&nodes[0], &nodes[1], &nodes[2]]));
    assert_eq!(ask(&mut client, 2), Ok(()));
}

#[test]
fn peers_with_an_unpinned_certificate_or_none_are_refused() {
    let nodes = [made(), made(), made()];
    let peers = PinnedPeers::new(pins(&[&nodes[0], &nodes[1], &nodes[2]]));
    let cluster = cluster(&nodes, &peers);
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let runtime = runtime.expect("a runtime");
    let ask = |tls: Option<&PeerTls>| {
        let net = Arc::new(cluster.net.clone());
        let client = PeerClient::start(net, Arc::new(SystemClock), tls).expect("started");
        let peer = HostPort::new(&host(2), PEER);
        let asked = client.ask(&peer, Bytes::from("hello"), Duration::from_secs(5));
        runtime.block_on(asked).map(|answer| answer.to_vec())
    };
    let stranger = made();
    assert_eq!(
        ask(Some(&tls(&nodes[0], &peers))).expect("an answer"),
        b"to 2: hello"
    );
    assert!(ask(Some(&tls(&stranger, &peers))).is_err());
    assert!(ask(None).is_err());
    // A pinned node does not talk to an unpinned one either.
    let unpinned = PinnedPeers::new(pins(&[&stranger]));
    assert!(ask(Some(&tls(&nodes[0], &unpinned))).is_err());
}

#[test]
fn connections_of_a_node_that_was_removed_are_ended() {
    let nodes = [made(), made(), made()];
    let peers = PinnedPeers::new(pins(&[&nodes[0], &nodes[1], &nodes[2]]));
    let cluster = cluster(&nodes, &peers);
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let runtime = runtime.expect("a runtime");
    let client = |own: &OwnCertificate| {
        let net = Arc::new(cluster.net.clone());
        let tls = tls(own, &peers);
        PeerClient::start(net, Arc::new(SystemClock), Some(&tls)).expect("started")
    };
    let ask = |client: &PeerClient| {
        let peer = HostPort::new(&host(2), PEER);
        runtime.block_on(client.ask(&peer, Bytes::from("hello"), Duration::from_secs(5)))
    };
    let (member, removed) = (client(&nodes[0]), client(&nodes[2]));
    assert!(ask(&member).is_ok() && ask(&removed).is_ok());
    peers.set(pins(&[&nodes[0], &nodes[1]]));
    // Within a tenth of a second by the server's clock.
    let until = SystemClock.monotonic() + Duration::from_secs(60);
    while ask(&removed).is_ok() {
        assert!(
            SystemClock.monotonic() < until,
            "the connection is still served"
        );
    }
    assert!(ask(&member).is_ok());
}

#[test]
fn a_reachable_peer_port_needs_certificates() {
    let cluster = InOneProcess::new();
    let member = Arc::clone(&cluster.members[0]);
    let mut config = ServerConfig {
        resp: at(1, LISTEN),
        cluster: Some(ClusterConfig {
            member,
            gateway: None,
            class_ports: Vec::new(),
            peer: "192.0.2.1:7400".parse().expect("an address"),
            peer_tls: None,
            forward: Default::default(),
            reach: Arc::default(),
            max_staleness: None,
        }),
        ..ServerConfig::default()
    };
    let refused = config.check_exposure().expect_err("refused");
    assert!(
        refused.contains("other nodes") && refused.contains("certificates"),
        "{refused}"
    );
    if let Some(cluster) = &mut config.cluster {
        cluster.peer_tls = Some(tls(&made(), &PinnedPeers::new([])));
    }
    assert_eq!(config.check_exposure(), Ok(()));
}
