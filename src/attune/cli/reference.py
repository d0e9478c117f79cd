"""Prints the reference page of all commands: `python -m attune.cli.reference > docs/reference/cli.md`."""

import inspect
import sys
from collections.abc import Iterator
from typing import Final

import click

from attune.cli.main import attune

_HEAD: Final = """\
# The command line

<!-- Generated from the commands themselves: run `python -m attune.cli.reference > docs/reference/cli.md`. -->

Data goes to stdout, talk to stderr. `-o json` prints the API's body unchanged; `-o` may stand before or after a
command's other words. `NO_COLOR` turns colours off.

A command works on the platform of its home: `ATTUNE_HOME`, by default `/var/lib/attune` for root, else
`$XDG_DATA_HOME/attune`. `ATTUNE_URL` and `ATTUNE_TOKEN` name another API and another identity.

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | failed: the execution, a check, the platform |
| 2 | the words on the command line make no sense |
| 3 | not logged in, or not allowed |
| 4 | no such thing |
| 5 | invalid, or in conflict with what is there |
| 6 | not in time |
| 7 | nothing answers there |
| 130 | interrupted with Ctrl-C |
"""


def cli_reference() -> str:
    """The whole page."""
    context = click.Context(attune, info_name="attune")
    return "\n".join([_HEAD, *(part for command in _leaves(context) for part in _describe(command))])


def _leaves(context: click.Context) -> Iterator[click.Context]:
    """Every command that does something, below this one, in the order of their names."""
    command = context.command
    if not isinstance(command, click.Group):
        yield context
        return
    for name in command.list_commands(context):
        below = command.get_command(context, name)
        if below is not None and not below.hidden:
            yield from _leaves(click.Context(below, info_name=name, parent=context))


def _describe(context: click.Context) -> Iterator[str]:
    usage = " ".join([context.command_path, *context.command.collect_usage_pieces(context)])
    yield f"## `{context.command_path}`\n"
    yield f"    {usage}\n"
    yield inspect.cleandoc(context.command.help or "") + "\n"
    options = [row for row in _options(context) if row]
    if options:
        yield "| option | meaning |\n|---|---|"
        yield "\n".join(options) + "\n"


def _options(context: click.Context) -> Iterator[str]:
    for parameter in context.command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None and parameter.name != "help":
            name, meaning = (" ".join(text.split()).replace("|", "\\|") for text in record)
            yield f"| `{name}` | {meaning} |"


if __name__ == "__main__":
    sys.stdout.write(cli_reference())
