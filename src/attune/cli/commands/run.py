"""`attune run`: ask for a run of an action, and if wanted wait for its end."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from attune.cli.exits import Exit
from attune.cli.options import output_option
from attune.cli.render import Format, talk

if TYPE_CHECKING:
    from attune.client import Answer, AttuneClient, Execution
    from attune.domain.json_values import Json

WAIT_SECONDS_DEFAULT: Final = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The words of one `attune run`."""

    ref: str | None
    arguments: tuple[str, ...]
    wait: bool
    timeout: float
    trace_tag: str | None
    parameters_file: str | None
    no_logs: bool
    wants_help: bool
    output: Format


@click.command(add_help_option=False)
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
@click.option("--no-logs", is_flag=True, help="While waiting, do not print what the action writes.")
@click.option(
    "--parameters-file",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
    help="Read parameters as JSON from this file, - for standard input; others can read the words of a command.",
)
@click.option("--trace-tag", help="A word to find this execution by.")
@click.option("-h", "--help", "wants_help", is_flag=True, help="Show this, and with REF the action's parameters.")
@output_option()
@click.pass_context
def run(context: click.Context, /, **words: Any) -> None:  # noqa: ANN401 - click knows their types, and so does Asked
    """Run an action: `attune run core.echo message=hi --wait`.

    Values are read as the action's parameters declare them: n=3 is a number where a number is wanted.
    """
    asked = Asked(**words)
    if asked.wants_help or asked.ref is None:
        _help(context, asked)
        return
    from attune.cli.session import connect

    with connect() as attune:
        answer = _request(attune, asked.ref, asked)
        if asked.wait:
            answer = _wait(attune, answer, asked)
        else:
            _show(answer, asked)
    if asked.wait and not _succeeded(answer):
        context.exit(Exit.FAILED)


def _wait(attune: "AttuneClient", answer: "Answer[Execution]", asked: Asked) -> "Answer[Execution]":
    """Follow the execution to its end; for people with its output, for machines without a word."""
    from attune.cli.commands.execution import VIEW, describe_end
    from attune.cli.commands.watch import LogPrinter, watch
    from attune.cli.render import show

    if asked.output not in {Format.TABLE, Format.WIDE}:
        ended = watch(attune, answer, timeout_seconds=asked.timeout)
        show(ended.body, VIEW, asked.output)
        return ended
    printer = None if asked.no_logs else LogPrinter(attune, answer.value.id)
    ended = watch(attune, answer, timeout_seconds=asked.timeout, printer=printer)
    describe_end(ended.value, streams_shown=printer is None or printer.printed)
    return ended


def _help(context: click.Context, asked: Asked) -> None:
    if asked.ref is None:
        click.echo(context.get_help(), err=not asked.wants_help)
        context.exit(Exit.OK if asked.wants_help else Exit.USAGE)
    from attune.cli.commands.parameters import describe_action
    from attune.cli.session import connect
    from attune.client import calls

    with connect() as attune:
        action = attune.send(calls.get_action(asked.ref)).value
    click.echo(f"Usage: attune run {asked.ref} [NAME=VALUE]... [--wait]\n\n{describe_action(action)}")


def _request(attune: "AttuneClient", ref: str, asked: Asked) -> "Answer[Execution]":
    from typing import cast

    from attune.client import calls
    from attune.domain.parameters import parse_arguments

    schema: dict[str, object] = {}
    if asked.arguments:  # Only then does it matter what they are declared to be.
        schema = attune.send(calls.get_action(ref)).value.parameters or {}
    parameters = _read_file(asked.parameters_file) | parse_arguments(cast("dict[str, Json]", schema), asked.arguments)
    return attune.send(calls.request_execution(ref, parameters, trace_tag=asked.trace_tag))


def _read_file(path: str | None) -> "dict[str, Json]":
    if path is None:
        return {}
    import msgspec

    from attune.domain.parameters import BadParameters

    with click.open_file(path, "rb") as file:
        content = file.read()
    try:
        decoded: dict[str, Json] = msgspec.json.decode(content, type=dict[str, object])
    except msgspec.DecodeError as error:
        raise BadParameters(f"{path} does not hold parameters, that is one JSON object: {error}") from None
    return decoded


def _succeeded(answer: "Answer[Execution]") -> bool:
    return str(answer.value.status) == "succeeded"


def _show(answer: "Answer[Execution]", asked: Asked) -> None:
    from attune.cli.commands.execution import VIEW
    from attune.cli.render import show
    from attune.cli.session import command_name

    show(answer.body, VIEW, asked.output)
    if asked.output in {Format.TABLE, Format.WIDE}:
        talk(f"see it with: {command_name()} execution show {answer.value.id}")
