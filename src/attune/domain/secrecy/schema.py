"""Where a parameter schema says `secret: true`, and which values of a document that is about.

Whatever a schema might mean by a branch, all of its branches count: sealing too much is better than too little.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias
from urllib.parse import unquote

import msgspec

from attune.domain.errors import FieldError
from attune.domain.json_values import Json, join_pointer, split_pointer

KEYWORD = "secret"
Path = tuple[str | int, ...]
Node: TypeAlias = "Json | Mapping[str, Json]"

# Where schemas stand below a schema: under each name of a mapping, in a list, or alone.
_BY_NAME = ("properties", "patternProperties", "dependentSchemas", "$defs", "definitions")
_IN_LIST = ("allOf", "anyOf", "oneOf", "prefixItems")
_ALONE = ("items", "additionalProperties", "unevaluatedProperties", "unevaluatedItems", "contains", "propertyNames")
_BRANCHES = ("not", "if", "then", "else")
# What these hold is a value that everybody who reads the pack can read.
_VALUES = ("default", "const", "enum", "examples")


def find_secrets(schema: Mapping[str, Json], document: Mapping[str, Json]) -> list[Path]:
    """The places in a document that hold a secret, none below another."""
    if not mentions_secrets(schema):
        return []
    search = _Search(root=schema)
    if search.is_secret(schema):
        return [(name,) for name in document]  # Parameters stay an object: each of them is secret instead.
    return list(search.below([schema], document, ()))


def mentions_secrets(schema: Mapping[str, Json]) -> bool:
    """A quick look that spares most schemas the long one."""
    return b'"secret":true' in msgspec.json.encode(schema)


def is_secret_at(schema: Mapping[str, Json], path: Sequence[str]) -> bool:
    """Whether a value at this place would be a secret, or be part of one, or hold one."""
    document: Json = None
    for name in reversed(path):
        document = {name: document}
    return isinstance(document, dict) and bool(find_secrets(schema, document))


def find_secrecy_errors(schema: Mapping[str, Json]) -> list[FieldError]:
    """Everything a schema says about secrets that cannot be kept."""
    errors = []
    if schema.get(KEYWORD) is True:
        errors.append(FieldError(pointer="/secret", message="mark each secret property, not the parameters as a whole"))
    for path, part in _list_schemas(schema, ()):
        stated = part.get(KEYWORD)
        if stated is not None and not isinstance(stated, bool):
            errors.append(FieldError(pointer=join_pointer([*path, KEYWORD]), message="must be true or false"))
        errors += [
            FieldError(pointer=join_pointer([*path, name]), message="a secret must not stand in its own schema")
            for name in _VALUES
            if name in part and (stated is True or (name == "default" and _holds_secret(schema, part)))
        ]
    return errors


def _holds_secret(root: Mapping[str, Json], part: Mapping[str, Json]) -> bool:
    search = _Search(root=root)
    default = part["default"]
    return search.is_secret(part) or any(True for _ in search.below([part], default, ()))


def _list_schemas(schema: Node, path: Path) -> Iterator[tuple[Path, Mapping[str, Json]]]:
    """Every schema within a schema, itself included."""
    if not isinstance(schema, Mapping):
        return
    yield path, schema
    for keyword, value in schema.items():
        if keyword in _BY_NAME and isinstance(value, dict):
            for name, part in value.items():
                yield from _list_schemas(part, (*path, keyword, name))
        elif keyword in _IN_LIST and isinstance(value, list):
            for index, part in enumerate(value):
                yield from _list_schemas(part, (*path, keyword, index))
        elif keyword in (*_ALONE, *_BRANCHES):
            yield from _list_schemas(value, (*path, keyword))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Search:
    """One walk through a document beside its schema."""

    root: Mapping[str, Json]

    def below(self, schemas: Sequence[Node], value: Node, path: Path) -> Iterator[Path]:
        """The secrets below a value to which these schemas apply."""
        applying = [each for schema in schemas for each in self._applying(schema, set())]
        for key, child in _members(value):
            parts = [part for schema in applying for part in _parts(schema, key)]
            if any(self.is_secret(part) for part in parts):
                yield (*path, key)
            elif parts:
                yield from self.below(parts, child, (*path, key))

    def is_secret(self, schema: Node) -> bool:
        return any(each.get(KEYWORD) is True for each in self._applying(schema, set()))

    def _applying(self, schema: Node, seen: set[int]) -> Iterator[Mapping[str, Json]]:
        """The schema and all its branches for the same value; a reference in a circle ends where it began."""
        if not isinstance(schema, Mapping) or id(schema) in seen:
            return
        seen.add(id(schema))
        yield schema
        for keyword in ("$ref", "$dynamicRef"):
            yield from self._applying(self._resolve(schema.get(keyword)), seen)
        for branch in _list_branches(schema):
            yield from self._applying(branch, seen)

    def _resolve(self, reference: Json) -> Node:
        if not isinstance(reference, str) or not reference.startswith("#"):
            return None
        if reference == "#":
            return self.root
        if not reference.startswith("#/"):
            return self._find_anchor(reference[1:])
        found: Node = self.root
        for name in split_pointer(unquote(reference[1:])):
            if isinstance(found, list):
                found = found[int(name)] if name.isdecimal() and int(name) < len(found) else None
            else:
                found = found.get(name) if isinstance(found, Mapping) else None
        return found

    def _find_anchor(self, name: str) -> Node:
        for _, part in _list_schemas(self.root, ()):
            if name in (part.get("$anchor"), part.get("$dynamicAnchor")):
                return part
        return None


def _list_branches(schema: Mapping[str, Json]) -> Iterator[Json]:
    for keyword in ("allOf", "anyOf", "oneOf"):
        branches = schema.get(keyword)
        yield from branches if isinstance(branches, list) else ()
    for keyword in _BRANCHES:
        yield schema.get(keyword)
    dependent = schema.get("dependentSchemas")
    yield from dependent.values() if isinstance(dependent, dict) else ()


def _members(value: Node) -> Sequence[tuple[str | int, Json]]:
    if isinstance(value, Mapping):
        return list(value.items())
    return list(enumerate(value)) if isinstance(value, list) else ()


def _parts(schema: Mapping[str, Json], key: str | int) -> Iterator[Json]:
    """The schemas that say something about one member of a value."""
    if isinstance(key, int):
        first = schema.get("prefixItems")
        if isinstance(first, list) and key < len(first):
            yield first[key]
        for keyword in ("items", "contains", "unevaluatedItems"):
            yield schema.get(keyword)
        return
    named = schema.get("properties")
    if isinstance(named, dict) and key in named:
        yield named[key]
    else:
        yield schema.get("additionalProperties")
    patterns = schema.get("patternProperties")
    for pattern, part in patterns.items() if isinstance(patterns, dict) else ():
        if _may_match(pattern, key):
            yield part
    yield schema.get("unevaluatedProperties")


def _may_match(pattern: str, name: str) -> bool:
    try:
        return re.search(pattern, name) is not None
    except re.error:
        return True  # Another dialect of patterns than ours: it might match.
