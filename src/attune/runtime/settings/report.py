"""Shows settings to people: what is in force and why, and the reference page of all there is."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from attune.runtime.secret import MASK, Secret, mask_url_password
from attune.runtime.settings.declare import Setting
from attune.runtime.settings.load import LoadedSettings
from attune.runtime.settings.resolve import known_settings
from attune.runtime.settings.values import describe_type

_HEAD: Final = """\
# Settings

<!-- Generated: edit the declarations, then `python -m attune.runtime.settings > docs/reference/settings.md`. -->

Settings come from, each overriding the one before: defaults, `config.yaml` in the home (or `--config FILE`),
`config.{environment}.yaml` beside it, environment variables, flags. `attune config show --origin` prints what is
in force and where it came from. An unknown key, a wrong type or a value out of range stops the start.

The home is `ATTUNE_HOME`; by default `/var/lib/attune` for root, else `$XDG_DATA_HOME/attune`.

A setting marked *secret* may also be given as a file: add `_file` to its key, or `_FILE` to its variable, and name
the file. Line breaks at its end are not part of the secret.

`executor.worker_queue_ttl`, in seconds, is the older name of `message_queue.rabbitmq.worker_queue_ttl_ms`; it is
still read, with a warning.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingLine:
    """One line of `attune config show`."""

    key: str
    value: str
    origin: str


def describe_settings(loaded: LoadedSettings) -> list[SettingLine]:
    """What is in force, secrets masked, with the origin of each value."""
    return [
        SettingLine(key=key, value=show_value(loaded.values[key]), origin=loaded.origins[key])
        for key in known_settings()
    ]


def show_value(value: object) -> str:
    """Print a value the way it could be written in the file; of a secret only what is not secret."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:g}" if value != int(value) else str(int(value))
    if isinstance(value, Mapping):
        return ",".join(f"{name}={text}" for name, text in value.items())
    return _mask(value) if isinstance(value, Secret) else str(value)


def settings_reference() -> str:
    """The reference page, one table per section."""
    sections = groupby(known_settings().values(), key=_section_of)
    return _HEAD + "".join(_section_text(name, list(settings)) for name, settings in sections)


def _mask(secret: Secret) -> str:
    """Show a URL without its password, and nothing of any other secret."""
    text = secret.reveal()
    if text == "postgres:":
        return text
    return mask_url_password(text) if "://" in text else MASK


def _section_of(setting: Setting) -> str:
    return setting.key.rpartition(".")[0]


def _section_text(name: str, settings: list[Setting]) -> str:
    rows = "".join(_rows(settings))
    title = name or "top level"
    return f"\n## {title}\n\n| key | default | value | meaning |\n|---|---|---|---|\n{rows}"


def _rows(settings: list[Setting]) -> Iterator[str]:
    for one in settings:
        default = one.rules.default_shown or (f"`{show_value(one.default)}`" if show_value(one.default) else "not set")
        secret = " *Secret.*" if one.rules.secret else ""
        names = f"`{one.key}`<br>`{one.environment_name}`"
        yield f"| {names} | {default} | {describe_type(one)} | {one.rules.doc}{secret} |\n"
