"""`attune execution`: what runs, ran and will run."""

import sys
from math import inf
from typing import TYPE_CHECKING

import click

from attune.cli.options import group, output_option
from attune.cli.render import Format, View, column, plain, print_fields, show, talk

if TYPE_CHECKING:
    from attune.client import Execution

execution = group("execution", "Look at executions, or cancel one.")

VIEW = View(
    columns=[
        column("id"),
        column("action", "action_ref"),
        column("status"),
        column("attempt"),
        column("created"),
        column("ended", "ended_at"),
        column("worker", wide=True),
        column("trace_tag", wide=True),
        column("parameters", wide=True),
    ],
    name="id",
)


LATE_VIEW = View(
    columns=[
        column("attempt"),
        column("worker"),
        column("outcome"),
        column("at"),
        column("error", wide=True),
        column("result", wide=True),
    ],
    name="attempt",
)


@execution.command("list")
@click.option("--action", "action_ref", help="Only those of this action.")
@click.option("--status", help="Only those in this state.")
@click.option("--trace-tag", help="Only those with this tag.")
@click.option("--limit", type=click.IntRange(1, 1000), help="How many at most.")
@click.option("--cursor", help="Where the page before ended.")
@output_option()
def list_executions(
    *,
    action_ref: str | None,
    status: str | None,
    trace_tag: str | None,
    limit: int | None,
    cursor: str | None,
    output: Format,
) -> None:
    """List executions."""
    from attune.cli.session import connect
    from attune.client import calls

    call = calls.list_executions(action_ref=action_ref, status=status, trace_tag=trace_tag, limit=limit, cursor=cursor)
    with connect() as attune:
        answer = attune.send(call)
    show(answer.body, VIEW, output)
    if answer.value.next_cursor is not None and output in {Format.TABLE, Format.WIDE}:
        talk(f"there are more: --cursor {answer.value.next_cursor}")


@execution.command("show")
@click.argument("execution_id", type=int, metavar="ID")
@output_option()
def show_execution(execution_id: int, output: Format) -> None:
    """Show one execution."""
    from attune.cli.session import connect
    from attune.client import calls

    with connect() as attune:
        answer = attune.send(calls.get_execution(execution_id))
        if output not in {Format.TABLE, Format.WIDE}:
            show(answer.body, VIEW, output)
            return
        # Nobody can be late for a first attempt that has not ended.
        may_be_late = answer.value.attempt > 1 or answer.value.status.ended
        late = attune.send(calls.list_late_results(execution_id)).value if may_be_late else []
    describe(answer.value)
    for each in late:
        told = f"attempt {each.attempt} on worker {each.worker} reported {each.outcome} at {each.at}"
        print_fields([("too late", f"{told}; it was not applied")])


@execution.command("late-results")
@click.argument("execution_id", type=int, metavar="ID")
@output_option()
def list_late_results(execution_id: int, output: Format) -> None:
    """List what attempts reported after they had been given up; none of it was applied."""
    from attune.cli.session import connect
    from attune.client import calls

    with connect() as attune:
        show(attune.send(calls.list_late_results(execution_id)).body, LATE_VIEW, output)


@execution.command("logs")
@click.argument("execution_id", type=int, metavar="ID")
@click.option("--stream", type=click.Choice(["stdout", "stderr"]), help="Only this one.")
@click.option("-f", "--follow", is_flag=True, help="Go on until the execution ends.")
@output_option()
def show_logs(*, execution_id: int, stream: str | None, follow: bool, output: Format) -> None:
    """Print what an action wrote: its stdout on stdout, its stderr on stderr."""
    from attune.cli.commands.watch import LogPrinter
    from attune.cli.session import connect
    from attune.client import calls

    with connect() as attune:
        if output not in {Format.TABLE, Format.WIDE}:
            view = View(columns=[], name="text")
            show(attune.send(calls.get_logs(execution_id, stream=stream)).body, view, output)
        elif follow:
            attune.send(calls.get_execution(execution_id))  # Says at once if there is none.
            LogPrinter(attune, execution_id, stream=stream).follow(inf)
        else:
            LogPrinter(attune, execution_id, stream=stream).print_all()


@execution.command("cancel")
@click.argument("execution_id", type=int, metavar="ID")
@click.option("--force", is_flag=True, help="Do not wait for its worker: take the lease away and end it at once.")
@output_option()
def cancel_execution(*, execution_id: int, force: bool, output: Format) -> None:
    """Cancel one execution, and those it asked for."""
    from attune.cli.session import connect
    from attune.client import calls

    with connect() as attune:
        show(attune.send(calls.cancel_execution(execution_id, force=force)).body, VIEW, output)


def describe(one: "Execution") -> None:
    """Print every field a person may ask about."""
    print_fields(
        [
            ("id", one.id),
            ("action", one.action_ref),
            ("status", one.status),
            ("attempt", one.attempt),
            ("parameters", one.parameters),
            ("worker", one.worker),
            ("trace tag", one.trace_tag),
            ("created", one.created),
            ("started", one.started_at),
            ("ended", one.ended_at),
            ("error", _error_text(one)),
            ("exit code", _exit_code(one)),
            ("result", one.result),
        ]
    )


def describe_end(one: "Execution", *, streams_shown: bool) -> None:
    """Say how an execution ended: its result on stdout, everything else beside it."""
    exit_code = _exit_code(one)
    if exit_code is not None and not streams_shown:
        _print_tails(one)
    code = f", exit code {exit_code}" if exit_code is not None else ""
    reason = _error_text(one)
    talk(f"execution {one.id} {one.status}{code}{f': {plain(reason)}' if reason else ''}")
    # Of a program that failed the result is the end of its output, which was shown.
    if one.result is not None and (one.status == "succeeded" or exit_code is None):
        click.echo(one.result if isinstance(one.result, str) else plain(one.result))


def _print_tails(one: "Execution") -> None:
    """Print the end of both streams as the result keeps it."""
    for stream, target in (("stdout", sys.stdout), ("stderr", sys.stderr)):
        text = one.result.get(stream) if isinstance(one.result, dict) else None
        if isinstance(text, str) and text:
            print(text, end="" if text.endswith("\n") else "\n", file=target, flush=True)


def _exit_code(one: "Execution") -> object:
    return one.result.get("exit_code") if isinstance(one.result, dict) else None


def _error_text(one: "Execution") -> str | None:
    if one.error is None or isinstance(one.error, str):
        return one.error
    return f"{one.error.code}: {one.error.message}" if one.error.message else one.error.code
