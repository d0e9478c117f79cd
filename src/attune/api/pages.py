"""Pages of lists: how many, from where, and the way to the next."""

import base64
import binascii
from collections.abc import Callable, Sequence
from typing import Annotated, Final, Generic, Literal, TypeVar

import msgspec

from attune.api.errors import BadRequest
from attune.domain.errors import FieldError

T = TypeVar("T")

LIMIT_DEFAULT: Final = 100
LIMIT_MAX: Final = 1000
ID_MAX: Final = 2**63 - 1

Limit = Annotated[int, msgspec.Meta(ge=1, le=LIMIT_MAX, description="How many items at most.")]
Cursor = Annotated[str, msgspec.Meta(max_length=200, description="Where to go on: the last page's next_cursor.")]


class Page(msgspec.Struct, Generic[T], kw_only=True, frozen=True):
    """One page of a list, and the way to the next."""

    items: list[T]
    next_cursor: str | None = None


class PageQuery(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A page in the order of ids."""

    limit: Limit = LIMIT_DEFAULT
    cursor: Cursor | None = None
    sort: Literal["id"] = "id"


class NewestFirstQuery(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A page, the newest first unless it is asked for the other way round."""

    limit: Limit = LIMIT_DEFAULT
    cursor: Cursor | None = None
    sort: Literal["-id", "id"] = "-id"


def write_cursor(place: Sequence[int]) -> str:
    """A place in a list as a text that nobody is tempted to compute with."""
    return base64.urlsafe_b64encode(msgspec.json.encode(place)).decode().rstrip("=")


def read_cursor(cursor: str | None, default: Sequence[int]) -> tuple[int, ...]:
    """The place a cursor stands for; the default where there is none."""
    if cursor is None:
        return tuple(default)
    try:
        padded = cursor.encode() + b"=" * (-len(cursor) % 4)
        place = msgspec.json.decode(base64.urlsafe_b64decode(padded), type=list[int])
    except (binascii.Error, ValueError, msgspec.DecodeError) as error:
        raise _bad_cursor() from error
    if len(place) != len(default) or any(abs(number) > ID_MAX for number in place):
        raise _bad_cursor()
    return tuple(place)


def _bad_cursor() -> BadRequest:
    message = "is not a cursor of this list; use next_cursor of the last page"
    return BadRequest(f"cursor {message}", code="bad_query", fields=[FieldError(pointer="/cursor", message=message)])


def make_page(rows: Sequence[T], *, limit: int, place_of: Callable[[T], Sequence[int]]) -> Page[T]:
    """A page of rows that were read with one more than the limit: its presence means there is a next page."""
    items = list(rows[:limit])
    return Page(items=items, next_cursor=write_cursor(place_of(items[-1])) if len(rows) > limit else None)
