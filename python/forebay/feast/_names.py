"""How tables and keys are called."""

from __future__ import annotations

import hashlib
import re
from typing import Any

from feast.infra.online_stores.helpers import compute_versioned_name
from feast.protos.feast.types.EntityKey_pb2 import EntityKey
from feast.protos.feast.types.Value_pb2 import Value
from feast.repo_config import RepoConfig

from .._errors import UsageError

LIVE = ".live"
PRECOMPUTED = "__precomputed__"
# A table of Forebay has 64 characters.
_LONGEST = 64 - len(LIVE)
_OTHERS = re.compile(r"[^A-Za-z0-9_.-]")


def project_table(project: str, view: str) -> str:
    """The table of a feature view: PROJECT.VIEW, with another end where that is no name."""
    asked = f"{project}.{view}"
    name = _OTHERS.sub("_", asked)
    if name == asked and len(name) <= _LONGEST:
        return name
    mark = hashlib.sha256(asked.encode()).hexdigest()[:10]
    return f"{name[: _LONGEST - len(mark) - 1]}-{mark}"


def view_table(config: RepoConfig, view: Any) -> str:
    """The batch table of a feature view; its live table has `LIVE` behind that."""
    versioned: bool = config.registry.enable_online_feature_view_versioning  # pyright: ignore
    return project_table(config.project, compute_versioned_name(view, versioned))


def escaped(text: str) -> str:
    """One part of a key. `/` stands between two, and no key is empty."""
    return text.replace("%", "%25").replace("/", "%2F") or "%"


def _part(join_key: str, value: Value) -> str | bytes:
    match value.WhichOneof("val"):
        case "int64_val":
            return str(value.int64_val)
        case "string_val":
            return escaped(value.string_val)
        case "int32_val":
            return str(value.int32_val)
        case "unix_timestamp_val":
            return str(value.unix_timestamp_val)
        case "bytes_val":
            return value.bytes_val.replace(b"%", b"%25").replace(b"/", b"%2F") or b"%"
        case None:
            raise UsageError(f"the join key {join_key} has no value")
        case kind:
            raise UsageError(
                f"the join key {join_key} is a {kind}: keys are integers, strings, bytes or "
                "timestamps"
            )


def key_of(entity: EntityKey) -> str | bytes:
    """The key of an entity: its values in the order of its join keys' names."""
    values: Any = entity.entity_values  # pyright: ignore
    if len(entity.join_keys) == 1:
        return _part(entity.join_keys[0], values[0])
    given = dict(zip(entity.join_keys, values, strict=True))
    parts = [_part(join_key, given[join_key]) for join_key in sorted(given)]
    if any(isinstance(part, bytes) for part in parts):
        return b"/".join(p if isinstance(p, bytes) else p.encode() for p in parts)
    return "/".join(str(part) for part in parts) or "%"
