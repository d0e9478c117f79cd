"""`attune run`: ask for a run of an action, and if wanted wait for its end."""

import sys
from typing import TYPE_CHECKING, Final

import click

from attune.cli.exits import Exit
from attune.cli.options import output_option
from attune.cli.render import Format, talk

if TYPE_CHECKING:
    from attune.client import Answer, AttuneClient, Execution

WAIT_SECONDS_DEFAULT: Final = 600.0


@click.command(add_help_option=False, context_settings={"ignore_unknown_options": False})
@click.argument("ref", required=False)
@click.argument("arguments", nargs=-1, metavar="[NAME=VALUE]...")
@click.option("--wait", is_flag=True, help="Wait for the end; print what the action writes and its result.")
@click.option(
    "--timeout",
    type=click.FloatRange(0.1),
    default=WAIT_SECONDS_DEFAULT,
    help="Seconds to wait at most.",
    show_default=True,
)
@click.option("--trace-tag", help="A word to find this execution by.")
@click.option("-h", "--help", "wants_help", is_flag=True, help="Show this, and with REF the action's parameters.")
@output_option()
@click.pass_context
def run(  # noqa: PLR0917  click hands over everything by name
    context: click.Context,
    ref: str | None,
    arguments: tuple[str, ...],
    wait: bool,  # noqa: FBT001
    timeout: float,
    trace_tag: str | None,
    wants_help: bool,  # noqa: FBT001
    output: Format,
) -> None:
    """Run an action: `attune run core.echo message=hi --wait`.

    Values are read as the action's parameters declare them: n=3 is a number where a number is wanted.
    """
    if wants_help or ref is None:
        _help(context, ref, asked=wants_help)
        return
    from attune.cli.session import connect

    with connect() as attune:
        answer = _request(attune, ref, arguments, trace_tag)
        if wait:
            from attune.cli.commands.watch import watch

            quiet = output not in {Format.TABLE, Format.WIDE}
            answer = watch(attune, answer, timeout_seconds=timeout, quiet=quiet)
    _show(answer, output, waited=wait)
    if wait and not _succeeded(answer):
        context.exit(Exit.FAILED)


def _help(context: click.Context, ref: str | None, *, asked: bool) -> None:
    if ref is None:
        click.echo(context.get_help(), err=not asked)
        context.exit(Exit.OK if asked else Exit.USAGE)
    from attune.cli.commands.parameters import describe_action
    from attune.cli.session import connect
    from attune.client import calls

    with connect() as attune:
        action = attune.send(calls.get_action(ref)).value
    click.echo(f"Usage: attune run {ref} [NAME=VALUE]... [--wait]\n\n{describe_action(action)}")


def _request(
    attune: "AttuneClient", ref: str, arguments: tuple[str, ...], trace_tag: str | None
) -> "Answer[Execution]":
    from typing import cast

    from attune.client import calls
    from attune.domain.json_values import Json
    from attune.domain.parameters import parse_arguments

    schema: dict[str, object] = {}
    if arguments:  # Only then does it matter what they are declared to be.
        schema = attune.send(calls.get_action(ref)).value.parameters or {}
    parameters = parse_arguments(cast("dict[str, Json]", schema), arguments)
    return attune.send(calls.request_execution(ref, parameters, trace_tag=trace_tag))


def _succeeded(answer: "Answer[Execution]") -> bool:
    return str(answer.value.status) == "succeeded"


def _show(answer: "Answer[Execution]", output: Format, *, waited: bool) -> None:
    from attune.cli.commands.execution import VIEW, describe_end
    from attune.cli.render import show

    if output not in {Format.TABLE, Format.WIDE}:
        show(answer.body, VIEW, output)
    elif waited:
        sys.stdout.flush()
        describe_end(answer.value)
    else:
        show(answer.body, VIEW, output)
        talk(f"see it with: attune execution show {answer.value.id}")
