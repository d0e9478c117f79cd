"""`attune dead-letter`: what died on its way, and sending it again or dropping it."""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import click

from attune.cli.options import group, output_option
from attune.cli.render import Format, View, column, print_fields, show, talk

if TYPE_CHECKING:
    from attune.client.calls import Call

Command = TypeVar("Command", bound=Callable[..., None])

dead_letter = group("dead-letter", "Look at messages that died, send them again, or drop them.")

VIEW = View(
    columns=[
        column("id"),
        column("parked_at"),
        column("reason"),
        column("type"),
        column("items"),
        column("action", "action_ref"),
        column("worker", "worker_id"),
        column("outcome"),
        column("topic", wide=True),
        column("deliveries", wide=True),
        column("outcome_by", wide=True),
        column("error", wide=True),
        column("deaths", wide=True),
    ],
    name="id",
)
STATS_VIEW = View(
    columns=[
        column("action"),
        column("worker"),
        column("reason"),
        column("count"),
        column("open"),
        column("failed_executions"),
        column("last_at"),
    ],
    name="count",
)
VERDICT_VIEW = View(columns=[column("id"), column("effect"), column("outcome"), column("message")], name="id")

_FILTERS = (
    click.option("--since", help="Only those that died at this time or later, as in 2026-01-31T12:00:00Z."),
    click.option("--execution", "execution_id", type=int, help="Only those about this execution."),
    click.option("--worker", "worker_id", type=int, help="Only those of this worker."),
    click.option("--action", "action_ref", help="Only those about this action."),
    click.option("--type", "type", help="Only messages of this type."),
    click.option("--reason", help="Only those that died for this reason."),
)


def filters(command: Command) -> Command:
    """Add what dead letters are chosen by."""
    for option in _FILTERS:
        command = option(command)
    return command


@dead_letter.command("list")
@filters
@click.option("--open", "only_open", is_flag=True, help="Only those that wait for a person.")
@click.option("--outcome", help="Only those of which this became.")
@click.option("--limit", type=click.IntRange(1, 1000), help="How many at most.")
@click.option("--cursor", help="Where the page before ended.")
@output_option()
def list_dead_letters(*, only_open: bool, output: Format, **wanted: str | int | None) -> None:
    """List dead letters, the newest first."""
    from attune.cli.session import connect
    from attune.client import calls

    with connect() as attune:
        answer = attune.send(calls.list_dead_letters(open="true" if only_open else None, **wanted))
    show(answer.body, VIEW, output)
    if answer.value.next_cursor is not None and output in {Format.TABLE, Format.WIDE}:
        talk(f"there are more: --cursor {answer.value.next_cursor}")


@dead_letter.command("show")
@click.argument("dead_letter_id", type=int, metavar="ID")
@output_option()
def show_dead_letter(dead_letter_id: int, output: Format) -> None:
    """Show one dead letter, with how it died and what became of it."""
    from attune.cli.session import connect
    from attune.client import calls

    with connect() as attune:
        answer = attune.send(calls.get_dead_letter(dead_letter_id))
    if output in {Format.TABLE, Format.WIDE}:
        import msgspec

        print_fields(msgspec.json.decode(answer.body, type=dict[str, object]).items())
    else:
        show(answer.body, VIEW, output)


@dead_letter.command("stats")
@click.option(
    "--group-by", default="reason", help="Some of action, worker and reason, with commas between. Default: reason."
)
@click.option("--since", help="Only those that died at this time or later, as in 2026-01-31T12:00:00Z.")
@output_option()
def show_stats(*, group_by: str, since: str | None, output: Format) -> None:
    """Count dead letters by what they have in common."""
    from attune.cli.render import show_records
    from attune.cli.session import connect
    from attune.client import calls

    with connect() as attune:
        answer = attune.send(calls.get_dead_letter_stats(group_by=group_by, since=since))
    if output in {Format.JSON, Format.YAML}:
        show(answer.body, STATS_VIEW, output)
        return
    stats = answer.value
    show_records(stats.groups, STATS_VIEW, output)
    talk(f"{stats.open} wait for a person, {stats.unhandled} for the handler; {stats.last_minute} in the last minute")


@dead_letter.command("replay")
@click.argument("dead_letter_id", type=int, metavar="[ID]", required=False)
@filters
@click.option("--all", "everything", is_flag=True, help="Every one that waits for a person.")
@output_option()
def replay(*, dead_letter_id: int | None, everything: bool, output: Format, **wanted: str | int | None) -> None:
    """Send one again, or those of a selection that wait for a person; what is over stays over."""
    from attune.client import calls

    one, many = calls.replay_dead_letter, calls.replay_dead_letters
    _decide(_pick(dead_letter_id, wanted, everything=everything), one, many, wanted=wanted, output=output)


@dead_letter.command("drop")
@click.argument("dead_letter_id", type=int, metavar="[ID]", required=False)
@filters
@click.option("--all", "everything", is_flag=True, help="Every one that waits for a person.")
@output_option()
def drop(*, dead_letter_id: int | None, everything: bool, output: Format, **wanted: str | int | None) -> None:
    """Give one up for good, or those of a selection that wait for a person."""
    from attune.client import calls

    one, many = calls.drop_dead_letter, calls.drop_dead_letters
    _decide(_pick(dead_letter_id, wanted, everything=everything), one, many, wanted=wanted, output=output)


def _pick(dead_letter_id: int | None, wanted: dict[str, str | int | None], *, everything: bool) -> int | None:
    """One by its id, or None for a selection; never everything by forgetting to say which."""
    ways = [dead_letter_id is not None, any(value is not None for value in wanted.values()), everything]
    if sum(ways) != 1:
        raise click.UsageError("name one dead letter, or choose some by options, or say --all")
    return dead_letter_id


def _decide(
    dead_letter_id: int | None,
    one: "Callable[[int], Call[object]]",
    many: "Callable[..., Call[object]]",
    *,
    wanted: dict[str, str | int | None],
    output: Format,
) -> None:
    from attune.cli.session import connect

    with connect() as attune:
        call = many(limit=1000, **wanted) if dead_letter_id is None else one(dead_letter_id)
        show(attune.send(call).body, VERDICT_VIEW, output)
