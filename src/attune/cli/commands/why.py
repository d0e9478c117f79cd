"""`attune why`: where an execution is, and why there."""

import click

from attune.cli.options import output_option
from attune.cli.render import Format, View, column, show

VIEW = View(columns=[column("code"), column("sentence")], name="code", value="sentence")


@click.command()
@click.argument("execution_id", type=int, metavar="ID")
@output_option()
def why(execution_id: int, output: Format) -> None:
    """Say in one sentence why an execution is where it is."""
    from attune.cli.session import connect
    from attune.client import calls

    with connect() as attune:
        answer = attune.send(calls.explain_execution(execution_id))
    if output in {Format.TABLE, Format.WIDE}:
        click.echo(answer.value.sentence)
    else:
        show(answer.body, VIEW, output)
