"""What is sent and answered about logins, tokens and the audit log."""

from datetime import datetime
from typing import Annotated

import msgspec

NAME_LENGTH_MAX = 200
LIFETIME_SECONDS_MAX = 10 * 365 * 24 * 3600


class LoginRequest(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """What somebody types in."""

    login: Annotated[str, msgspec.Meta(min_length=1, max_length=NAME_LENGTH_MAX)]
    password: Annotated[str, msgspec.Meta(min_length=1, max_length=1024)]


class LoginAnswer(msgspec.Struct, kw_only=True, frozen=True):
    """A token for the working day."""

    token: str
    expires_at: datetime | None


class TokenBody(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A token the caller wants; it can do at most what the caller can."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=NAME_LENGTH_MAX)]
    permission_set: Annotated[str, msgspec.Meta(max_length=NAME_LENGTH_MAX)] | None = None
    expires_in_seconds: Annotated[int, msgspec.Meta(ge=1, le=LIFETIME_SECONDS_MAX)] | None = None


class NewTokenAnswer(msgspec.Struct, kw_only=True, frozen=True):
    """A new token; its secret is shown this once."""

    id: int
    name: str
    identity: str
    permission_set: str | None
    created: datetime
    expires_at: datetime | None
    secret: str
