"""Puts settings together: defaults, then files, then environment, then flags; or says all that is wrong."""

import os
import types
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, cast

import platformdirs

from attune.runtime.settings.declare import Setting, build_section
from attune.runtime.settings.problems import Problem, SettingsError
from attune.runtime.settings.resolve import NEW_NAME, OLD_NAME, known_settings, resolve_key
from attune.runtime.settings.schema import Settings
from attune.runtime.settings.sources import Given, Layer, find_file, read_environment, read_file, read_flags
from attune.runtime.settings.values import BadValue, read_label_name, read_value

DEFAULT_ORIGIN: Final = "default"
NO_FLAGS: Final[Mapping[str, object]] = types.MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedSettings:
    """The settings of this process, where each came from, and what deserves a warning in the log."""

    home: Path
    settings: Settings
    values: Mapping[str, object]
    origins: Mapping[str, str]
    warnings: tuple[str, ...]


@dataclass(slots=True, kw_only=True)
class _Gathered:
    """What the layers read so far amount to; a later layer replaces an earlier one."""

    values: dict[str, object] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def find_home(environment: Mapping[str, str]) -> Path:
    """The directory that holds everything: ATTUNE_HOME, or the usual place for this user."""
    chosen = environment.get("ATTUNE_HOME")
    if chosen:
        return Path(chosen).expanduser().absolute()
    if os.geteuid() == 0:
        return Path("/var/lib/attune")
    return platformdirs.user_data_path("attune", appauthor=False)


def load_settings(
    *,
    environment: Mapping[str, str],
    config_file: Path | None = None,
    flags: Mapping[str, object] = NO_FLAGS,
    also_look_in: Sequence[Path] = (),
) -> LoadedSettings:
    """Read all sources; raises SettingsError with every problem found.

    `also_look_in` names further directories for `config.{environment}.yaml`, tried after the one
    beside the configuration file.
    """
    home = find_home(environment)
    base = config_file or home / "config.yaml"
    base_layer = (find_file(base) or Layer()) if config_file is None else read_file(base)
    above = [read_environment(environment), read_flags(flags)]
    chosen = _chosen_environment([base_layer, *above])
    selected = Layer() if chosen is None else _read_selected(chosen, [base.parent, *also_look_in])
    gathered = _gather([base_layer, selected, *above])
    _check_together(gathered)
    if gathered.problems:
        raise SettingsError(tuple(gathered.problems))
    return _complete(home, gathered)


def _complete(home: Path, gathered: _Gathered) -> LoadedSettings:
    known = known_settings()
    values = {key: gathered.values.get(key, one.default) for key, one in known.items()}
    return LoadedSettings(
        home=home,
        settings=build_section(Settings, gathered.values),
        values=types.MappingProxyType(values),
        origins=types.MappingProxyType({key: gathered.origins.get(key, DEFAULT_ORIGIN) for key in known}),
        warnings=tuple(gathered.warnings),
    )


def _chosen_environment(layers: Iterable[Layer]) -> Given | None:
    """The name that selects the second file; the last source that names one wins."""
    named = [one for layer in layers for one in layer.given if one.key == "environment" and one.text]
    return named[-1] if named else None


def _read_selected(chosen: Given, directories: Sequence[Path]) -> Layer:
    """Read the file the environment selects; its absence is an error, for a typing mistake would be silent."""
    try:
        read_value(known_settings()["environment"], chosen)
    except BadValue:
        return Layer()  # Reported once, when the value itself is gathered.
    name = f"config.{chosen.text}.yaml"
    for directory in directories:
        found = find_file(directory / name)
        if found is not None:
            return found
    looked = ", ".join(str(directory) for directory in directories)
    reason = f"selects {name}, which is not in {looked}"
    return Layer(problems=(Problem(key="environment", origin=chosen.origin, reason=reason),))


def _gather(layers: Iterable[Layer]) -> _Gathered:
    gathered = _Gathered()
    for layer in layers:
        gathered.problems.extend(layer.problems)
        _gather_layer(gathered, layer)
    return gathered


def _gather_layer(gathered: _Gathered, layer: Layer) -> None:
    keys = {one.key for one in layer.given}
    for one in layer.given:
        try:
            if one.key == OLD_NAME:
                gathered.warnings.append(f"{one.origin}: {OLD_NAME} is deprecated; use {NEW_NAME}, in milliseconds")
                if NEW_NAME in keys:
                    continue
            _take(gathered, resolve_key(one, keys))
        except BadValue as error:
            gathered.problems.append(Problem(key=one.key, origin=one.origin, reason=str(error)))


def _take(gathered: _Gathered, resolved: tuple[Setting, Given] | None) -> None:
    if resolved is None:
        return
    target, given = resolved
    if target.type is Mapping and given.key != target.key:
        before = cast("Mapping[str, str]", gathered.values.get(target.key, target.default))
        name = read_label_name(given.key.removeprefix(f"{target.key}."))
        gathered.values[target.key] = types.MappingProxyType({**before, name: given.text or ""})
    else:
        gathered.values[target.key] = read_value(target, given)
    gathered.origins[target.key] = given.origin


def _check_together(gathered: _Gathered) -> None:
    """Rules between two settings."""
    known = known_settings()
    above, below = (
        cast("int", gathered.values.get(key, known[key].default))
        for key in ("outbox.refuse_above", "outbox.accept_below")
    )
    if below >= above:
        origin = gathered.origins.get(
            "outbox.accept_below", gathered.origins.get("outbox.refuse_above", DEFAULT_ORIGIN)
        )
        reason = f"must be below outbox.refuse_above ({above}), not {below}"
        gathered.problems.append(Problem(key="outbox.accept_below", origin=origin, reason=reason))
