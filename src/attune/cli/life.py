"""Commands about a running platform: status, scale, logs, down."""

import sys
from typing import TYPE_CHECKING, Final

import click

from attune.cli.exits import CommandFailed, Exit
from attune.cli.options import output_option
from attune.cli.render import Format, View, column, show_document, talk

if TYPE_CHECKING:
    from pathlib import Path

    from attune.cli.platform.services import Count
    from attune.runtime.home import Home

PROCESS_VIEW: Final = View(
    columns=[column("name"), column("service"), column("pid"), column("state"), column("restarts")], name="name"
)
# PostgreSQL's own fast and immediate ends, which come after the services' grace.
DATABASE_SECONDS_MAX: Final = 50.0
MARGIN_SECONDS: Final = 5.0
LINES_SHOWN: Final = 100


@click.command()
@output_option()
@click.pass_context
def status(context: click.Context, output: Format) -> None:
    """Show the platform's processes.

    Exit code 7 if nothing runs.
    """
    from attune.cli.platform.control import NotRunning
    from attune.cli.session import command_name, find_home

    home = find_home()
    try:
        _show_status(_ask(home, "status"), output)
    except NotRunning:
        _show_status(b'{"url":null,"ready":false,"transport":null,"processes":[]}', output)
        talk(f"nothing runs in {home.root}; start it with `{command_name()} up`")
        context.exit(Exit.UNREACHABLE)


@click.command()
@click.argument("counts", nargs=-1, required=True, metavar="SERVICE=N...")
@output_option()
def scale(counts: tuple[str, ...], output: Format) -> None:
    """Change how many processes of a service run; worker=1..4 keeps as many workers as are wanted."""
    from attune.cli.platform.services import read_counts
    from attune.cli.session import find_home

    _show_status(_ask(find_home(), "scale", read_counts(counts)), output)


@click.command()
@click.argument("name", required=False)
@click.option("-f", "--follow", is_flag=True, help="Go on printing what is added, until Ctrl-C.")
@click.option("-n", "--lines", type=click.IntRange(0, 10_000), default=LINES_SHOWN, show_default=True)
def logs(*, name: str | None, follow: bool, lines: int) -> None:
    """Print the log of one process, or of all."""
    from attune.cli.platform import logfiles
    from attune.cli.session import find_home

    found = _log_files(find_home(), name)
    for log in found:
        for line in logfiles.tail(log, lines_max=lines):
            print(_labelled(log, line, several=len(found) > 1))
    sys.stdout.flush()
    if follow:
        for log, added in logfiles.follow(found):
            for line in added.decode(errors="replace").splitlines():
                print(_labelled(log, line, several=len(found) > 1), flush=True)


@click.command()
def down() -> None:
    """Stop the platform; returns when no process of it is left."""
    from attune.cli.platform.instance import owner
    from attune.cli.platform.leftovers import end_leftovers
    from attune.cli.platform.processes import end, find_marked, is_alive, is_by_hand, wait_until, with_descendants
    from attune.cli.session import load

    loaded, home = load()
    grace_seconds = loaded.settings.worker.shutdown_timeout
    marked = find_marked(home)
    before = with_descendants(marked)
    # Those started by hand first: to end well they need the database, which the supervisor takes away.
    by_hand = [process for process in marked if is_by_hand(process)]
    end(by_hand, ask=by_hand, grace_seconds=grace_seconds + MARGIN_SECONDS)
    if _ask_to_stop(home):
        wait_until(lambda: owner(home) is None, seconds_max=2 * grace_seconds + DATABASE_SECONDS_MAX)
    still = [process for process in before if is_alive(process)]
    ended = end_leftovers(loaded.settings, home, grace_seconds=grace_seconds, also=still)
    talk("stopped" if before or ended else f"nothing runs in {home.root}")


def _ask_to_stop(home: "Home") -> bool:
    from attune.cli.platform.control import NotRunning
    from attune.cli.platform.instance import owner

    try:
        _ask(home, "down")
    except NotRunning:
        import os
        import signal

        pid = owner(home)  # A supervisor that is still starting does not listen yet.
        if pid is None or pid <= 0:
            return False
        os.kill(pid, signal.SIGTERM)
    return True


def _ask(home: "Home", command: str, counts: "dict[str, Count] | None" = None) -> bytes:
    import asyncio

    from attune.cli.platform.control import Request, ask

    low = {service: count.low for service, count in (counts or {}).items()}
    high = {service: count.high for service, count in (counts or {}).items() if count.low < count.high}
    return asyncio.run(ask(home, Request(command=command, scale=low, at_most=high)))


def _show_status(body: bytes, output: Format) -> None:
    import msgspec

    document = msgspec.json.decode(body)
    if output in {Format.TABLE, Format.WIDE} and document["url"]:
        state = "ready" if document["ready"] else "not ready"
        talk(f"{document['url']} is {state}; messages by {document['transport']}")
    show_document(document, PROCESS_VIEW, document["processes"], output)


def _log_files(home: "Home", name: str | None) -> list["Path"]:
    found = sorted(home.logs.glob("*.log"))
    if name is not None:
        found = [log for log in found if log.stem == name]
    if not found:
        there = ", ".join(sorted(log.stem for log in home.logs.glob("*.log"))) or "none"
        what = f"no log of {name!r}" if name else "no logs"
        raise CommandFailed(f"{what} in {home.logs}; there are: {there}", exit_code=Exit.NOT_FOUND)
    return found


def _labelled(log: "Path", line: str, *, several: bool) -> str:
    return f"{log.stem:<12} {line}" if several else line
