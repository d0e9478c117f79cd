"""`attune line`: who waits for what, and holding, releasing and emptying lines."""

from typing import TYPE_CHECKING

import click

from attune.cli.options import group, output_option
from attune.cli.render import Format, View, column, print_fields, show, talk

if TYPE_CHECKING:
    from attune.client import AttuneClient

line = group("line", "Look at lines, or hold, release and empty them.")

VIEW = View(
    columns=[
        column("id"),
        column("scope"),
        column("group"),
        column("limit"),
        column("active"),
        column("waiting"),
        column("paused"),
        column("policy", wide=True),
        column("why this limit", "limit_reason", wide=True),
        column("paused_by", wide=True),
        column("oldest", "oldest_enqueued_at", wide=True),
        column("total_enqueued", wide=True),
        column("total_completed", wide=True),
    ],
    name="id",
)
LOG_VIEW = View(
    columns=[
        column("n"),
        column("op"),
        column("execution", "execution_id"),
        column("seq"),
        column("priority"),
        column("limit", "limit_in_force"),
        column("active"),
        column("reason"),
        column("at"),
    ],
    name="execution_id",
)
HISTORY_VIEW = View(
    columns=[
        column("at"),
        column("enqueued"),
        column("admitted"),
        column("completed"),
        column("removed"),
        column("waiting_max"),
        column("oldest_s", "oldest_seconds"),
        column("wait_p95"),
        column("active_max", wide=True),
        column("limit", wide=True),
        column("wait_mean", wide=True),
        column("wait_max", wide=True),
        column("wait_p50", wide=True),
        column("wait_p99", wide=True),
    ],
    name="at",
)
CLEAR_VIEW = View(columns=[column("lines"), column("cancelled")], name="cancelled")


@line.command("list")
@click.option("--action", "action_ref", help="Only those in which executions of this action wait.")
@click.option("--limit", type=click.IntRange(1, 1000), help="How many at most.")
@click.option("--cursor", help="Where the page before ended.")
@output_option()
def list_lines(*, action_ref: str | None, limit: int | None, cursor: str | None, output: Format) -> None:
    """List lines."""
    from attune.cli.session import connect
    from attune.client import calls

    with connect() as attune:
        answer = attune.send(calls.list_lines(action_ref=action_ref, limit=limit, cursor=cursor))
    show(answer.body, VIEW, output)
    if answer.value.next_cursor is not None and output in {Format.TABLE, Format.WIDE}:
        talk(f"there are more: --cursor {answer.value.next_cursor}")


@line.command("show")
@click.argument("which", metavar="LINE")
@output_option()
def show_line(which: str, output: Format) -> None:
    """Show one line, by its id or its action."""
    from attune.cli.session import connect
    from attune.client import calls

    with connect() as attune:
        answer = attune.send(calls.get_line(_find(attune, which)))
    if output in {Format.TABLE, Format.WIDE}:
        import msgspec

        print_fields(msgspec.json.decode(answer.body, type=dict[str, object]).items())
    else:
        show(answer.body, VIEW, output)


@line.command("log")
@click.argument("which", metavar="LINE")
@click.option("--after", type=click.IntRange(0), default=0, help="Only what came after this number of the log.")
@click.option("--limit", type=click.IntRange(1, 1000), default=1000, help="How many at most. Default: 1000.")
@output_option()
def show_log(*, which: str, after: int, limit: int, output: Format) -> None:
    """Print what happened to a line, by its id or its action: who joined, was admitted and left, in order."""
    from attune.cli.session import connect
    from attune.client import calls

    with connect() as attune:
        answer = attune.send(calls.list_admissions(_find(attune, which), after=after, limit=limit))
    show(answer.body, LOG_VIEW, output)
    if answer.value.next_cursor is not None and output in {Format.TABLE, Format.WIDE}:
        talk(f"there is more: --after {answer.value.items[-1].n}")


@line.command("history")
@click.argument("action_ref", metavar="ACTION")
@click.option("--since", help="The beginning: a time like 2026-01-31T12:00:00Z. Default: an hour ago.")
@click.option("--step", type=int, help="Seconds that are told together, whole minutes. Default: 60.")
@output_option()
def show_history(*, action_ref: str, since: str | None, step: int | None, output: Format) -> None:
    """Print what happened in an action's lines, minute by minute or in longer steps."""
    from attune.cli.session import connect
    from attune.client import calls

    with connect() as attune:
        answer = attune.send(calls.list_queue_stats_history(action_ref, since=since, step=step))
    show(answer.body, HISTORY_VIEW, output)
    if not answer.value.items:
        talk("nothing happened in that time, or no history is kept (executor.queue.enable_metrics)")


@line.command("pause")
@click.argument("which", metavar="LINE")
@output_option()
def pause_line(which: str, output: Format) -> None:
    """Admit nobody until the line is resumed; what runs goes on."""
    from attune.cli.session import connect
    from attune.client import calls

    with connect() as attune:
        show(attune.send(calls.pause_line(_find(attune, which))).body, VIEW, output)


@line.command("resume")
@click.argument("which", metavar="LINE")
@output_option()
def resume_line(which: str, output: Format) -> None:
    """Let a paused line go on, in its order."""
    from attune.cli.session import connect
    from attune.client import calls

    with connect() as attune:
        show(attune.send(calls.resume_line(_find(attune, which))).body, VIEW, output)


@line.command("clear")
@click.argument("which", metavar="[LINE]", required=False)
@click.option("--all", "everything", is_flag=True, help="Clear every line there is.")
@output_option()
def clear_line(*, which: str | None, everything: bool, output: Format) -> None:
    """Cancel everybody who waits in a line now; what runs goes on."""
    from attune.cli.session import connect
    from attune.client import calls

    if everything == (which is not None):
        raise click.UsageError("name one line, or say --all")
    with connect() as attune:
        call = calls.clear_all_lines() if which is None else calls.clear_line(_find(attune, which))
        show(attune.send(call).body, CLEAR_VIEW, output)


def _find(attune: "AttuneClient", which: str) -> int:
    """The id of a line that was named by it, or by the only action that stands in it."""
    from attune.cli.exits import CommandFailed, Exit
    from attune.client import calls

    if which.isascii() and which.isdecimal():
        return int(which)
    found = attune.send(calls.list_lines(action_ref=which)).value.items
    if not found:
        cure = "an action gets one when a policy limits it and it is run"
        raise CommandFailed(f"{which} has no line; {cure}", exit_code=Exit.NOT_FOUND)
    if len(found) > 1:
        names = ", ".join(str(each.id) for each in found[:10])
        raise click.UsageError(f"{which} has several lines, name one: {names}{', …' if found[10:] else ''}")
    return found[0].id
