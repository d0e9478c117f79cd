"""How parameters reach a script: as one document, in the format its action asks for."""

import re
import shlex
from collections.abc import Mapping
from typing import Final

import msgspec

from attune.domain.definitions import ParameterFormat
from attune.domain.json_values import Json

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Undeliverable(Exception):
    """These parameters cannot be written in this format."""


def write_parameters(parameters: Mapping[str, Json], format_: str) -> bytes:
    """The parameters as the script will read them."""
    if format_ == ParameterFormat.YAML:
        return msgspec.yaml.encode(parameters)
    if format_ == ParameterFormat.DOTENV:
        return _write_dotenv(parameters)
    return msgspec.json.encode(parameters) + b"\n"


def _write_dotenv(parameters: Mapping[str, Json]) -> bytes:
    """Lines that a shell can source: whatever a value contains, it is data and never a command."""
    lines = []
    for name, value in parameters.items():
        if not _NAME.fullmatch(name):
            raise Undeliverable(f"a shell variable cannot be called {name!r}: choose another parameter_format")
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        quoted = shlex.quote(text)
        lines.append(f"{name}={quoted}\n")
    return "".join(lines).encode()
