//! Timeouts and expiry: the test advances the clock.

use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use crate::common::Fixture;
use forebay_io::sim::HandClock;

const HOUR: Duration = Duration::from_secs(3600);

/// A server with a stopped clock. However the test ends, the clock runs again.
struct ManualServer {
    fixture: Fixture,
    clock: Arc<HandClock>,
}

impl ManualServer {
    fn store() -> Self {
        let clock = Arc::new(HandClock::waiting());
        let fixture = Fixture::store_by(clock.clone());
        Self { fixture, clock }
    }
}

impl Drop for ManualServer {
    fn drop(&mut self) {
        self.clock.end();
        self.fixture.server.take();
    }
}

#[test]
fn an_idle_client_is_disconnected_when_its_time_is_over() {
    let mut by_hand = ManualServer::store();
    by_hand
        .fixture
        .start(|config| config.limits.idle_time = Some(HOUR));
    let mut client = by_hand.fixture.client();
    assert_eq!(client.text("PING"), "PONG");
    // One sweep each; as of the last one the client has just spoken.
    for _ in 0..3 {
        by_hand.clock.advance(HOUR / 2);
        assert_eq!(client.text("PING"), "PONG");
    }
    let mut stream = client.stream.into_inner();
    stream
        .set_read_timeout(Some(Duration::from_millis(50)))
        .expect("set");
    let ended = (0..100).any(|_| {
        by_hand.clock.advance(HOUR);
        matches!(stream.read(&mut [0]), Ok(0))
    });
    assert!(ended);
}
