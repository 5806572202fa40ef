"""What stands in feature_store.yaml."""

from __future__ import annotations

from typing import Any, Literal

from feast.repo_config import FeastConfigBaseModel
from pydantic import Field, PositiveFloat, PositiveInt, StrictStr, model_validator

_STORE = "data/forebay"


class ForebayOnlineStoreConfig(FeastConfigBaseModel):
    """`online_store` in feature_store.yaml."""

    type: Literal["forebay.feast.ForebayOnlineStore"] = "forebay.feast.ForebayOnlineStore"

    store: StrictStr | None = None
    """The store: a directory, seen from the feature repository, or a URL in object storage.

    Without it and without `connection` it is data/forebay."""

    connection: StrictStr | None = None
    """Servers that read and write for this process: redis://host:port,host:port."""

    timeout_seconds: PositiveFloat = 10.0
    """How long an answer of servers is waited for."""

    ca_file: StrictStr | None = None
    certificate_file: StrictStr | None = None
    key_file: StrictStr | None = None

    read_only: bool = False
    """Reads what was materialised, and opens no live table, so that many processes can."""

    refresh_seconds: float = Field(default=1.0, ge=0)
    """For how long a version is read before it is looked whether another one serves."""

    key_ttl_seconds: PositiveInt | None = None
    """How long a row lasts after it was written."""

    enforce_ttl: bool = False
    """Rows whose event timestamp is older than their feature view's ttl read as absent."""

    durability: StrictStr = "sync"
    """When a write to a live table is acknowledged: as `forebay create --durability`."""

    memory_bytes: PositiveInt | None = None
    """What live tables may use for what is not written to runs yet."""

    @model_validator(mode="after")
    def _settled(self) -> ForebayOnlineStoreConfig:
        if self.store is None and self.connection is None:
            self.store = _STORE
        if self.read_only and self.connection is not None:
            raise ValueError(
                "read_only is for a store that this process opens itself: leave it out with "
                "connection"
            )
        return self


class ForebayEngineConfig(FeastConfigBaseModel):
    """`batch_engine` in feature_store.yaml."""

    type: Literal["forebay.feast.ForebayEngine"] = "forebay.feast.ForebayEngine"

    backend: StrictStr | None = None
    """Who carries out transformations and aggregations: pandas or polars, as in Feast's own."""

    mode: Literal["auto", "replace", "upsert"] = "auto"
    """Whether a materialisation replaces what serves, adds to it, or as its range says."""

    push: dict[str, Any] = {}
    """Options of `forebay.push` for all feature views: gate, keep, memory, ..."""

    views: dict[str, dict[str, Any]] = {}
    """The same for single feature views; they go before `push`."""
