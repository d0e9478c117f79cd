"""JSON documents as Python values: their type, pointers into them, and the bounds every accepted one must keep."""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from attune.domain.errors import FieldError

if TYPE_CHECKING:
    Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
else:
    # msgspec reads annotations while running and cannot follow a type that contains itself.
    Json = object

# Deeper documents exhaust the recursion of the parsers they meet later.
DEPTH_MAX = 64
# What one document may take on its way into a row.
BYTES_MAX = 1024 * 1024
# Longer integers cost quadratic time to print and no client reads them back exactly.
INTEGER_BITS_MAX = 1024
# An answer that lists more errors than this helps nobody; the rest is left out.
ERRORS_MAX = 50


def join_pointer(parts: Iterable[str | int]) -> str:
    """The JSON pointer (RFC 6901) of a path; the whole document is the empty string."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)


def split_pointer(pointer: str) -> list[str]:
    """The parts of a JSON pointer, unescaped."""
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]


def find_unstorable(document: object, *, bytes_max: int = BYTES_MAX) -> list[FieldError]:
    """Everything about a document that PostgreSQL or a later parser could not hold."""
    errors: list[FieldError] = []
    for error in _walk(document):
        errors.append(error)
        if len(errors) == ERRORS_MAX:
            return errors
    if errors:
        return errors
    size = len(msgspec.json.encode(document))
    if size > bytes_max:
        return [FieldError(pointer="", message=f"is {size} bytes long; at most {bytes_max} are accepted")]
    return []


def _walk(document: object) -> Iterator[FieldError]:
    # A list instead of recursion: the depth is what is being checked.
    waiting: list[tuple[tuple[str | int, ...], object]] = [((), document)]
    while waiting:
        path, value = waiting.pop()
        if len(path) > DEPTH_MAX:
            yield FieldError(pointer=join_pointer(path), message=f"is nested deeper than {DEPTH_MAX} levels")
        elif isinstance(value, Mapping):
            yield from _find_bad_keys(path, value)
            waiting.extend(((*path, str(key)), item) for key, item in value.items())
        elif isinstance(value, list | tuple):
            waiting.extend(((*path, index), item) for index, item in enumerate(value))
        elif message := _why_unstorable(value):
            yield FieldError(pointer=join_pointer(path), message=message)


def _find_bad_keys(path: tuple[str | int, ...], mapping: Mapping[object, object]) -> Iterator[FieldError]:
    for key in mapping:
        if not isinstance(key, str):
            yield FieldError(pointer=join_pointer((*path, str(key))), message="has a key that is not a string")
        elif message := _why_unstorable(key):
            yield FieldError(pointer=join_pointer(path), message=f"has a key that {message}")


def _why_unstorable(value: object) -> str | None:
    if isinstance(value, str):
        return _why_text_unstorable(value)
    if isinstance(value, float) and not math.isfinite(value):
        return "is not a finite number"
    if isinstance(value, int) and value.bit_length() > INTEGER_BITS_MAX:
        return f"is an integer of more than {INTEGER_BITS_MAX} bits"
    return None if value is None or isinstance(value, bool | int | float) else "is not a JSON value"


def _why_text_unstorable(text: str) -> str | None:
    if "\0" in text:
        return "contains the character U+0000, which PostgreSQL cannot store"
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        return "contains half of a surrogate pair, which is not text"
    return None
