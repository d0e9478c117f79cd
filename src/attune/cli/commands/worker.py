"""`attune worker`: the processes that run actions, and taking them out and back in."""

import time
from typing import TYPE_CHECKING, Final

import click

from attune.cli.options import group, output_option
from attune.cli.render import Format, View, column, print_fields, show, talk

if TYPE_CHECKING:
    from attune.client import AttuneClient

worker = group("worker", "Look at workers, or take them out and let them back in.")

VIEW = View(
    columns=[
        column("id"),
        column("name"),
        column("status"),
        column("cordoned"),
        column("capacity"),
        column("load"),
        column("isolation_usual"),
        column("isolation"),
        column("cordon_reason", wide=True),
        column("recent_dead_letters", wide=True),
        column("full", wide=True),
        column("last_heartbeat", wide=True),
        column("last_pong", wide=True),
        column("host", wide=True),
        column("pid", wide=True),
        column("runtimes", wide=True),
        column("labels", wide=True),
    ],
    name="name",
)
SCALING_VIEW = View(
    columns=[
        column("runner"),
        column("labels"),
        column("isolation"),
        column("running"),
        column("backlog"),
        column("backlog_seconds"),
        column("workers"),
        column("wanted"),
        column("pool", wide=True),
        column("completions_per_second", wide=True),
        column("dead_letters_per_minute", wide=True),
        column("capacity", wide=True),
    ],
    name="pool",
)
POLL_SECONDS: Final = 0.5


@worker.command("list")
@click.option("--status", help="Only those of this status.")
@output_option()
def list_workers(status: str | None, output: Format) -> None:
    """List workers."""
    from attune.cli.session import connect
    from attune.client import calls

    with connect() as attune:
        show(attune.send(calls.list_workers(status=status)).body, VIEW, output)


@worker.command("show")
@click.argument("which", metavar="WORKER")
@output_option()
def show_worker(which: str, output: Format) -> None:
    """Show one worker, by its id or its name."""
    from attune.cli.session import connect
    from attune.client import calls

    with connect() as attune:
        body = attune.send(calls.get_worker(_find(attune, which))).body
    if output in {Format.TABLE, Format.WIDE}:
        import msgspec

        print_fields(msgspec.json.decode(body, type=dict[str, object]).items())
    else:
        show(body, VIEW, output)


@worker.command("cordon")
@click.argument("which", metavar="WORKER")
@output_option()
def cordon_worker(which: str, output: Format) -> None:
    """Place nothing more on a worker; what it has goes on."""
    from attune.cli.session import connect
    from attune.client import calls

    with connect() as attune:
        show(attune.send(calls.cordon_worker(_find(attune, which))).body, VIEW, output)


@worker.command("uncordon")
@click.argument("which", metavar="WORKER")
@output_option()
def uncordon_worker(which: str, output: Format) -> None:
    """Let a cordoned or drained worker be given work again."""
    from attune.cli.session import connect
    from attune.client import calls

    with connect() as attune:
        show(attune.send(calls.uncordon_worker(_find(attune, which))).body, VIEW, output)


@worker.command("drain")
@click.argument("which", metavar="WORKER")
@click.option("--wait", is_flag=True, help="Return when nothing runs there any more.")
@click.option("--timeout", "seconds", type=click.FloatRange(0), default=3600.0, help="How long to wait. Default: 3600.")
@output_option()
def drain_worker(*, which: str, wait: bool, seconds: float, output: Format) -> None:
    """Cordon a worker and give what it has not started to others; what runs there ends by itself."""
    from attune.cli.session import connect
    from attune.client import calls

    with connect() as attune:
        drained = attune.send(calls.drain_worker(_find(attune, which))).value
        talk(f"{drained.worker.name}: {drained.handed_back} handed back, {drained.worker.load or 0} still there")
        if wait:
            _wait_until_empty(attune, drained.worker.id, seconds=seconds)
        show(attune.send(calls.get_worker(drained.worker.id)).body, VIEW, output)


@worker.command("scaling")
@output_option()
def show_scaling(output: Format) -> None:
    """Show how many workers are wanted, together and in each pool that is not idle."""
    from attune.cli.render import show_document
    from attune.cli.session import connect
    from attune.client import calls

    with connect() as attune:
        body = attune.send(calls.get_scaling()).body
    import msgspec

    document = msgspec.json.decode(body, type=dict[str, object])
    if output in {Format.TABLE, Format.WIDE}:
        talk(f"{document['workers']} workers, {document['wanted']} wanted")
    pools = document["pools"]
    show_document(document, SCALING_VIEW, pools if isinstance(pools, list) else [], output)


def _wait_until_empty(attune: "AttuneClient", worker_id: int, *, seconds: float) -> None:
    """Tell how many are left whenever that changes."""
    from attune.client import TimedOut, calls

    deadline = time.monotonic() + seconds
    told = None
    while left := attune.send(calls.get_worker(worker_id)).value.load:
        if left != told:
            talk(f"{left} still there")
            told = left
        if time.monotonic() > deadline:
            raise TimedOut(f"worker {worker_id} still has {left} executions after {seconds:g} seconds; it goes on")
        time.sleep(POLL_SECONDS)


def _find(attune: "AttuneClient", which: str) -> int:
    """The id of a worker that was named by it, or by its name."""
    from attune.cli.exits import CommandFailed, Exit
    from attune.client import calls

    if which.isdigit():
        return int(which)
    cursor: str | None = None
    while True:
        page = attune.send(calls.list_workers(limit=1000, cursor=cursor)).value
        for each in page.items:
            if each.name == which:
                return each.id
        cursor = page.next_cursor
        if cursor is None:
            raise CommandFailed(f"no worker is called {which!r}; see `attune worker list`", exit_code=Exit.NOT_FOUND)
