"""How one setting is declared, and the flat list of all settings read off the section classes."""

import dataclasses
import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeVar, cast

T = TypeVar("T")

_RULES: Final = "attune.setting"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What is said about a setting beside its name, type and default."""

    doc: str
    minimum: float | None = None
    maximum: float | None = None
    pattern: re.Pattern[str] | None = None
    pattern_meaning: str = ""
    default_shown: str | None = None
    secret: bool = False


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One row of the table: everything a reader, the loader and the reference page need."""

    key: str
    type: type
    optional: bool
    default: object
    rules: Rules

    @property
    def environment_name(self) -> str:
        """Name of the environment variable that overrides this setting."""
        return environment_name(self.key)


def setting(default: T, rules: Rules) -> T:
    """Declare a field of a section; the type checker sees only its default."""
    return dataclasses.field(default=default, metadata={_RULES: rules})


def computed_setting(default: Callable[[], T], rules: Rules) -> T:
    """Declare a field whose default depends on the machine or must not be shared."""
    return dataclasses.field(default_factory=default, metadata={_RULES: rules})


def section(kind: type[T]) -> T:
    """Declare a field that is itself a section."""
    return dataclasses.field(default_factory=kind)


def environment_name(key: str) -> str:
    """Turn `executor.queue.max_queue_length` into its environment variable."""
    return "ATTUNE__" + key.replace(".", "__").upper()


def list_settings(kind: type, prefix: str = "") -> Iterator[Setting]:
    """Walk a section class and everything below it, in the order of declaration."""
    hints = typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        key = f"{prefix}{field.name}"
        rules = field.metadata.get(_RULES)
        if isinstance(rules, Rules):
            value_type, optional = _split_optional(hints[field.name])
            yield Setting(
                key=key,
                type=value_type,
                optional=optional,
                default=_default_of(field),
                rules=rules,
            )
        elif dataclasses.is_dataclass(hints[field.name]):
            yield from list_settings(hints[field.name], f"{key}.")


def build_section(kind: type[T], values: Mapping[str, object], prefix: str = "") -> T:
    """Build a section from flat values; what is not given keeps its default."""
    hints = typing.get_type_hints(kind)
    chosen: dict[str, object] = {}
    for field in dataclasses.fields(cast("type[typing.Any]", kind)):
        key = f"{prefix}{field.name}"
        if _RULES not in field.metadata and dataclasses.is_dataclass(hints[field.name]):
            chosen[field.name] = build_section(hints[field.name], values, f"{key}.")
        elif key in values:
            chosen[field.name] = values[key]
    return kind(**chosen)


def _default_of(field: "dataclasses.Field[object]") -> object:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def _split_optional(hint: object) -> tuple[type, bool]:
    """Separate `X | None` into X and True; a mapping is known by its origin."""
    if isinstance(hint, types.UnionType):
        (inner,) = [part for part in typing.get_args(hint) if part is not types.NoneType]
        return inner, True
    return cast("type", typing.get_origin(hint) or hint), False
