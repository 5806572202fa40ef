//! Users, tokens and certificates that change while the server runs; certificates of clients; wrong
//! passwords.

use std::io::{ErrorKind, Read};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::common::{self, Fixture, encode, http, tls_client};
use forebay_io::sim::HandClock;
use forebay_server::TlsFiles;
use rcgen::{BasicConstraints, Certificate, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// SHA-256 of "password", and of "other".
const HASH: &str = "5e884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8";
const OTHER: &str = "d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa";

/// Writes the users file: names, hashes, tables.
fn users(fixture: &Fixture, users: &[(&str, &str, &str)]) -> PathBuf {
    let user = |(name, hash, table): &(&str, &str, &str)| {
        format!(
            r#"{{"name":"{name}","password_sha256":"{hash}","tables":["{table}"],"verbs":["read"]}}"#
        )
    };
    let users: Vec<_> = users.iter().map(user).collect();
    fixture.file(
        "users.json",
        &format!(r#"{{"users":[{}]}}"#, users.join(",")),
    )
}

fn token_file(fixture: &Fixture, digit: &str) -> PathBuf {
    fixture.file("token", &digit.repeat(32))
}

#[test]
fn users_and_tokens_are_reloaded_and_an_invalid_users_file_changes_nothing() {
    let mut fixture = Fixture::store();
    fixture.push_usual();
    let path = users(
        &fixture,
        &[("a", HASH, "words"), ("b", HASH, "*"), ("c", HASH, "*")],
    );
    let token = token_file(&fixture, "1");
    fixture.start(|config| {
        (config.users, config.http_token) = (Some(path), Some(token));
    });
    let log_in = |name: &str| {
        let mut client = fixture.client();
        assert_eq!(client.text(&format!("AUTH {name} password")), "OK");
        client
    };
    let (mut a, mut b, mut c) = (log_in("a"), log_in("b"), log_in("c"));
    assert!(a.text("GET log:k0001").starts_with("-NOPERM"));

    // a may read another table, b has another password, c is gone.
    users(&fixture, &[("a", HASH, "log"), ("b", OTHER, "*")]);
    token_file(&fixture, "2");
    assert_eq!(a.text("GET words:k0001"), "value 1", "not read yet");
    fixture.server().reload().expect("read");
    assert_eq!(a.text("GET log:k0001"), "value 1");
    assert!(a.text("GET words:k0001").starts_with("-NOPERM"));
    for client in [&mut b, &mut c] {
        assert!(client.text("GET words:k0001").starts_with("-NOAUTH"));
        assert!(client.try_read().is_err(), "ended");
    }
    let mut again = fixture.client();
    assert!(again.text("AUTH b password").starts_with("-WRONGPASS"));
    assert_eq!(again.text("AUTH b other"), "OK");
    let tables = |digit: &str| {
        let bearer = format!("Authorization: Bearer {}\r\n", digit.repeat(32));
        http(&fixture, "GET /v1/tables", &bearer, "").0
    };
    assert_eq!((tables("1"), tables("2")), (401, 200));
    let bearer = format!("Authorization: Bearer {}\r\n", "2".repeat(32));
    let (_, metrics) = http(&fixture, "GET /metrics", &bearer, "");
    assert!(
        metrics.contains("forebay_auth_failures_total 2\n"),
        "by RESP and by HTTP"
    );

    // One bad file of two: neither is accepted.
    users(&fixture, &[("a", HASH, "*")]);
    fixture.file("token", "short");
    let error = fixture.server().reload().expect_err("refused");
    assert!(error.to_string().contains("shorter than 16"), "{error}");
    token_file(&fixture, "3");
    fixture.file("users.json", "{");
    let error = fixture.server().reload().expect_err("refused");
    assert!(error.to_string().contains("users.json"), "{error}");
    assert_eq!((tables("3"), tables("2")), (401, 200));
    assert!(a.text("GET words:k0001").starts_with("-NOPERM"));
    assert_eq!(again.text("GET words:k0001"), "value 1");
}

/// A certificate, in files of these names as well.
fn certificate(fixture: &Fixture, name: &str) -> (Certificate, TlsFiles) {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("made");
    let files = TlsFiles {
        certificate: fixture.file(&format!("{name}.pem"), &made.cert.pem()),
        key: fixture.file(&format!("{name}.key"), &made.signing_key.serialize_pem()),
        client_ca: None,
    };
    (made.cert, files)
}

#[test]
fn certificates_are_reloaded_for_new_connections() {
    let mut fixture = Fixture::store();
    let (first, files) = certificate(&fixture, "server");
    fixture.start(|config| config.tls = Some(files));
    let mut before = tls_client(fixture.connect(), &first, None);
    assert_eq!(before.text("PING"), "PONG");
    let (second, _) = certificate(&fixture, "server");
    fixture.server().reload().expect("read");
    assert_eq!(before.text("PING"), "PONG");
    assert_eq!(
        tls_client(fixture.connect(), &second, None).text("PING"),
        "PONG"
    );

    let key = KeyPair::generate().expect("a key");
    let mut ended = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
    ended.not_after = rcgen::date_time_ymd(2020, 1, 1);
    let ended = ended.self_signed(&key).expect("signed");
    fixture.file("server.pem", &ended.pem());
    fixture.file("server.key", &key.serialize_pem());
    let error = fixture.server().reload().expect_err("refused");
    assert!(error.to_string().contains("has ended"), "{error}");
    assert_eq!(
        tls_client(fixture.connect(), &second, None).text("PING"),
        "PONG"
    );

    fixture.file("server.pem", "no certificate");
    let error = fixture.server().reload().expect_err("refused");
    assert!(error.to_string().contains("server.pem"), "{error}");
    assert_eq!(
        tls_client(fixture.connect(), &second, None).text("PING"),
        "PONG"
    );
}

/// An authority, and a certificate of a client that it signed.
fn authority(
    name: &str,
) -> (
    Certificate,
    (CertificateDer<'static>, PrivateKeyDer<'static>),
) {
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let certificate = params.self_signed(&key).expect("signed");
    let issuer = Issuer::new(params, key);
    let own_key = KeyPair::generate().expect("a key");
    let own = CertificateParams::new(vec!["client".to_owned()]).expect("a name");
    let own = own.signed_by(&own_key, &issuer).expect("signed");
    let own_key = PrivateKeyDer::try_from(own_key.serialize_der()).expect("a key");
    (certificate, (own.der().clone(), own_key))
}

#[test]
fn clients_need_a_certificate_if_an_authority_is_configured() {
    let mut fixture = Fixture::store();
    fixture.push_usual();
    let (trusted, mut files) = certificate(&fixture, "server");
    let (ours, own) = authority("ours");
    let (_, foreign) = authority("theirs");
    files.client_ca = Some(fixture.file("ca.pem", &ours.pem()));
    let path = users(&fixture, &[("a", HASH, "words")]);
    fixture.start(|config| (config.tls, config.users) = (Some(files), Some(path)));

    // The certificate admits the client; the password identifies it.
    let mut client = tls_client(fixture.connect(), &trusted, Some(own));
    assert!(client.text("GET words:k0001").starts_with("-NOAUTH"));
    assert_eq!(client.text("AUTH a password"), "OK");
    assert_eq!(client.text("GET words:k0001"), "value 1");
    for certificate in [None, Some(foreign)] {
        let address = fixture.server().http_address().expect("HTTP");
        for stream in [fixture.connect(), common::dial(address).expect("connected")] {
            let own = certificate
                .as_ref()
                .map(|(of, key)| (of.clone(), key.clone_key()));
            let mut client = tls_client(stream, &trusted, own);
            // The handshake may fail at the first write or read.
            use std::io::Write;
            let _ = client
                .stream
                .get_mut()
                .write_all(&encode(&[b"AUTH", b"a", b"password"]));
            let mut answer = Vec::new();
            let _ = client.stream.read_to_end(&mut answer);
            assert_eq!(answer, b"");
        }
    }
    let mut ca = fixture.file("ca.pem", "-----BEGIN CERTIFICATE-----\nx\n");
    let error = fixture.server().reload().expect_err("refused");
    assert!(error.to_string().contains("ca.pem"), "{error}");
    ca.clear();
}

/// Lets the clock run when a test ends in any way, so that the server can end.
struct TestEnd(Arc<HandClock>);

impl Drop for TestEnd {
    fn drop(&mut self) {
        self.0.end();
    }
}

#[test]
fn wrong_passwords_are_answered_late_and_block_no_other_client() {
    let clock = Arc::new(HandClock::waiting());
    let mut fixture = Fixture::store_by(clock.clone());
    let _ends = TestEnd(clock.clone());
    fixture.push_usual();
    let path = users(&fixture, &[("a", HASH, "words")]);
    fixture.start(|config| {
        config.users = Some(path);
        config.threads = 1;
        config.limits.auth_time = Duration::from_secs(1 << 30);
    });
    let mut wrong = fixture.client();
    let mut other = fixture.client();
    assert_eq!(other.text("AUTH a password"), "OK");
    let pause = Duration::from_millis(250);
    for (attempt, times) in [1, 2, 4].into_iter().enumerate() {
        wrong.send(&encode(&[b"AUTH", b"a", b"wrong"]));
        let failures = format!("forebay_auth_failures_total {}\n", attempt + 1);
        let basic = "Authorization: Basic YTpwYXNzd29yZA==\r\n";
        while !http(&fixture, "GET /metrics", basic, "")
            .1
            .contains(&failures)
        {}
        assert_eq!(other.text("GET words:k0001"), "value 1");
        clock.advance(pause * times - Duration::from_millis(1));
        assert_eq!(other.text("GET words:k0001"), "value 1");
        let stream = wrong.stream.get_mut();
        stream.set_nonblocking(true).expect("set");
        let early = stream.read(&mut [0]).map_err(|error| error.kind());
        assert_eq!(early, Err(ErrorKind::WouldBlock), "attempt {attempt}");
        stream.set_nonblocking(false).expect("set");
        clock.advance(Duration::from_millis(1));
        let answer = wrong.read();
        assert!(matches!(answer, common::Reply::Error(text) if text.starts_with("WRONGPASS")));
    }
    assert_eq!(wrong.text("AUTH a password"), "OK");
}
