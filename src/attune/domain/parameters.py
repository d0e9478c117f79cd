"""What a caller hands to an action: checked against the action's schema, completed with its defaults.

The order matters: bounds first (a later step may recurse), then defaults, then the schema.
"""

import copy
import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from attune.domain.errors import FieldError, Invalid
from attune.domain.json_schema import find_document_errors, find_schema_errors
from attune.domain.json_values import DEPTH_MAX, Json, find_unstorable, join_pointer, split_pointer
from attune.domain.secrecy.schema import find_secrecy_errors

PARAMETERS_BYTES_MAX = 1024 * 1024
ARGUMENTS_MAX = 1000


class BadParameters(Invalid):
    """The parameters do not satisfy the action's schema."""

    code = "bad_parameters"


class BadSchema(Invalid):
    """A schema that cannot be used to check anything."""

    code = "bad_schema"


def check_schema(schema: object) -> None:
    """Refuse a schema for parameters or output that is unsound or not about an object."""
    if errors := find_parameter_schema_errors(schema):
        raise BadSchema("the schema is not usable", fields=errors)


def find_parameter_schema_errors(schema: object) -> list[FieldError]:
    """Everything wrong with a schema for parameters, defaults that break it included."""
    if errors := find_schema_errors(schema):
        return errors
    if not isinstance(schema, dict):
        return [FieldError(pointer="", message="must be an object")]
    if schema.get("type", "object") != "object":
        return [FieldError(pointer="/type", message="must be object: parameters are always named")]
    # Secrets first: the message about a bad default must not be about one of them.
    return find_secrecy_errors(schema) or _find_bad_defaults(schema)


def validate_parameters(schema: Mapping[str, Json], parameters: object) -> dict[str, Json]:
    """The parameters an execution will see: the caller's, completed with the schema's defaults."""
    if not isinstance(parameters, dict):
        raise BadParameters(
            "the parameters must be an object", fields=[FieldError(pointer="", message="must be an object")]
        )
    errors = find_unstorable(parameters, bytes_max=PARAMETERS_BYTES_MAX)
    if not errors:
        completed = apply_defaults(schema, parameters)
        errors = find_document_errors(schema, completed)
        if not errors:
            return completed
    raise BadParameters(_summarise(errors), fields=errors)


def validate_output(schema: Mapping[str, Json], output: object) -> list[FieldError]:
    """Everything about an action's result that its output schema does not allow."""
    return find_unstorable(output) or find_document_errors(schema, output)


def apply_defaults(schema: Mapping[str, Json], document: Mapping[str, Json]) -> dict[str, Json]:
    """A copy of the document with each missing property that has a default, in objects below it too."""
    return _complete(schema, schema, document, DEPTH_MAX)


def parse_arguments(schema: Mapping[str, Json], arguments: Iterable[str]) -> dict[str, Json]:
    """Read `name=value` words as the schema's types: `n=1`, `flag=true`, `list=[1,2]`, `text=1`."""
    parsed: dict[str, Json] = {}
    errors: list[FieldError] = []
    for count, argument in enumerate(arguments, start=1):
        name, separator, text = argument.partition("=")
        if count > ARGUMENTS_MAX:
            raise BadParameters(f"more than {ARGUMENTS_MAX} arguments")
        if not separator or not name:
            errors.append(FieldError(pointer="", message=f"{argument!r} is not name=value"))
        elif name in parsed:
            errors.append(FieldError(pointer=join_pointer([name]), message="is given twice"))
        else:
            try:
                parsed[name] = _parse_value(_types_of(schema, name), text)
            except ValueError as error:
                errors.append(FieldError(pointer=join_pointer([name]), message=str(error)))
    if errors:
        raise BadParameters(_summarise(errors), fields=errors)
    return parsed


