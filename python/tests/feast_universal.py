"""Runs Feast's own tests of online stores against ours, from a checkout: `make test-feast`.

FULL_REPO_CONFIGS_MODULE names this module. It is also a plugin of pytest (`-p`), because Feast's
tests import clients of warehouses that are not installed here.
"""

import os
import sys
import tempfile
import types

SOURCES = "tests.universal.feature_repos.universal.data_sources"


def _stand_in(name: str, **members: object) -> None:
    module = types.ModuleType(name)
    module.__path__ = []
    module.__dict__.update(members)
    sys.modules.setdefault(name, module)


_stand_in(f"{SOURCES}.bigquery", BigQueryDataSourceCreator=object)
_stand_in(f"{SOURCES}.redshift", RedshiftDataSourceCreator=object)
_stand_in("google.cloud.bigquery")
_stand_in("google.cloud", bigquery=sys.modules["google.cloud.bigquery"])

from tests.universal.feature_repos import integration_test_repo_config as configs  # noqa: E402
from tests.universal.feature_repos.universal.data_sources.file import (  # noqa: E402
    FileDataSourceCreator,
)
from tests.universal.feature_repos.universal.online_store_creator import (  # noqa: E402
    OnlineStoreCreator,
)

OURS = {"type": "forebay.feast.ForebayOnlineStore"}


class ForebayOnlineStoreCreator(OnlineStoreCreator):
    def create_online_store(self) -> dict:
        self.folder = tempfile.TemporaryDirectory()
        return {**OURS, "store": f"{self.folder.name}/store"}

    def teardown(self) -> None:
        self.folder.cleanup()


AVAILABLE_OFFLINE_STORES = [("local", FileDataSourceCreator)]
# This name also selects the tests that are for Redis only: time to live, late rows, async.
AVAILABLE_ONLINE_STORES = {"redis": (OURS, ForebayOnlineStoreCreator)}

if engine := os.environ.get("FOREBAY_FEAST_ENGINE"):

    class _WithEngine(configs.IntegrationTestRepoConfig):
        def __init__(self, **settings: object) -> None:
            super().__init__(**{"batch_engine": {"type": engine}, **settings})

    configs.IntegrationTestRepoConfig = _WithEngine
