"""`attune pack`: folders of definitions, installed and listed."""

from pathlib import Path

import click

from attune.cli.options import group, output_option
from attune.cli.render import Format, View, column, show

pack = group("pack", "Install packs and list them.")

VIEW = View(columns=[column("ref"), column("version"), column("description")], name="ref")


@pack.command()
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))
@output_option()
def install(directory: Path, output: Format) -> None:
    """Install the pack in DIRECTORY; installing the same again changes nothing."""
    from attune.cli.session import connect
    from attune.client import calls

    with connect() as attune:
        show(attune.send(calls.install_pack(str(directory.resolve()))).body, VIEW, output)


@pack.command("list")
@output_option()
def list_packs(output: Format) -> None:
    """List installed packs."""
    from attune.cli.session import connect
    from attune.client import calls

    with connect() as attune:
        show(attune.send(calls.list_packs()).body, VIEW, output)
