"""Problems with a bucket, its credentials or its endpoint are reported once, and soon."""

import json
import time

import pytest
from object_store import Proxy
from web import HttpServer

# A permanent error is not retried for as long as an outage (150 s). A possibly temporary one is
# retried for 15 s.
SOON_S = 40


@pytest.fixture
def seen(remote, source):
    """Runs a command with other variables. It must fail, and its message is returned."""
    environment, path = remote.environment(), source(10)

    def run(*words, code=1, **changed):
        now = {**environment, **changed}
        remote.environment = lambda: {
            name: value for name, value in now.items() if value is not None
        }
        words = words or ("push", "people", path, "--key", "{id}")
        begun = time.monotonic()
        message = remote.refuse(*words, code=code)
        assert time.monotonic() - begun < SOON_S
        lines = [line for line in message.splitlines() if line.strip()]
        assert len(lines) == 1, message
        assert "retry" not in message and "Generic" not in message and len(message) < 500, message
        return message

    return run


@pytest.mark.parametrize("command", ["push", "tables", "swap"])
def test_a_missing_bucket(seen, command):
    words = {"push": (), "tables": ("tables",), "swap": ("swap", "people", 1)}[command]
    message = seen(*words, FOREBAY_STORE="s3://bukcet/stores/x")
    assert message.count("no bucket of that name") == 1 and "typo" in message, message


def test_an_unknown_access_key(seen):
    message = seen(AWS_ACCESS_KEY_ID="somebody")
    assert message.count("InvalidAccessKeyId") == 1 and "AWS_ACCESS_KEY_ID" in message


def test_a_wrong_secret_key(seen):
    message = seen(AWS_SECRET_ACCESS_KEY="other")
    assert message.count("SignatureDoesNotMatch") == 1 and "AWS_SECRET_ACCESS_KEY" in message


@pytest.mark.parametrize("allowed", [None, "false"])
def test_an_endpoint_without_tls_must_be_allowed(seen, allowed):
    message = seen(AWS_ALLOW_HTTP=allowed, code=2)
    assert message.count("AWS_ALLOW_HTTP=true") == 1, message


@pytest.mark.parametrize("address", ["127.0.0.1:9", "localhost", "", "http://a:99999", "ftp://a"])
def test_an_invalid_endpoint_address(seen, address):
    message = seen(AWS_ENDPOINT_URL=address, code=2)
    assert f"AWS_ENDPOINT_URL is {json.dumps(address)}, which is no address" in message, message


def test_keys_and_regions_with_invalid_characters(seen):
    message = seen(AWS_ACCESS_KEY_ID="key\n", code=2)
    assert "AWS_ACCESS_KEY_ID has a line break in it" in message, message
    message = seen(AWS_REGION="us east 1", code=2)
    assert "AWS_REGION has a space in it" in message, message


def test_an_unusable_work_directory(remote, seen, source, tmp_path):
    remote.push("others", source(10))
    file = tmp_path / "file"
    file.write_text("")
    message = seen(FOREBAY_WORK_DIR=str(file))
    assert f"in the work directory {file}" in message and "--work-dir" in message, message


def test_an_unreachable_endpoint(seen):
    message = seen(AWS_ENDPOINT_URL="http://127.0.0.1:9")
    assert message.count("refused") == 1 and "AWS_ENDPOINT_URL" in message, message


def test_an_https_endpoint_without_tls(seen, remote):
    plain = remote.environment()["AWS_ENDPOINT_URL"]
    message = seen(AWS_ENDPOINT_URL=plain.replace("http://", "https://"))
    assert message.count("answers without TLS") == 1, message


def test_an_unknown_host(seen):
    message = seen(AWS_ENDPOINT_URL="http://nowhere.invalid:9000")
    assert "nowhere.invalid" in message and "AWS_ENDPOINT_URL" in message, message


ANSWERS = {
    "AuthorizationHeaderMalformed": (400, "<Region>eu-west-1</Region>", "region, eu-west-1"),
    "PermanentRedirect": (301, "", "another region"),
    "AccessDenied": (403, "", "may not do that"),
    "ExpiredToken": (400, "", "no longer valid"),
    "RequestTimeTooSkewed": (403, "", "clock"),
}


class Refusing(HttpServer):
    """A store that answers all requests with the same error."""

    def __init__(self, status, code, more):
        text = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>no</Message>{more}</Error>"
        self.status, self.body = status, text.encode()
        super().__init__()

    def handle(self, handler):
        handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        Proxy.answer(handler, self.status, [], self.body, len(self.body))


@pytest.mark.parametrize("code", ANSWERS)
def test_other_errors_of_a_store(seen, code):
    status, more, words = ANSWERS[code]
    store = Refusing(status, code, more)
    try:
        message = seen(AWS_ENDPOINT_URL=store.url)
    finally:
        store.stop()
    assert message.count(words) == 1, message


def test_a_node_logs_the_error_once(remote, node, source):
    remote.push("people", source(10))
    environment = {**remote.environment(), "AWS_SECRET_ACCESS_KEY": "other"}
    remote.environment = lambda: environment
    server = node("--poll", "500ms")
    time.sleep(4)
    status, body = server.ask("/ready")
    assert status == 503 and "AWS_SECRET_ACCESS_KEY" in body
    assert server.log.read_text().count("SignatureDoesNotMatch") == 1, server.log.read_text()
