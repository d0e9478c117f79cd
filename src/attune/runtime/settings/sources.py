"""Reads settings as text from YAML files, environment variables and flags, each with its origin.

Values stay text here: what a text means is decided by the type of the setting it is for, so `no` is
never a boolean and `010` never an octal number.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from attune.runtime.settings.problems import Problem

FILE_MAX_BYTES: Final = 1_048_576  # A larger file is refused: no configuration is that long.
NESTING_MAX: Final = 20  # Deeper nesting is refused; it also ends an alias that contains itself.
ENVIRONMENT_PREFIX: Final = "ATTUNE__"
_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """One value as somebody wrote it; `text` is None where they wrote nothing or null."""

    key: str
    text: str | None
    origin: str
    quoted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """Everything one source says, and what could not be read in it."""

    given: tuple[Given, ...] = ()
    problems: tuple[Problem, ...] = ()


def find_file(path: Path) -> Layer | None:
    """Read one YAML file; keys are flattened to dotted names. None if there is no such file."""
    try:
        with path.open("rb") as file:
            content = file.read(FILE_MAX_BYTES + 1)
        if len(content) > FILE_MAX_BYTES:
            return _unreadable(path, f"larger than {FILE_MAX_BYTES} bytes")
        root = yaml.compose(content.decode(), Loader=yaml.CSafeLoader)
    except FileNotFoundError:
        return None
    except OSError as error:
        return _unreadable(path, f"cannot be read: {error.strerror}")
    except UnicodeDecodeError:
        return _unreadable(path, "is not UTF-8 text")
    except yaml.YAMLError as error:
        return _unreadable(path, f"is not YAML: {_describe_yaml_error(error)}", _line_of_error(error))
    return Layer() if root is None else _read_root(path, root)


def read_file(path: Path) -> Layer:
    """Read a file that somebody asked for by name, so that it must exist."""
    found = find_file(path)
    return _unreadable(path, "does not exist") if found is None else found


def read_environment(environment: Mapping[str, str]) -> Layer:
    """Read `ATTUNE__SECTION__KEY` variables; the shorter ATTUNE_ENVIRONMENT counts as one of them."""
    named = {name: text for name, text in environment.items() if name.startswith(ENVIRONMENT_PREFIX)}
    given = [
        Given(key=name.removeprefix(ENVIRONMENT_PREFIX).replace("__", ".").lower(), text=text, origin=name)
        for name, text in sorted(named.items())
    ]
    short = environment.get("ATTUNE_ENVIRONMENT")
    if short and "ATTUNE__ENVIRONMENT" not in named:
        given.append(Given(key="environment", text=short, origin="ATTUNE_ENVIRONMENT"))
    return Layer(given=tuple(given))


def read_flags(flags: Mapping[str, object]) -> Layer:
    """Read values of the command line by dotted key; None means the flag was not used."""
    return Layer(
        given=tuple(
            Given(key=key, text=_text_of(value), origin=f"flag for {key}")
            for key, value in flags.items()
            if value is not None
        )
    )


def _text_of(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return ",".join(f"{name}={text}" for name, text in value.items())
    return str(value)


def _read_root(path: Path, root: yaml.Node) -> Layer:
    problems: list[Problem] = []
    given = tuple(_flatten(path, root, "", problems))
    return Layer(given=given, problems=tuple(problems))


def _flatten(path: Path, node: yaml.Node, prefix: str, problems: list[Problem]) -> Iterator[Given]:
    """Walk a mapping; what is neither mapping nor single value becomes a problem."""
    if isinstance(node, yaml.ScalarNode):
        quoted = bool(node.style)  # The C loader says "" for a plain value.
        text = None if not quoted and node.value in _NULLS else node.value
        if prefix or text is not None:
            yield Given(key=prefix, text=text, origin=_origin(path, node), quoted=quoted)
    elif not isinstance(node, yaml.MappingNode):
        problems.append(Problem(key=prefix, origin=_origin(path, node), reason="a list is not expected here"))
    elif prefix.count(".") >= NESTING_MAX:
        problems.append(Problem(key=prefix, origin=_origin(path, node), reason="nested too deeply"))
    else:
        yield from _flatten_mapping(path, node, prefix, problems)


def _flatten_mapping(path: Path, node: yaml.MappingNode, prefix: str, problems: list[Problem]) -> Iterator[Given]:
    first_lines: dict[str, int] = {}
    for name_node, value_node in node.value:
        name = str(name_node.value) if isinstance(name_node, yaml.ScalarNode) else "?"
        key = f"{prefix}.{name}" if prefix else name
        if name in first_lines:
            reason = f"given twice; first in line {first_lines[name]}"
            problems.append(Problem(key=key, origin=_origin(path, name_node), reason=reason))
            continue
        first_lines[name] = name_node.start_mark.line + 1
        yield from _flatten(path, value_node, key, problems)


def _origin(path: Path, node: yaml.Node) -> str:
    return f"{path}:{node.start_mark.line + 1}"


def _unreadable(path: Path, reason: str, line: int | None = None) -> Layer:
    origin = f"{path}:{line}" if line else str(path)
    return Layer(problems=(Problem(key="", origin=origin, reason=reason),))


def _line_of_error(error: yaml.YAMLError) -> int | None:
    mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
    return None if mark is None else mark.line + 1


def _describe_yaml_error(error: yaml.YAMLError) -> str:
    described = error.problem if isinstance(error, yaml.MarkedYAMLError) else None
    return described or str(error).splitlines()[0]
