"""Which version this is."""

import click

from attune import __version__
from attune.cli.options import output_option
from attune.cli.render import Format, View, column, show_document


@click.command()
@output_option()
def version(output: Format) -> None:
    """Print the version of this command line."""
    if output in {Format.TABLE, Format.WIDE}:
        click.echo(f"attune {__version__}")
        return
    document = {"version": __version__}
    show_document(document, View(columns=[column("version")], name="version"), [document], output)
