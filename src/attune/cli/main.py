"""The command `attune`: finds the command that was asked for, runs it, and turns its end into an exit code.

Nothing heavy is imported here or at the top of a command's module: `attune --version` must be quick.
"""

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

import click

from attune import __version__
from attune.cli.exits import Exit, describe, exit_code_of
from attune.cli.lazy import LazyGroup
from attune.cli.options import output_option
from attune.cli.session import CONFIG_VARIABLE

COMMANDS = {
    "action": "attune.cli.commands.action:action",
    "alert": "attune.cli.commands.alert:alert",
    "artifact": "attune.cli.commands.artifact:artifact",
    "bench": "attune.cli.bench.command:bench",
    "check": "attune.cli.check:check",
    "completion": "attune.cli.commands.completion:completion",
    "config": "attune.cli.config:config",
    "dead-letter": "attune.cli.commands.dead_letter:dead_letter",
    "db": "attune.cli.database:database",
    "down": "attune.cli.life:down",
    "execution": "attune.cli.commands.execution:execution",
    "line": "attune.cli.commands.line:line",
    "login": "attune.cli.commands.login:login",
    "logs": "attune.cli.life:logs",
    "pack": "attune.cli.commands.pack:pack",
    "run": "attune.cli.commands.run:run",
    "scale": "attune.cli.life:scale",
    "serve": "attune.cli.serve:serve",
    "status": "attune.cli.life:status",
    "token": "attune.cli.commands.token:token",
    "topology": "attune.cli.topology:topology",
    "up": "attune.cli.up:up",
    "version": "attune.cli.commands.version:version",
    "why": "attune.cli.commands.why:why",
    "worker": "attune.cli.commands.worker:worker",
}


def _print_version(context: click.Context, _parameter: click.Parameter, wanted: object) -> None:
    if wanted:
        click.echo(f"attune {__version__}")
        context.exit()


@click.group(cls=LazyGroup, lazy=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Print the version."
)
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, resolve_path=True),
    help="Read this file instead of config.yaml in the home.",
)
@output_option(expose_value=False)
def attune(config: str | None) -> None:
    """Event-driven automation that never loses, doubles or reorders what it accepted."""
    if config is not None:
        os.environ[CONFIG_VARIABLE] = config


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one command and leave with its exit code."""
    sys.exit(run_command(arguments))


def run_command(arguments: Sequence[str] | None = None) -> int:
    """Run one command; every expected failure becomes one clear line on stderr and an exit code."""
    try:
        code = attune.main(arguments, prog_name="attune", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else Exit.OK
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return Exit.USAGE
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return Exit.INTERRUPTED
    except BrokenPipeError:
        # The reader went away, as `head` does. What is still buffered must not raise again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.FAILED
    except Exception as error:
        code = exit_code_of(error)
        if code is None:
            raise
        _complain(error)
        return code


def _complain(error: Exception) -> None:
    first, *rest = describe(error)
    click.secho(f"attune: {first}", err=True, fg="red" if _colours() else None)
    for line in rest:
        click.echo(line, err=True)


def _colours() -> bool:
    return sys.stderr.isatty() and not os.environ.get("NO_COLOR")


if __name__ == "__main__":
    main()
