"""Where packages come from: what pip was told on this machine, handed over to uv, which does not read it."""

import configparser
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

# pip's name of a setting, uv's variable for it, and what uv puts between several values.
_HANDED_OVER: Final = (
    ("index-url", "UV_DEFAULT_INDEX", " "),
    ("extra-index-url", "UV_INDEX", " "),
    ("find-links", "UV_FIND_LINKS", ","),
    ("trusted-host", "UV_INSECURE_HOST", " "),
    ("cert", "SSL_CERT_FILE", " "),
    ("proxy", "ALL_PROXY", " "),
    ("default-timeout", "UV_HTTP_TIMEOUT", " "),
    ("timeout", "UV_HTTP_TIMEOUT", " "),
)
_SECTIONS: Final = ("global", "install")
_TRUE: Final = frozenset({"1", "true", "yes", "on"})
# What build tools may know of the worker's own variables; its settings and secrets are not among them.
_KEPT: Final = frozenset(
    {"HOME", "LANG", "NETRC", "SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS"}
    | {"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy"}
)


def kept_environment(environment: Mapping[str, str], *, prefix: str) -> dict[str, str]:
    """What a build tool is given: how to reach the network, and the variables that are its own by their prefix."""
    return {
        name: value for name, value in environment.items() if name in _KEPT or name.lower().startswith(prefix.lower())
    }


def uv_environment(environment: Mapping[str, str], *, cache: Path) -> dict[str, str]:
    """uv's variables: its own where they are set, else pip's settings in uv's words."""
    told = kept_environment(environment, prefix="UV_")
    settings = read_pip_settings(environment)
    for name, variable, separator in _HANDED_OVER:
        if settings.get(name):
            told.setdefault(variable, separator.join(settings[name].split()))
    if settings.get("no-index", "").lower() in _TRUE:
        told.setdefault("UV_NO_INDEX", "1")
    # pip looks at every index for the wanted version, uv at the first that knows the package; hashes make it safe.
    told.setdefault("UV_INDEX_STRATEGY", "unsafe-best-match")
    fixed = {"UV_CACHE_DIR": str(cache), "UV_PYTHON_DOWNLOADS": "never", "UV_NO_CONFIG": "1", "UV_NO_PROGRESS": "1"}
    return {**told, **fixed}


def read_pip_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """pip's files and variables as pip itself ranks them."""
    settings: dict[str, str] = {}
    for path in _pip_files(environment):
        settings |= _read_file(path)
    variables = {name[4:].lower().replace("_", "-"): value for name, value in environment.items() if name[:4] == "PIP_"}
    return settings | {name: value for name, value in variables.items() if value}


def _pip_files(environment: Mapping[str, str]) -> Iterator[Path]:
    chosen = environment.get("PIP_CONFIG_FILE")
    if chosen == os.devnull:
        return
    for folder in (environment.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(":"):
        yield Path(folder, "pip", "pip.conf")
    yield Path("/etc/pip.conf")
    if home := environment.get("HOME"):
        yield Path(home, ".pip", "pip.conf")
        yield Path(environment.get("XDG_CONFIG_HOME") or Path(home, ".config"), "pip", "pip.conf")
    yield Path(sys.prefix, "pip.conf")
    if chosen:
        yield Path(chosen)


def _read_file(path: Path) -> dict[str, str]:
    # Values may hold a "%"; the names are spelled with dashes or underscores.
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, configparser.Error):
        return {}  # pip itself complains; here it only means that nothing is handed over.
    found: dict[str, str] = {}
    for section in _SECTIONS:
        if parser.has_section(section):
            found |= {name.replace("_", "-"): value for name, value in parser.items(section)}
    return found
