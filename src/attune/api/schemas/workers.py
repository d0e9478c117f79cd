"""What is asked about workers."""

from typing import Literal

import msgspec

from attune.api.pages import LIMIT_DEFAULT, Cursor, Limit


class WorkerQuery(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """Which workers."""

    status: Literal["active", "unresponsive", "draining", "inactive", "lost"] | None = None
    limit: Limit = LIMIT_DEFAULT
    cursor: Cursor | None = None
    sort: Literal["id"] = "id"
