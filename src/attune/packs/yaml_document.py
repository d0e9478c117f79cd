"""YAML 1.2 files as JSON values that remember where each part stands.

libyaml splits the text into events; what they mean is decided here, by the core schema of YAML 1.2: `no` and `on` are
strings, octal is 0o17, a key given twice is an error. Tags are refused, and nothing can grow beyond its bound.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NoReturn

import yaml

from attune.domain.errors import Unavailable
from attune.domain.json_values import DEPTH_MAX, Json, join_pointer, split_pointer
from attune.packs.problems import BadPack, Problem
from attune.packs.yaml_scalars import read_scalar

BYTES_MAX = 1024 * 1024
# Counted after aliases are followed, so that a few lines cannot stand for millions of values.
NODES_MAX = 50_000
ALIASES_MAX = 100

_Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """A place in a file, counted from 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A file's value, and where each part of it stands by JSON pointer."""

    file: str
    value: Json
    values: Mapping[str, Position]
    keys: Mapping[str, Position]

    def position(self, pointer: str, *, of_key: bool = False) -> Position:
        """Where a part stands; of a part that is not there (a missing key, say), what would contain it."""
        known = {**self.values, **self.keys} if of_key else self.values
        parts = split_pointer(pointer)
        while parts and join_pointer(parts) not in known:
            parts.pop()
        return known.get(join_pointer(parts), Position(line=1, column=1))

    def problem(self, pointer: str, message: str, *, of_key: bool = False) -> Problem:
        place = self.position(pointer, of_key=of_key)
        return Problem(file=self.file, line=place.line, column=place.column, pointer=pointer, message=message)


def read_document(content: bytes, *, file: str) -> Document:
    """Read one YAML document, or raise `BadPack` with everything that is wrong with its text."""
    if not yaml.__with_libyaml__:
        raise Unavailable(
            "PyYAML was built without libyaml; install a PyYAML wheel, or libyaml's headers and rebuild it"
        )
    if len(content) > BYTES_MAX:
        raise BadPack([Problem(file=file, message=f"is {len(content)} bytes long; at most {BYTES_MAX} are read")])
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadPack([Problem(file=file, message=f"is not UTF-8 (byte {error.start})")]) from error
    builder = _Builder(file)
    try:
        value = builder.build(iter(yaml.parse(text, Loader=yaml.CBaseLoader)))
    except _TooMuch as error:
        raise BadPack(builder.problems) from error
    except yaml.YAMLError as error:
        raise BadPack([*builder.problems, _syntax_problem(file, error)]) from error
    if builder.problems:
        raise BadPack(builder.problems)
    return Document(file=file, value=value, values=builder.values, keys=builder.keys)


def _syntax_problem(file: str, error: yaml.YAMLError) -> Problem:
    mark = getattr(error, "problem_mark", None)
    what = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
    context = getattr(error, "context", None)
    message = f"is not YAML: {context + ': ' if context else ''}{what}"
    if mark is None:
        return Problem(file=file, message=message)
    return Problem(file=file, line=mark.line + 1, column=mark.column + 1, message=message)


class _TooMuch(Exception):
    """A bound was reached, so that nothing after it is read; the problem is already reported."""


class _Builder:
    """Turns events into values; gathers positions and problems on the way."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.values: dict[str, Position] = {}
        self.keys: dict[str, Position] = {}
        self.problems: list[Problem] = []
        self._anchors: dict[str, tuple[Json, int]] = {}
        self._nodes = 0
        self._aliases = 0

    def build(self, events: Iterator[yaml.Event]) -> Json:
        value: Json = None
        documents = 0
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    self._report(event, (), "a second document begins here; a file holds one")
                    break
                value = self._node(next(events), events, ())
        if not documents:
            self.problems.append(Problem(file=self.file, message="is empty"))
        return value

    def _node(self, event: yaml.Event, events: Iterator[yaml.Event], path: _Path) -> Json:
        self.values[join_pointer(path)] = _position(event)
        if isinstance(event, yaml.AliasEvent):
            return self._follow(event, path)
        self._count(1, event)
        if len(path) > DEPTH_MAX:
            self._give_up(event, f"nested deeper than {DEPTH_MAX} levels")
        if tag := getattr(event, "tag", None):
            self._report(event, path, f"the tag {tag!r} is not supported; write the value without it")
        before = self._nodes
        value = self._content(event, events, path)
        if anchor := getattr(event, "anchor", None):
            # Known only when complete, so that no value can contain itself.
            self._anchors[anchor] = (value, self._nodes - before + 1)
        return value

    def _content(self, event: yaml.Event, events: Iterator[yaml.Event], path: _Path) -> Json:
        if isinstance(event, yaml.MappingStartEvent):
            return self._mapping(events, path)
        if isinstance(event, yaml.SequenceStartEvent):
            return self._sequence(events, path)
        try:
            return read_scalar(event.value, plain=event.implicit[0]) if isinstance(event, yaml.ScalarEvent) else None
        except ValueError as error:
            self._report(event, path, str(error))
            return None

    def _sequence(self, events: Iterator[yaml.Event], path: _Path) -> Json:
        items: list[Json] = []
        for event in events:
            if isinstance(event, yaml.SequenceEndEvent):
                break
            items.append(self._node(event, events, (*path, len(items))))
        return items

    def _mapping(self, events: Iterator[yaml.Event], path: _Path) -> Json:
        entries: dict[str, Json] = {}
        for event in events:
            if isinstance(event, yaml.MappingEndEvent):
                break
            key = self._key(event, events, path)
            where = (*path, key)
            if key in entries:
                first = self.keys[join_pointer(where)]
                self._report(event, where, f"the key {key!r} is given twice; first in line {first.line}")
            else:
                self.keys[join_pointer(where)] = _position(event)
            entries[key] = self._node(next(events), events, where)
        return entries

    def _key(self, event: yaml.Event, events: Iterator[yaml.Event], path: _Path) -> str:
        key = self._node(event, events, (*path, ""))
        if isinstance(event, yaml.ScalarEvent) and event.value == "<<" and event.implicit[0]:
            self._report(event, path, "merge keys (<<) are not part of YAML 1.2; write the keys out")
        elif not isinstance(key, str):
            shown = event.value if isinstance(event, yaml.ScalarEvent) else "this"
            self._report(event, path, f"a key must be a string; write {shown!r} in quotes")
        return key if isinstance(key, str) else f"?{len(self.problems)}"

    def _follow(self, event: yaml.AliasEvent, path: _Path) -> Json:
        self._aliases += 1
        if self._aliases > ALIASES_MAX:
            self._give_up(event, f"more than {ALIASES_MAX} aliases")
        if event.anchor not in self._anchors:
            self._report(event, path, f"the alias *{event.anchor} names nothing that is complete before it")
            return None
        value, size = self._anchors[event.anchor]
        self._count(size, event)
        return value

    def _count(self, nodes: int, event: yaml.Event) -> None:
        self._nodes += nodes
        if self._nodes > NODES_MAX:
            self._give_up(event, f"more than {NODES_MAX} values")

    def _give_up(self, event: yaml.Event, message: str) -> NoReturn:
        self._report(event, (), message)
        raise _TooMuch

    def _report(self, event: yaml.Event, path: _Path, message: str) -> None:
        place = _position(event)
        problem = Problem(
            file=self.file, line=place.line, column=place.column, pointer=join_pointer(path), message=message
        )
        self.problems.append(problem)


def _position(event: yaml.Event) -> Position:
    mark = event.start_mark
    return Position(line=mark.line + 1, column=mark.column + 1) if mark else Position(line=1, column=1)
