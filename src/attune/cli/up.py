"""`attune up`: everything in one command, in the foreground or detached."""

import os
import sys
from typing import TYPE_CHECKING

import click

from attune.cli.exits import Exit, describe, exit_code_of

if TYPE_CHECKING:
    from attune.cli.platform.announce import Announcer
    from attune.runtime.home import Home
    from attune.runtime.settings import LoadedSettings

# Overrides meant for commands that talk to the API; services must not inherit them.
_NOT_FOR_SERVICES = ("ATTUNE_URL", "ATTUNE_TOKEN")


@click.command()
@click.option("--detach", is_flag=True, help="Return when the platform is ready; `attune down` stops it.")
@click.option("--port", type=click.IntRange(1, 65535), help="Port of the API. Default: the setting api.port, 8080.")
@click.option(
    "--scale",
    multiple=True,
    metavar="SERVICE=N",
    help="How many processes of a service, or worker=N..M to follow what is wanted. May be repeated.",
)
def up(*, detach: bool, port: int | None, scale: tuple[str, ...]) -> None:
    """Start the whole platform: database, services, first administrator.

    Runs in the foreground until Ctrl-C, or with --detach in the background.
    """
    from attune.cli.platform.services import read_counts
    from attune.cli.session import load
    from attune.runtime.home import prepare_home

    read_counts(scale)
    if port is not None:
        os.environ["ATTUNE__API__PORT"] = str(port)
    loaded, home = load()
    prepare_home(home)
    if _is_supervisor(home):
        _supervise(loaded, home, scale)
    else:
        _become_supervisor(home, scale, detach=detach)


def _is_supervisor(home: "Home") -> bool:
    from attune.cli.platform.processes import HOME_VARIABLE, MARK_VARIABLE, SUPERVISOR

    carried = (os.environ.get(MARK_VARIABLE), os.environ.get(HOME_VARIABLE))
    return carried == (SUPERVISOR, str(home.root))


def _become_supervisor(home: "Home", scale: tuple[str, ...], *, detach: bool) -> None:
    """Start again with the mark in the environment, where only the start of a process can put it."""
    from attune.cli.platform.announce import describe as describe_summary
    from attune.cli.platform.detach import start_detached
    from attune.cli.platform.processes import SUPERVISOR, marked_environment
    from attune.cli.platform.services import attune_command
    from attune.cli.render import talk

    given = {name: value for name, value in os.environ.items() if name not in _NOT_FOR_SERVICES}
    environment = marked_environment(home.root, SUPERVISOR, given)
    command = attune_command("up", *(word for each in scale for word in ("--scale", each)))
    if detach:
        talk(describe_summary(start_detached(command, environment, home)))
    else:
        sys.stdout.flush()
        os.execve(command[0], command, environment)  # noqa: S606  no shell is wanted


def _supervise(loaded: "LoadedSettings", home: "Home", scale: tuple[str, ...]) -> None:
    from attune.cli.platform.announce import Pipe, Terminal
    from attune.cli.platform.detach import REPORT_VARIABLE

    descriptor = os.environ.pop(REPORT_VARIABLE, "")
    if not descriptor.isdigit():
        _run(loaded, home, scale, Terminal())
        return
    pipe = Pipe(int(descriptor))
    try:
        _run(loaded, home, scale, pipe)
    except Exception as error:
        pipe.failed("\n".join(describe(error)), exit_code_of(error) or Exit.FAILED)
        raise
    finally:
        pipe.close()


def _run(loaded: "LoadedSettings", home: "Home", scale: tuple[str, ...], announcer: "Announcer") -> None:
    import asyncio

    import setproctitle

    from attune.cli.platform.instance import only_instance
    from attune.cli.platform.leftovers import end_leftovers
    from attune.cli.platform.ports import require_free
    from attune.cli.platform.services import read_counts
    from attune.cli.platform.whole import Plan, Platform
    from attune.runtime.failpoints import arm_from_environment
    from attune.runtime.home import ensure_secret
    from attune.runtime.keys import load_or_create_key
    from attune.runtime.logs import configure_logs

    settings = loaded.settings
    setproctitle.setproctitle(f"attune-supervisor {home.root}")
    arm_from_environment(os.environ, process="supervisor", service="supervisor")
    with only_instance(home), home.log("supervisor").open("ab", buffering=0) as log:
        configure_logs("supervisor", settings.log.level, settings.log.format, stream=log)
        end_leftovers(settings, home, grace_seconds=settings.worker.shutdown_timeout)
        require_free(settings.api.host, settings.api.port)
        if settings.database.url is None:
            ensure_secret(home.database_password)
        load_or_create_key(settings.security.key_file or home.key)
        plan = Plan(settings=settings, home=home, counts=read_counts(scale), environment=dict(os.environ))

        async def live() -> None:
            await Platform(plan, announcer).live()

        asyncio.run(live())
