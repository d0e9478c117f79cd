"""What is sent and answered about packs, actions and policies."""

from datetime import datetime
from typing import Annotated

import msgspec

from attune.api.pages import LIMIT_DEFAULT, Cursor, Limit
from attune.domain.json_values import Json
from attune.domain.refs import PACK_REF_LENGTH_MAX

PATH_LENGTH_MAX = 4096


class InstallRequest(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A pack to be installed from a folder on the API's machine."""

    path: Annotated[str, msgspec.Meta(min_length=1, max_length=PATH_LENGTH_MAX)]


class PackAnswer(msgspec.Struct, kw_only=True, frozen=True):
    """A pack, and where installing it is concerned, what came of that."""

    id: int
    ref: str
    version: str
    label: str
    description: str
    config_schema: Json
    source: str
    digest: str
    enabled: bool
    created: datetime
    updated: datetime
    changed: bool | None = None
    removed: list[str] = []
    warnings: list[str] = []


class ActionQuery(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Which actions."""

    pack: Annotated[str, msgspec.Meta(max_length=PACK_REF_LENGTH_MAX)] | None = None
    limit: Limit = LIMIT_DEFAULT
    cursor: Cursor | None = None
    sort: str = "id"
