"""Takes secret values out of parameters before anything is written, and puts them back for whoever may have them."""

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from attune.domain.json_values import Json
from attune.domain.secrecy.schema import Path, find_secrets

# What stands in the place of a secret wherever parameters are shown.
MARKER = "********"


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """A secret value, and where it belongs."""

    path: Path
    value: Json

    def __repr__(self) -> str:
        return f"Taken(path={self.path!r})"


def take_secrets(schema: Mapping[str, Json], parameters: dict[str, Json]) -> tuple[dict[str, Json], list[Taken]]:
    """The parameters as they may be shown, and what was taken out of them."""
    places = find_secrets(schema, parameters)
    if not places:
        return parameters, []
    shown = copy.deepcopy(parameters)
    return shown, [Taken(path=path, value=_exchange(shown, path, MARKER)) for path in places]


def put_back(parameters: Mapping[str, Json], taken: Sequence[Taken]) -> dict[str, Json]:
    """The parameters as they were sent."""
    whole = copy.deepcopy(dict(parameters))
    for each in taken:
        _exchange(whole, each.path, each.value)
    return whole


def list_texts(value: Json) -> Iterator[str]:
    """Every text and number within a secret value: what an action could print of it."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from list_texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from list_texts(item)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield repr(value)


def _exchange(document: dict[str, Json], path: Path, value: Json) -> Json:
    """Put a value in its place; returns what was there."""
    holder: Json = document
    for part in path[:-1]:
        holder = holder[part]  # type: ignore[index]  # the path was found in this document
    before: Json = holder[path[-1]]  # type: ignore[index]  # as above
    holder[path[-1]] = value  # type: ignore[index]  # as above
    return before
