"""What an `http` action asks: a document in which `{parameter: name}` stands for a parameter's value.

A parameter that was not given leaves out whatever it stands for. In the address a list is joined, each parameter in
it percent-encoded, so that no value can lead to another host or path; in a header a list is joined as it is.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote

import msgspec

from attune.domain.errors import FieldError
from attune.domain.http.answers import STATUS_PATTERNS_MAX
from attune.domain.json_schema import find_document_errors
from attune.domain.json_values import Json, join_pointer
from attune.domain.refs import did_you_mean

URL_LENGTH_MAX: Final = 8192
HEADERS_MAX: Final = 100
HEADER_LENGTH_MAX: Final = 8192
SECONDS_MAX: Final = 3600
SECONDS_DEFAULT: Final = 30.0
PLACEHOLDER: Final = "parameter"

# These say how a message travels and where to; the client alone may write them.
RESERVED_HEADERS: Final = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)

_VISIBLE: Final = "^[ -~\t]*$"
_SCALAR: Final[dict[str, Json]] = {"type": ["string", "number", "boolean"]}
_PAIRS: Final[dict[str, Json]] = {
    "type": "object",
    "additionalProperties": {"type": ["string", "number", "boolean", "array"], "items": _SCALAR},
}
_PROPERTIES: Final[dict[str, Json]] = {
    "method": {"type": "string", "pattern": "^[A-Za-z]{1,20}$"},
    "url": {"type": "string", "minLength": 1, "maxLength": URL_LENGTH_MAX},
    "headers": {
        "type": "object",
        "maxProperties": HEADERS_MAX,
        "propertyNames": {"pattern": "^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}$"},
        "additionalProperties": {"type": "string", "maxLength": HEADER_LENGTH_MAX, "pattern": _VISIBLE},
    },
    # The header of that name, on its own so that a secret need not travel among the others.
    "authorization": {"type": "string", "maxLength": HEADER_LENGTH_MAX, "pattern": _VISIBLE},
    "query": _PAIRS,
    "json": {},
    "form": _PAIRS,
    "body": {"type": "string"},
    "timeout_seconds": {"type": "number", "exclusiveMinimum": 0, "maximum": SECONDS_MAX},
    "follow_redirects": {"type": "boolean"},
    "expected_status": {
        "type": "array",
        "minItems": 1,
        "maxItems": STATUS_PATTERNS_MAX,
        "items": {"type": ["integer", "string"], "pattern": "^[1-5]xx$", "minimum": 100, "maximum": 599},
    },
}
REQUEST_SHAPE: Final[dict[str, Json]] = {
    "type": "object",
    "properties": _PROPERTIES,
    "required": ["url"],
    "additionalProperties": False,
}
_JOINED: Final = frozenset({"url", "authorization"})
_BODIES: Final = ("json", "form", "body")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request, complete."""

    url: str
    method: str = "GET"
    headers: Mapping[str, str] = field(default_factory=dict)
    authorization: str | None = None
    query: Mapping[str, Json] = field(default_factory=dict)
    json: Json | msgspec.UnsetType = msgspec.UNSET
    form: Mapping[str, Json] | None = None
    body: str | None = None
    timeout_seconds: float = SECONDS_DEFAULT
    follow_redirects: bool = True
    expected_status: tuple[int | str, ...] = ("2xx", "3xx")


class BadRequest(Exception):
    """With these parameters there is nothing that could be sent; the message says why."""


def find_request_errors(template: Mapping[str, Json], parameters: Json) -> Iterator[FieldError]:
    """Everything wrong with the template of an action that has these parameters."""
    properties = parameters.get("properties") if isinstance(parameters, dict) else None
    known = properties if isinstance(properties, dict) else {}
    for pointer, name in _placeholders(dict(template), ()):
        if name not in known:
            yield FieldError(pointer=pointer, message=f"names no parameter{did_you_mean(name, known)}")
    # What depends on a parameter is checked when there is one.
    fixed = {key: value for key, value in template.items() if not any(_placeholders(value, ()))}
    filled = fill(fixed, {})
    if "url" in template:
        filled.setdefault("url", "https://example.com")
    yield from find_document_errors(REQUEST_SHAPE, filled)
    yield from _find_conflicts(filled)


