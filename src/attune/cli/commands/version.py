"""Which version this is."""

import click

from attune.cli.options import output_option
from attune.cli.render import Format, View, column, show_document


def installed_version() -> str:
    """The version of the installed package, or of the source tree it runs from."""
    import importlib.metadata
    from pathlib import Path

    source = Path(__file__).parents[4] / "pyproject.toml"
    if source.is_file():  # A clone: nothing is installed under this name.
        import tomllib

        return str(tomllib.loads(source.read_text(encoding="utf-8"))["project"]["version"])
    return importlib.metadata.version("attune")


@click.command()
@output_option()
def version(output: Format) -> None:
    """Print the version of this command line."""
    if output in {Format.TABLE, Format.WIDE}:
        click.echo(f"attune {installed_version()}")
        return
    document = {"version": installed_version()}
    show_document(document, View(columns=[column("version")], name="version"), [document], output)
