"""`attune check`: whether everything the platform promises still holds in its database."""

import click

from attune.cli.exits import Exit, database_errors
from attune.cli.options import output_option
from attune.cli.render import Column, Format, View, column, show_document

VIEW = View(
    columns=[
        Column(title="", cell=lambda record: "ok" if record.get("violations") == 0 else "BROKEN"),
        column("name"),
        column("violations"),
        column("seconds", wide=True),
        column("rows", wide=True),
    ],
    name="name",
)


@click.command()
@click.option("--all", "everything", is_flag=True, help="Read all history that is kept, not only what is new.")
@output_option()
@click.pass_context
def check(context: click.Context, output: Format, *, everything: bool) -> None:
    """Verify the invariants in the database; works with the API down.

    Reads what was written since the last check that found nothing broken. Exit code 1 if one is violated.
    """
    import asyncio

    import msgspec

    from attune import compose
    from attune.cli.session import load
    from attune.runtime.home import database_url, with_database

    loaded, home = load()
    settings = with_database(loaded.settings, home)
    with database_errors(database_url(loaded.settings, home), embedded=loaded.settings.database.url is None):
        report = msgspec.to_builtins(asyncio.run(compose.check(settings, home.root, everything=everything)))
    show_document(report, VIEW, report["checks"], output)
    context.exit(Exit.OK if report["ok"] else Exit.FAILED)
