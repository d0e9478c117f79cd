"""Options that many commands share."""

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from attune.cli.render import Format

F = TypeVar("F", bound=Callable[..., Any])

_CHOSEN: Final = "attune.output"


def output_option(*, default: Format = Format.TABLE, expose_value: bool = True) -> Callable[[F], F]:
    """Add `-o`; given to a group it holds for its commands, given to a command it wins."""

    def remember(context: click.Context, _parameter: click.Parameter, value: str | None) -> Format:
        if value is not None:
            context.meta[_CHOSEN] = Format(value)
        chosen = context.meta.get(_CHOSEN, default)
        return chosen if isinstance(chosen, Format) else default

    return click.option(
        "-o",
        "--output",
        type=click.Choice([each.value for each in Format]),
        callback=remember,
        expose_value=expose_value,
        help=f"How to print. Default: {default.value}.",
    )


def group(name: str, help_text: str) -> click.Group:
    """A group of commands about one kind of thing; `-o` may stand before the command too."""

    @output_option(expose_value=False)
    def body() -> None: ...

    return click.group(name, help=help_text)(body)
