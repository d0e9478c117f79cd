"""Request bodies: read up to a limit, decoded strictly, with every mistake named by its place."""

import re
from typing import Final, TypeVar

import msgspec
from litestar.exceptions import InternalServerException

from attune.api.errors import AnyRequest, BadRequest, TooLarge, WrongMediaType
from attune.domain.errors import FieldError, Invalid
from attune.domain.json_schema import find_document_errors
from attune.domain.json_values import DEPTH_MAX, Json, find_unstorable, join_pointer

T = TypeVar("T")

# What arrives beyond the limit is read and thrown away up to here, so that the client gets to see the answer
# instead of a broken connection.
DRAIN_MAX_BYTES: Final = 64 * 1024 * 1024
_BYTE_POSITION: Final = re.compile(r"\(byte (\d+)\)")
_PATH: Final = re.compile(r"^(?P<message>.*?)(?: - at `(?P<path>.+)`)?$", re.DOTALL)
_PATH_PART: Final = re.compile(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]")


class NoBody(msgspec.Struct, forbid_unknown_fields=True):
    """For routes that take none; an empty object is as good as nothing."""


async def read_body(request: AnyRequest, *, bytes_max: int) -> bytes:
    """Everything the client sends, unless it is more than the limit."""
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > bytes_max and "expect" in request.headers:
        raise _too_large(bytes_max)  # The client waits for our word before it sends anything.
    chunks: list[bytes] = []
    size = 0
    try:
        async for chunk in request.stream():
            size += len(chunk)
            if size <= bytes_max:
                chunks.append(chunk)
            else:
                chunks.clear()
            if size > DRAIN_MAX_BYTES:
                break
    except InternalServerException as error:
        # The framework's word for a client that is gone: no fault of ours, and nobody is there to hear the answer.
        raise BadRequest("the connection broke off before the request was whole") from error
    if size > bytes_max:
        raise _too_large(bytes_max)
    return b"".join(chunks)


def _too_large(bytes_max: int) -> TooLarge:
    return TooLarge(f"the body is larger than {bytes_max} bytes, the limit set by api.body_max_bytes")


def check_media_type(request: AnyRequest) -> None:
    """Refuse bodies that are not declared as JSON."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json" and not re.fullmatch(r"application/[\w.-]+\+json", media_type):
        shown = media_type[:100] or "nothing"
        raise WrongMediaType(f"the body must be JSON: send Content-Type: application/json, not {shown}")


def decode_body(body: bytes, shape: type[T]) -> T:
    """The body as a value of this shape, or every reason why it is none."""
    try:
        value = msgspec.json.decode(body, type=shape)
    except msgspec.ValidationError as error:
        raise _explain_shape(body, shape, error) from error
    except RecursionError as error:
        raise _too_deep() from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _explain_json(body, error) from error
    # Only an escape can bring these characters in, so a body without one need not be searched.
    if b"\\u0000" in body or b"\\ud" in body.lower():
        _refuse_unstorable(body)
    return value


def _refuse_unstorable(body: bytes) -> None:
    found = find_unstorable(msgspec.json.decode(body), bytes_max=len(body) * 2)
    if found:
        raise Invalid(f"the body holds what cannot be stored: {_sentence(found[0])}", code="bad_text", fields=found)


def _explain_json(body: bytes, error: Exception) -> BadRequest:
    if not body:
        return BadRequest("the body is empty; JSON is expected", code="bad_json")
    match = _BYTE_POSITION.search(str(error))
    offset = min(int(match[1]), len(body)) if match else len(body)
    line = body.count(b"\n", 0, offset) + 1
    column = offset - (body.rfind(b"\n", 0, offset) + 1) + 1
    reason = "it ends too early" if "truncated" in str(error) else _reason(error)
    return BadRequest(f"the body is not JSON: line {line}, column {column}: {reason}", code="bad_json")


def _reason(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8"
    return _BYTE_POSITION.sub("", str(error)).removeprefix("JSON is malformed:").strip()


def _explain_shape(body: bytes, shape: type[T], error: msgspec.ValidationError) -> Invalid:
    """The decoder stops at the first mistake; the schema finds all of them."""
    try:
        document = msgspec.json.decode(body)
    except RecursionError as deep:
        raise _too_deep() from deep
    except (msgspec.DecodeError, UnicodeDecodeError) as malformed:
        raise _explain_json(body, malformed) from malformed
    fields = find_unstorable(document, bytes_max=len(body) * 2)
    fields = fields or find_document_errors(schema_of(shape), document) or [_first_mistake(error)]
    more = f" (and {len(fields) - 1} more)" if len(fields) > 1 else ""
    return Invalid(f"the body is wrong: {_sentence(fields[0])}{more}", code="bad_body", fields=fields)


def _too_deep() -> BadRequest:
    return BadRequest(f"the JSON is nested deeper than {DEPTH_MAX} levels", code="bad_json")


def schema_of(shape: type[T]) -> dict[str, Json]:
    """The JSON Schema of a shape, its own part written out, so that a mistyped key finds the nearest."""
    schema = msgspec.json.schema(shape, schema_hook=describe_any)
    name = schema.get("$ref", "").rpartition("/")[2]
    return {**schema["$defs"][name], "$defs": schema["$defs"]} if name else schema


def describe_any(kind: type) -> dict[str, Json]:
    """The schema of what may be any JSON value; nothing else is unknown to the generator."""
    if kind is not object:
        raise NotImplementedError
    return {"title": "Any JSON value"}


def _sentence(field: FieldError) -> str:
    return f"{field.pointer.lstrip('/').replace('/', '.')} {field.message}".strip()


def _first_mistake(error: msgspec.ValidationError) -> FieldError:
    match = _PATH.match(str(error))
    path = (match["path"] if match else None) or "$"
    parts = [name or index for name, index in _PATH_PART.findall(path)]
    return FieldError(pointer=join_pointer(parts), message=match["message"] if match else str(error))