def fill(template: Mapping[str, Json], parameters: Mapping[str, Json]) -> dict[str, Json]:
    """The document with its parameters in place."""
    filled: dict[str, Json] = {}
    for key, value in template.items():
        if key in _JOINED:
            found = _join(value, parameters, encode=key == "url")
        elif key == "headers" and isinstance(value, dict) and not _is_placeholder(value):
            found = _present({name: _join(text, parameters) for name, text in value.items()})
        else:
            found = _fill(value, parameters)
        if not isinstance(found, _Absent):
            filled[key] = found
    return filled


def build_request(template: Mapping[str, Json], parameters: Mapping[str, Json]) -> Request:
    """What is sent; raises BadRequest."""
    filled = fill(template, parameters)
    errors = find_document_errors(REQUEST_SHAPE, filled) or list(_find_conflicts(filled))
    if errors:
        first = errors[0]
        raise BadRequest(f"{first.pointer.lstrip('/').replace('/', '.')} {first.message}".strip())
    request: Request = msgspec.convert(filled, Request)
    return request


def _find_conflicts(filled: Mapping[str, Json]) -> Iterator[FieldError]:
    given = [key for key in _BODIES if key in filled]
    if len(given) > 1:
        yield FieldError(pointer=f"/{given[1]}", message=f"a request has one body, and {given[0]} is given too")
    headers = filled.get("headers")
    for name in headers if isinstance(headers, dict) else ():
        if name.lower() == "authorization" and "authorization" in filled:
            yield FieldError(pointer=f"/headers/{name}", message="is given twice: authorization says it too")
        if name.lower() in RESERVED_HEADERS:
            yield FieldError(pointer=f"/headers/{name}", message="is written by the worker itself")


class _Absent:
    """Stands for what was not given, which is not the same as null."""


_ABSENT: Final = _Absent()


def _is_placeholder(value: Json) -> bool:
    return isinstance(value, dict) and value.keys() == {PLACEHOLDER} and isinstance(value[PLACEHOLDER], str)


def _placeholders(value: Json, path: tuple[str | int, ...]) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        if _is_placeholder(value):
            yield join_pointer([*path, PLACEHOLDER]), str(value[PLACEHOLDER])
            return
        for key, part in value.items():
            yield from _placeholders(part, (*path, key))
    elif isinstance(value, list):
        for index, part in enumerate(value):
            yield from _placeholders(part, (*path, index))


def _fill(value: Json, parameters: Mapping[str, Json]) -> Json | _Absent:
    if isinstance(value, dict):
        if _is_placeholder(value):
            return parameters.get(str(value[PLACEHOLDER]), _ABSENT)
        return _present({key: _fill(part, parameters) for key, part in value.items()})
    if isinstance(value, list):
        return [part for each in value if not isinstance(part := _fill(each, parameters), _Absent)]
    return value


def _present(parts: Mapping[str, Json | _Absent]) -> dict[str, Json]:
    return {key: part for key, part in parts.items() if not isinstance(part, _Absent)}


def _join(value: Json, parameters: Mapping[str, Json], *, encode: bool = False) -> Json | _Absent:
    """One text of several pieces; absent if a parameter in it is."""
    if not isinstance(value, list):
        return _fill(value, parameters)
    pieces = []
    for part in value:
        piece = _fill(part, parameters)
        if isinstance(piece, _Absent):
            return _ABSENT
        text = piece if isinstance(piece, str) else msgspec.json.encode(piece).decode()
        pieces.append(_encode(text) if encode and _is_placeholder(part) else text)
    return "".join(pieces)


def _encode(text: str) -> str:
    # Two dots are a way upwards, and percent-encoding leaves dots alone.
    return quote(text, safe="") if text.strip(".") else text.replace(".", "%2E")
