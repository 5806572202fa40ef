"""A node of Ray for the tests, with two workers."""

import importlib
import secrets
import tempfile
from contextlib import contextmanager

import pytest
from object_store import RemoteStore

# All addresses are loopback addresses, and no usage is reported. The token that authenticates the
# processes is not written to a home directory.
QUIET = {
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": secrets.token_hex(32),
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DATA_DISABLE_PROGRESS_BARS": "1",
    "RAY_DEDUP_LOGS": "0",
}
START = {
    "num_cpus": 2,
    "include_dashboard": False,
    "object_store_memory": 128 << 20,
    "log_to_driver": False,
}


def start(ray, directory):
    """Starts a node. Ray allows it 30 s even on a busy machine, so a failed start is repeated."""
    for tries_left in reversed(range(5)):
        try:
            return ray.init(_temp_dir=directory, **START)
        except Exception as error:
            if not tries_left or "timed out during startup" not in str(error):
                raise
            ray.shutdown()


@contextmanager
def running(s3_server, work):
    """Runs a node. The environment of its workers names the S3 server."""
    remote = RemoteStore(s3_server, work, "ray")
    aws = {name: word for name, word in remote.environment().items() if name.startswith("AWS_")}
    with pytest.MonkeyPatch.context() as patch:
        for name, word in {**QUIET, **aws}.items():
            patch.setenv(name, word)
        ray = importlib.import_module("ray")
        importlib.import_module("ray.data")
        # The paths of its sockets must be short.
        with tempfile.TemporaryDirectory(prefix="ray") as directory:
            start(ray, directory)
            yield ray
            ray.shutdown()
