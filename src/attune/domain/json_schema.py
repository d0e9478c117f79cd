"""JSON Schema (draft 2020-12), always offline: is a schema sound, and what is wrong with a document.

Every error is found, not only the first, and none repeats the value it is about: it may be a secret.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

import msgspec
from jsonschema_rs import Draft202012Validator, ValidationError, ValidationErrorKind

from attune.domain.errors import FieldError
from attune.domain.json_values import ERRORS_MAX, Json, find_unstorable, join_pointer
from attune.domain.refs import did_you_mean, shown

DIALECT = "https://json-schema.org/draft/2020-12/schema"
SCHEMA_BYTES_MAX = 256 * 1024
# One compiled schema takes some tens of kilobytes; the least recently used one goes first.
COMPILED_MAX = 512
# How many ways out of an `anyOf` an error names.
BRANCHES_SHOWN_MAX = 3

# What stands under these keys is a value, not a schema; a "$ref" there is only text.
_VALUE_KEYWORDS = frozenset({"const", "default", "enum", "examples"})
_TYPE_NAMES = {
    "array": "a list",
    "boolean": "true or false",
    "integer": "an integer",
    "null": "null",
    "number": "a number",
    "object": "an object",
    "string": "a string",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownKey(FieldError):
    """The key itself is wrong, not the value below it: files show the position of the key."""


def find_schema_errors(schema: object) -> list[FieldError]:
    """Everything wrong with a schema; its pointers lead into the schema."""
    if unstorable := find_unstorable(schema, bytes_max=SCHEMA_BYTES_MAX):
        return unstorable
    if not isinstance(schema, dict):
        return [FieldError(pointer="", message="must be a JSON Schema, that is an object")]
    errors = [*_find_foreign(schema, ()), *find_document_errors({"$ref": DIALECT}, schema)]
    if not errors:
        # What the schema of schemas cannot say, such as a "#/$defs/x" that leads nowhere.
        try:
            _compile(_encode(schema))
        except ValidationError as error:
            errors.append(FieldError(pointer=join_pointer(error.instance_path), message=error.message))
    return errors


def find_document_errors(schema: Mapping[str, Json], document: object) -> list[FieldError]:
    """Everything wrong with a document; the schema must be sound and the document storable."""
    found = _compile(_encode(schema)).iter_errors(document)
    return [error for each in islice(found, ERRORS_MAX) for error in _explain(each, schema, document)]


@lru_cache(maxsize=COMPILED_MAX)
def _compile(encoded: bytes) -> Draft202012Validator:
    # offline: a "$ref" to http: or file: would otherwise be fetched by whoever validates.
    return Draft202012Validator(msgspec.json.decode(encoded), offline=True, validate_formats=True, mask="the value")


def _encode(schema: object) -> bytes:
    return msgspec.json.encode(schema, order="deterministic")


def _find_foreign(node: object, path: tuple[str | int, ...]) -> Iterator[FieldError]:
    if isinstance(node, list):
        for index, item in enumerate(node):
            yield from _find_foreign(item, (*path, index))
    if not isinstance(node, dict):
        return
    for key, value in node.items():
        where = (*path, key)
        if key in ("$ref", "$dynamicRef") and isinstance(value, str) and not value.startswith("#"):
            message = f"{shown(value)} leads out of this schema; only references that begin with # are followed"
            yield FieldError(pointer=join_pointer(where), message=message)
        elif key == "$schema" and isinstance(value, str) and value.rstrip("#") != DIALECT:
            yield FieldError(pointer=join_pointer(where), message=f"only draft 2020-12 is understood: {DIALECT}")
        elif key not in _VALUE_KEYWORDS:
            yield from _find_foreign(value, where)


def _explain(error: ValidationError, schema: Mapping[str, Json], document: object) -> Iterator[FieldError]:
    path, kind = error.instance_path, error.kind
    if isinstance(kind, ValidationErrorKind.AdditionalProperties | ValidationErrorKind.UnevaluatedProperties):
        known = _at(schema, [*error.schema_path[:-1], "properties"])
        for name in kind.unexpected:
            hint = did_you_mean(name, known) if isinstance(known, dict) else ""
            yield UnknownKey(pointer=join_pointer([*path, name]), message=f"unknown key {shown(name)}{hint}")
        return
    yield FieldError(pointer=join_pointer(path), message=_describe(error, document))


def _describe(error: ValidationError, document: object) -> str:
    kind, value = error.kind, _at(document, error.instance_path)
    if isinstance(kind, ValidationErrorKind.Required):
        return f"the key {shown(kind.property)} is missing"
    if isinstance(kind, ValidationErrorKind.Type):
        return f"must be {' or '.join(_TYPE_NAMES[name] for name in kind.types)}, not {_type_of(value)}"
    if isinstance(kind, ValidationErrorKind.Enum):
        options = [str(option) for option in kind.options]
        hint = did_you_mean(value, options) if isinstance(value, str) else ""
        return f"must be one of {', '.join(options)}{hint}"
    if isinstance(kind, ValidationErrorKind.AnyOf | ValidationErrorKind.OneOfNotValid):
        branches = [_describe(branch[0], document) for branch in kind.context[:BRANCHES_SHOWN_MAX] if branch]
        return "; or ".join(branches) or error.message
    return error.message


def _type_of(value: object) -> str:
    if value is None:
        return "null"
    names = {bool: "true or false", int: "an integer", float: "a number", str: "a string", list: "a list"}
    return names.get(type(value), "an object")


def _at(document: object, path: Sequence[str | int]) -> object:
    """The part of a document that a path leads to, or None where it leads nowhere."""
    for part in path:
        if isinstance(document, dict):
            document = document.get(str(part))
        elif isinstance(document, list) and isinstance(part, int) and part < len(document):
            document = document[part]
        else:
            return None
    return document
