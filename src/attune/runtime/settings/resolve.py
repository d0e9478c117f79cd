"""Which setting a key means: its own name, an older one, the file variant of a secret, or a near miss."""

import difflib
import functools
import types
from collections.abc import Iterable, Mapping
from typing import Final

from attune.runtime.settings.declare import Setting, environment_name, list_settings
from attune.runtime.settings.schema import Settings
from attune.runtime.settings.sources import Given
from attune.runtime.settings.values import BadValue, parse_path

SECRET_FILE_MAX_BYTES: Final = 65_536  # A longer file is surely not the secret that was meant.

# Older names, still read: the value is in seconds where the new one is in milliseconds.
OLD_NAME: Final = "executor.worker_queue_ttl"
NEW_NAME: Final = "message_queue.rabbitmq.worker_queue_ttl_ms"


@functools.cache
def known_settings() -> Mapping[str, Setting]:
    """Every setting by its key, in the order of declaration."""
    return types.MappingProxyType({one.key: one for one in list_settings(Settings)})


def resolve_key(given: Given, keys_of_layer: set[str]) -> tuple[Setting, Given] | None:
    """Find the setting a key means; None where it is an empty section."""
    known = known_settings()
    if given.key in known:
        return known[given.key], given
    if given.key == OLD_NAME:
        return known[NEW_NAME], _in_milliseconds(given)
    for parent in known.values():
        if parent.type is Mapping and given.key.startswith(f"{parent.key}."):
            return parent, given
    secret = known.get(given.key.removesuffix("_file"))
    if secret is not None and secret.rules.secret:
        if secret.key in keys_of_layer:
            raise BadValue(f"given beside {secret.key}; give only one of them")
        return secret, _read_secret_file(given)
    if any(key.startswith(f"{given.key}.") for key in known):
        if given.text is None:
            return None
        raise BadValue("is a section, not a setting")
    raise BadValue(_unknown(given))


def _unknown(given: Given) -> str:
    """Say that a key is unknown and name the nearest one, in the spelling of its source."""
    known = [*known_settings(), *(f"{key}_file" for key, one in known_settings().items() if one.rules.secret)]
    nearest = difflib.get_close_matches(given.key, known, n=1, cutoff=0.5) or _same_last_name(given.key, known)
    if not nearest:
        return "unknown setting"
    shown = environment_name(nearest[0]) if given.origin.startswith("ATTUNE_") else nearest[0]
    return f"unknown setting; did you mean {shown}?"


def _same_last_name(key: str, known: Iterable[str]) -> list[str]:
    last = key.rpartition(".")[2]
    by_last = {one.rpartition(".")[2]: one for one in known}
    return [by_last[name] for name in difflib.get_close_matches(last, by_last, n=1)]


def _in_milliseconds(given: Given) -> Given:
    try:
        text = str(round(float(given.text or "") * 1000))
    except (ValueError, OverflowError):
        raise BadValue(f"must be a number of seconds, not {given.text!r}") from None
    return Given(key=NEW_NAME, text=text, origin=given.origin)


def _read_secret_file(given: Given) -> Given:
    if not given.text:
        raise BadValue("must be a path")
    try:
        with parse_path(given.text).open("rb") as file:
            content = file.read(SECRET_FILE_MAX_BYTES + 1)
    except OSError as error:
        raise BadValue(f"cannot read {given.text}: {error.strerror}") from None
    if len(content) > SECRET_FILE_MAX_BYTES:
        raise BadValue(f"{given.text} is larger than {SECRET_FILE_MAX_BYTES} bytes")
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise BadValue(f"{given.text} is not UTF-8 text") from None
    return Given(key=given.key, text=text.rstrip("\r\n"), origin=f"{given.origin} ({given.text})", quoted=True)