def _complete(
    root: Mapping[str, Json], schema: Mapping[str, Json], document: Mapping[str, Json], depth: int
) -> dict[str, Json]:
    completed = dict(document)
    properties = schema.get("properties")
    if not isinstance(properties, dict) or depth == 0:
        return completed
    for name, stated in properties.items():
        part = _resolve(root, stated)
        if name not in completed and "default" in part:
            # A copy, or a caller that changes its parameters would change the schema.
            completed[name] = copy.deepcopy(part["default"])
        value = completed.get(name)
        if isinstance(value, dict):
            completed[name] = _complete(root, part, value, depth - 1)
    return completed


def _resolve(root: Mapping[str, Json], schema: Json) -> Mapping[str, Json]:
    """The schema that a "$ref" within the same document leads to, with the keywords beside it on top."""
    beside: dict[str, Json] = {}
    for _ in range(DEPTH_MAX):
        if not isinstance(schema, dict):
            return beside
        beside = {**schema, **beside}
        reference = schema.get("$ref")
        if not isinstance(reference, str) or not reference.startswith("#/"):
            return beside
        schema = _look_up(root, split_pointer(reference[1:]))
    return beside


def _look_up(document: Json | Mapping[str, Json], path: Sequence[str]) -> Json:
    found: object = document
    for part in path:
        found = found.get(part) if isinstance(found, Mapping) else None
    return found if isinstance(found, dict) else None


def _find_bad_defaults(schema: Mapping[str, Json]) -> list[FieldError]:
    properties = schema.get("properties")
    errors: list[FieldError] = []
    for name, part in (properties if isinstance(properties, dict) else {}).items():
        if not isinstance(part, dict) or "default" not in part:
            continue
        for error in find_document_errors(schema, {name: part["default"]}):
            # Other properties that are missing here say nothing about this default.
            if split_pointer(error.pointer)[:1] == [name]:
                pointer = join_pointer(["properties", name, "default"])
                errors.append(
                    FieldError(pointer=pointer, message=f"the default breaks its own schema: {error.message}")
                )
    return errors


def _types_of(schema: Mapping[str, Json], name: str) -> list[str]:
    properties = schema.get("properties")
    part = _resolve(schema, properties.get(name) if isinstance(properties, dict) else None)
    stated = part.get("type")
    if isinstance(stated, str):
        return [stated]
    return [each for each in stated if isinstance(each, str)] if isinstance(stated, list) else []


def _parse_value(types: Sequence[str], text: str) -> Json:
    if not types:
        # Nothing is known about it: what reads as JSON is JSON, everything else is text.
        return _parse_untyped(text)
    for name in sorted(types, key=_ATTEMPT_ORDER.index):
        found, value = _parse_as(name, text)
        if found:
            return value
    raise ValueError(f"cannot be read as {' or '.join(types)}")


_ATTEMPT_ORDER = ("null", "boolean", "integer", "number", "array", "object", "string")
_WORDS: dict[str, Mapping[str, Json]] = {"null": {"null": None, "": None}, "boolean": {"true": True, "false": False}}
_JSON_TYPES: dict[str, tuple[type, ...]] = {"number": (int, float), "array": (list,), "object": (dict,)}


def _parse_as(name: str, text: str) -> tuple[bool, Json]:
    if name == "string":
        return True, text
    if name in _WORDS:
        return text in _WORDS[name], _WORDS[name].get(text)
    if name == "integer":
        # The bound keeps int() from refusing, or taking quadratic time over, thousands of digits.
        return (True, int(text)) if re.fullmatch(r"[-+]?[0-9]{1,300}", text) else (False, None)
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return False, None
    return isinstance(value, _JSON_TYPES[name]) and not isinstance(value, bool), value


def _parse_untyped(text: str) -> Json:
    try:
        value: Json = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text
    return value


def _summarise(errors: Sequence[FieldError]) -> str:
    first = errors[0]
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return f"{first.pointer.lstrip('/') or 'parameters'}: {first.message}{more}"
