"""`attune token`: secrets that programs log in with."""

import click

from attune.cli.options import group, output_option
from attune.cli.render import Format, View, column, show, talk

token = group("token", "Make tokens for programs.")

VIEW = View(columns=[column("id"), column("name"), column("secret")], name="name", value="secret")


@token.command()
@click.option("--name", required=True, help="What the token is for.")
@click.option("--permission-set", help="What it may do. Default: everything its maker may.")
@output_option()
def create(name: str, permission_set: str | None, output: Format) -> None:
    """Make a token; the secret is shown only now. `-o value` prints nothing else."""
    from attune.cli.session import connect
    from attune.client import calls

    with connect() as attune:
        answer = attune.send(calls.create_token(name, permission_set))
    show(answer.body, VIEW, Format.TABLE if output is Format.TABLE else output)
    if output in {Format.TABLE, Format.WIDE}:
        talk("the secret is shown only now")
