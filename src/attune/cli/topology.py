"""`attune topology`: the exchanges, queues and bindings messages travel by."""

import click

from attune.cli.exits import Exit, database_errors
from attune.cli.options import output_option
from attune.cli.render import Format, View, column, show_document

VIEW = View(
    columns=[
        column("queue"),
        column("exchange"),
        column("keys", wide=True),
        column("declared_by", wide=True),
        column("consumed_by"),
        column("messages"),
        column("consumers"),
        column("problem"),
        column("cure"),
    ],
    name="queue",
)


@click.command()
@click.option("--verify", is_flag=True, help="Check that all of it exists and carries messages.")
@click.option("--repair", is_flag=True, help="Declare what is missing, then check.")
@output_option()
@click.pass_context
def topology(context: click.Context, *, verify: bool, repair: bool, output: Format) -> None:
    """Show, verify or repair what messages travel by.

    Exit code 1 if something is missing or does not deliver.
    """
    import asyncio

    import msgspec

    from attune import compose
    from attune.cli.session import load
    from attune.runtime.home import database_url, with_database

    loaded, home = load()
    settings = with_database(loaded.settings, home)
    with database_errors(database_url(loaded.settings, home), embedded=loaded.settings.database.url is None):
        found = asyncio.run(compose.topology(settings, home.root, verify=verify, repair=repair))
    report = msgspec.to_builtins(found)
    show_document(report, VIEW, report["queues"], output)
    context.exit(Exit.OK if report["ok"] else Exit.FAILED)
