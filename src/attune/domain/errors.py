"""What can go wrong, in three families that decide everything that follows.

The family decides the HTTP status (`api/errors.py`) and the fate of a message (`transport/consume.py`):
`Invalid` never will work, `Conflict` means the world moved on, `Unavailable` may work later.
Anything else that is raised is a bug.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldError:
    """One thing wrong with one part of a document, named by its JSON pointer."""

    pointer: str
    message: str


class AttuneError(Exception):
    """Every error a user may see: a stable code, a sentence, and the fields it is about."""

    code = "error"

    def __init__(self, message: str, *, code: str | None = None, fields: Sequence[FieldError] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.code
        self.fields = tuple(fields)


class Invalid(AttuneError):
    """The request itself is wrong; asking again will not help."""

    code = "invalid"


class NotFound(Invalid):
    """The thing named does not exist, or the asker may not know that it does."""

    code = "not_found"


class Forbidden(Invalid):
    """The asker is known and may not do this."""

    code = "forbidden"


class Unauthenticated(Invalid):
    """The asker is not known."""

    code = "unauthenticated"


class Conflict(AttuneError):
    """The world moved on: another replica, an earlier delivery or a person was faster."""

    code = "conflict"


class Unavailable(AttuneError):
    """It may work later."""

    code = "unavailable"
