"""An online store for Feast: `type: forebay.feast.ForebayOnlineStore` in feature_store.yaml.

`ForebayOnlineStore` serves features from tables of Forebay; `ForebayEngine`, as `batch_engine`,
publishes each materialisation as one version, past the gate. See
docs/how-to/publish-from-feast.md.
"""

from ._config import ForebayEngineConfig, ForebayOnlineStoreConfig
from ._engine import ForebayEngine
from ._online_store import ForebayOnlineStore

__all__ = [
    "ForebayEngine",
    "ForebayEngineConfig",
    "ForebayOnlineStore",
    "ForebayOnlineStoreConfig",
]

# Feast looks for a class in the module of its configuration.
for _class in (
    *(ForebayEngine, ForebayEngineConfig),
    *(ForebayOnlineStore, ForebayOnlineStoreConfig),
):
    _class.__module__ = "forebay.feast"
