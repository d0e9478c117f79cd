"""What a text means for a setting of a given type, and whether it lies in the setting's range."""

import math
import re
import types
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Final

from attune.runtime.secret import Secret
from attune.runtime.settings.declare import Setting
from attune.runtime.settings.sources import Given

_INTEGER: Final = re.compile(r"[-+]?[0-9]{1,18}")
_NUMBER: Final = re.compile(r"[-+]?([0-9]{1,18}(\.[0-9]{0,18})?|\.[0-9]{1,18})([eE][-+]?[0-9]{1,3})?")
_LABEL: Final = re.compile(r"[^=,\s]{1,63}")


class BadValue(Exception):
    """The text does not fit the setting; the message says what would."""


def read_value(setting: Setting, given: Given) -> object:
    """Turn the text into the setting's type and check its range."""
    if given.text is None:
        if setting.optional:
            return None
        raise BadValue(f"needs a value: {describe_type(setting)}")
    if setting.optional and not given.quoted and given.text == "":
        return None  # An empty environment variable is the usual way to unset something.
    value = _parse(setting, given, given.text)
    _check_range(setting, value)
    _check_pattern(setting, given.text)
    return value


def describe_type(setting: Setting) -> str:
    """Name the type and range of a setting the way a person would."""
    if setting.rules.pattern_meaning:
        return setting.rules.pattern_meaning
    if issubclass(setting.type, StrEnum):
        return "one of " + ", ".join(member.value for member in setting.type)
    name = _TYPE_NAMES.get(setting.type, "a text")
    low, high = setting.rules.minimum, setting.rules.maximum
    return name if low is None or high is None else f"{name} from {_plain(low)} to {_plain(high)}"


_TYPE_NAMES: Final[Mapping[type, str]] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    Path: "a path",
    Mapping: "labels such as name=value,other=value",
}


def _plain(number: float) -> str:
    return f"{number:g}" if number != int(number) else str(int(number))


def _parse(setting: Setting, given: Given, text: str) -> object:
    kind = setting.type
    if kind is Secret:
        return Secret(text)
    if kind is bool:
        return _parse_bool(setting, given, text)
    if kind is int or kind is float:
        return _parse_number(setting, given, text)
    if kind is Mapping:
        return _parse_labels(text)
    if not text:
        raise BadValue(f"must not be empty: {describe_type(setting)}")
    if issubclass(kind, StrEnum):
        if text not in set(kind):
            raise _wrong(setting, text)
        return kind(text)
    return parse_path(text) if kind is Path else text


def parse_path(text: str) -> Path:
    """A path, with `~` and `~name` replaced by the home they mean."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise BadValue(f"names the home of somebody this machine does not know: {text!r}") from None


def _parse_bool(setting: Setting, given: Given, text: str) -> bool:
    if given.quoted or text.lower() not in {"true", "false"}:
        raise _wrong(setting, text)
    return text.lower() == "true"


def _parse_number(setting: Setting, given: Given, text: str) -> float:
    wanted = _INTEGER if setting.type is int else _NUMBER
    if given.quoted or not wanted.fullmatch(text):
        raise _wrong(setting, text)
    return int(text) if setting.type is int else float(text)


def _parse_labels(text: str) -> Mapping[str, str]:
    """Read `name=value,other=value`."""
    labels: dict[str, str] = {}
    for part in filter(None, text.split(",")):
        name, equals, value = part.partition("=")
        if not equals:
            raise BadValue(f"must be {_TYPE_NAMES[Mapping]}, not {text!r}")
        labels[read_label_name(name.strip())] = value.strip()
    return types.MappingProxyType(labels)


def read_label_name(name: str) -> str:
    """Refuse a name that could not be written as `name=value`."""
    if not _LABEL.fullmatch(name):
        raise BadValue(f"a label's name has 1 to 63 characters and no space, comma or =; not {name!r}")
    return name


def _check_range(setting: Setting, value: object) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return
    low, high = setting.rules.minimum, setting.rules.maximum
    if not (low if low is not None else -math.inf) <= value <= (high if high is not None else math.inf):
        raise BadValue(f"must be {describe_type(setting)}, not {_plain(value)}")


def _check_pattern(setting: Setting, text: str) -> None:
    pattern = setting.rules.pattern
    if pattern is not None and not pattern.fullmatch(text):
        raise _wrong(setting, text)


def _wrong(setting: Setting, text: str) -> BadValue:
    """Say what was wanted; a secret's text is never repeated."""
    shown = "" if setting.rules.secret else f", not {text!r}"
    return BadValue(f"must be {describe_type(setting)}{shown}")
