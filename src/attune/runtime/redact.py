"""Takes secrets out of what is about to be logged: by the name of a field, and by how a text looks."""

import functools
import itertools
import re
from collections.abc import Mapping
from datetime import date, timedelta
from enum import Enum
from pathlib import PurePath
from typing import Final
from uuid import UUID

from attune.runtime.secret import MASK, Secret, mask_url_password

DEPTH_MAX: Final = 6  # Deeper values are cut: nobody reads them in a log, and a cycle must end.
CUT: Final = "…"
ITEMS_MAX: Final = 100  # Longer lists and mappings are cut likewise.

_SECRET_WORDS: Final = frozenset(
    {"password", "passwd", "passphrase", "secret", "secrets", "token", "tokens", "authorization"}
    | {"cookie", "cookies", "credential", "credentials", "apikey"}
)
_SECRET_ENDINGS: Final = ("api_key", "private_key", "signing_key", "access_key", "master_key")
# `token_id` and `secret_name` tell which one, not what it is.
_HARMLESS_LAST_WORDS: Final = frozenset({"id", "ids", "name", "names", "count", "file", "kind", "type", "hash"})

_PLAIN: Final = (date, timedelta, UUID, Enum)  # A datetime is a date.
_BETWEEN_WORDS: Final = re.compile(r"[^a-z0-9]+")
_TOKEN: Final = re.compile(r"\batt_[A-Za-z0-9]{8,}")
_CREDENTIALS: Final = re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}")


@functools.lru_cache(maxsize=2048)
def is_secret_name(name: str) -> bool:
    """Whether a field of this name holds something that must not be shown."""
    words = [word for word in _BETWEEN_WORDS.split(name.lower()) if word]
    if not words or words[-1] in _HARMLESS_LAST_WORDS:
        return False
    return not _SECRET_WORDS.isdisjoint(words) or "_".join(words).endswith(_SECRET_ENDINGS)


def redact_text(text: str) -> str:
    """Mask passwords in URLs, tokens of ours, and HTTP credentials; quick where there are none."""
    if "://" in text:
        text = mask_url_password(text)
    if "att_" in text:
        text = _TOKEN.sub(f"att_{MASK}", text)
    lowered = text.lower()
    if "bearer" in lowered or "basic" in lowered:
        text = _CREDENTIALS.sub(rf"\1 {MASK}", text)
    return text


def redact_field(name: str, value: object, depth: int = 0) -> object:
    """The value as it may be shown under this name."""
    if value is None or isinstance(value, (int, float)):
        return value  # A number is never a secret here, and `tokens=3` is worth reading.
    if is_secret_name(name):
        return MASK
    # Most values are texts, so they are asked for first: this runs for every field of every line.
    return redact_text(value) if type(value) is str else _redact_value(value, depth)


def _redact_value(value: object, depth: int) -> object:
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, Mapping):
        return _redact_mapping(value, depth)
    if isinstance(value, list | tuple | set | frozenset):
        return _redact_list(list(value), depth)
    if isinstance(value, bytes):
        return f"<{len(value)} bytes>"
    # Of a Secret this is the mask; of an unknown object its own description.
    return redact_text(str(value) if isinstance(value, str | Secret | PurePath) else repr(value))


def _redact_mapping(value: Mapping[object, object], depth: int) -> object:
    if depth >= DEPTH_MAX:
        return CUT
    some = itertools.islice(value.items(), ITEMS_MAX)
    return {str(name): redact_field(str(name), one, depth + 1) for name, one in some}


def _redact_list(value: list[object], depth: int) -> object:
    if depth >= DEPTH_MAX:
        return CUT
    return [redact_field("", one, depth + 1) for one in value[:ITEMS_MAX]]
