"""Where the API is and who we are: from ATTUNE_URL and ATTUNE_TOKEN, or from the home of the running platform."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from attune.cli.exits import CommandFailed, Exit

if TYPE_CHECKING:
    from attune.client import AttuneClient
    from attune.runtime.home import Home
    from attune.runtime.settings import LoadedSettings

# Set by `--config`, so that every service that is started from here reads the same file.
CONFIG_VARIABLE: Final = "ATTUNE_CONFIG"
# A clone ships configurations for some environments; an installed package does not.
CLONE: Final = Path(__file__).parents[3]


def find_home() -> "Home":
    """The home of this process."""
    from attune.runtime.home import Home
    from attune.runtime.settings import find_home as locate

    return Home(locate(os.environ))


def load() -> "tuple[LoadedSettings, Home]":
    """The settings in force and the home they belong to; warnings go to stderr."""
    from attune.cli.render import talk
    from attune.runtime.home import Home
    from attune.runtime.settings import load_settings

    chosen = os.environ.get(CONFIG_VARIABLE)
    config_file = Path(chosen) if chosen else None
    loaded = load_settings(environment=os.environ, config_file=config_file, also_look_in=[CLONE])
    for warning in loaded.warnings:
        talk(f"warning: {warning}")
    return loaded, Home(loaded.home)


def connect() -> "AttuneClient":
    """A client of the API, logged in."""
    from attune.client import AttuneClient

    url = api_url()
    return AttuneClient(url, _token(url))


def api_url() -> str:
    """The API's address: as told, or where the platform of this home says it listens."""
    given = os.environ.get("ATTUNE_URL")
    if given:
        return given
    home = find_home()
    try:
        return home.url.read_text(encoding="utf-8").strip()
    except OSError as error:
        message = (
            f"no platform runs in {home.root}. Start it with `{command_name()} up`, "
            "or name another with ATTUNE_URL or ATTUNE_HOME"
        )
        raise CommandFailed(message, exit_code=Exit.UNREACHABLE) from error


def command_name() -> str:
    """How the person called us, so that what we tell them to type works."""
    return os.environ.get("ATTUNE_COMMAND") or "attune"


def _token(url: str) -> str:
    from attune.client.connections import is_loopback
    from attune.runtime.home import read_secret

    given = os.environ.get("ATTUNE_TOKEN")
    if given:
        return given
    home = find_home()
    # The home's token is this machine's administrator; it does not travel to another one.
    if not is_loopback(url):
        raise CommandFailed(f"no token for {url}: set ATTUNE_TOKEN", exit_code=Exit.AUTH)
    try:
        found = read_secret(home.cli_token)
    except PermissionError as error:
        message = f"{home.cli_token} belongs to somebody else: set ATTUNE_TOKEN, or run as the account that ran `up`"
        raise CommandFailed(message, exit_code=Exit.AUTH) from error
    if found is None:
        message = f"not logged in: {home.cli_token} does not exist. Run `{command_name()} login`, or set ATTUNE_TOKEN"
        raise CommandFailed(message, exit_code=Exit.AUTH)
    return found
