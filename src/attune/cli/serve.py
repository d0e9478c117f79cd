"""`attune serve`: one service, in this process."""

import os
import sys
from typing import TYPE_CHECKING, Final

import click

from attune.cli.exits import database_errors

if TYPE_CHECKING:
    from attune.runtime.home import Home

SERVICES: Final = ("api", "executor", "worker", "sensor", "notifier")


@click.command()
@click.argument("service", type=click.Choice(SERVICES))
@click.option("--name", help="Name of this process, unique among its kind. Default: the service and this machine.")
@click.pass_context
def serve(context: click.Context, service: str, name: str | None) -> None:
    """Run one service until SIGTERM.

    With the same ATTUNE_HOME it joins the platform that runs there. On another machine set ATTUNE__DATABASE__URL and
    ATTUNE__MESSAGE_QUEUE__URL.
    """
    from attune.cli.session import load
    from attune.runtime.home import database_url, with_database
    from attune.runtime.logs import configure_logs

    loaded, home = load()
    name = name or _default_name(service)
    _carry_mark(home, service, name)
    _tie_to_supervisor(loaded.settings.worker.shutdown_timeout)
    _set_title(service, name)
    configure_logs(service, loaded.settings.log.level, loaded.settings.log.format)
    settings = with_database(loaded.settings, home)

    from attune import compose

    _watch_children_cheaply()
    with database_errors(database_url(loaded.settings, home), embedded=loaded.settings.database.url is None):
        context.exit(compose.serve(service, settings, home.root, name))


def _watch_children_cheaply() -> None:
    if sys.version_info < (3, 12) and sys.platform == "linux":
        import asyncio

        # Later versions choose it themselves; the default here spends a thread on every child.
        asyncio.set_child_watcher(asyncio.PidfdChildWatcher())


def _default_name(service: str) -> str:
    import socket

    return f"{service}-{socket.gethostname()}"


def _carry_mark(home: "Home", service: str, name: str) -> None:
    """Started by hand: start again with the marks that `attune down` finds processes by."""
    from attune.cli.platform.processes import HOME_VARIABLE, MARK_VARIABLE, SUPERVISOR_VARIABLE, marked_environment
    from attune.cli.platform.services import attune_command

    if os.environ.get(MARK_VARIABLE) == name and os.environ.get(HOME_VARIABLE) == str(home.root):
        return
    environment = marked_environment(home.root, name, os.environ)
    environment.pop(SUPERVISOR_VARIABLE, None)
    command = attune_command("serve", service, "--name", name)
    os.execve(command[0], command, environment)  # noqa: S606  no shell is wanted


def _tie_to_supervisor(grace_seconds: float) -> None:
    from attune.cli.platform.tether import supervisor_of, tie

    supervisor = supervisor_of(os.environ)
    if supervisor is not None:
        tie(supervisor, grace_seconds=grace_seconds)


def _set_title(service: str, name: str) -> None:
    import setproctitle

    setproctitle.setproctitle(f"attune-{service} {name}")
