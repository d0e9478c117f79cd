"""`attune action`: what can be run."""

import click

from attune.cli.options import group, output_option
from attune.cli.render import Format, View, column, show

action = group("action", "Look at actions, or let a quarantined one go on.")

VIEW = View(
    columns=[
        column("ref"),
        column("runner"),
        column("description"),
        column("quarantined", "quarantined_at", wide=True),
        column("parameters", wide=True),
    ],
    name="ref",
)


@action.command("list")
@click.option("--pack", help="Only those of this pack.")
@click.option("--limit", type=click.IntRange(1, 1000), help="How many at most.")
@click.option("--cursor", help="Where the page before ended.")
@output_option()
def list_actions(pack: str | None, limit: int | None, cursor: str | None, output: Format) -> None:
    """List actions."""
    from attune.cli.session import connect
    from attune.client import calls

    with connect() as attune:
        show(attune.send(calls.list_actions(pack=pack, limit=limit, cursor=cursor)).body, VIEW, output)


@action.command("show")
@click.argument("ref")
@output_option()
def show_action(ref: str, output: Format) -> None:
    """Show one action and its parameters."""
    from attune.cli.commands.parameters import describe_action
    from attune.cli.session import connect
    from attune.client import calls

    with connect() as attune:
        answer = attune.send(calls.get_action(ref))
    if output in {Format.TABLE, Format.WIDE}:
        click.echo(describe_action(answer.value))
    else:
        show(answer.body, VIEW, output)


@action.command("release")
@click.argument("ref")
@output_option()
def release_action(ref: str, output: Format) -> None:
    """Let an action be placed again that was quarantined for losing its workers."""
    from attune.cli.session import connect
    from attune.client import calls

    with connect() as attune:
        show(attune.send(calls.release_action(ref)).body, VIEW, output)
