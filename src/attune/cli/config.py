"""`attune config`: the settings in force and where each comes from."""

import dataclasses

import click

from attune.cli.options import group, output_option
from attune.cli.render import Format, View, column, show_document

config = group("config", "Look at the settings.")


@config.command("show")
@click.option("--origin", is_flag=True, help="Also say where each value comes from.")
@output_option()
def show_settings(*, origin: bool, output: Format) -> None:
    """Print every setting in force, secrets masked."""
    from attune.cli.session import load
    from attune.runtime.settings import describe_settings

    loaded, _ = load()
    hidden = set() if origin else {"origin"}
    rows = [
        {name: value for name, value in dataclasses.asdict(line).items() if name not in hidden}
        for line in describe_settings(loaded)
    ]
    columns = [column(name) for name in ("key", "value", "origin") if name not in hidden]
    show_document({"items": rows}, View(columns=columns, name="key", value="value"), rows, output)
