"""`attune bench`: how fast Attune is on this machine, and whether it keeps its promises while it is."""

import os
from typing import TYPE_CHECKING, Final, TypedDict, Unpack

import click

from attune.cli.bench.workloads import NAMES, QUICK_NAMES, RUNTIMES
from attune.cli.exits import CommandFailed, Exit, UsageFailed
from attune.cli.options import output_option
from attune.cli.render import Format, show_document, talk

if TYPE_CHECKING:
    import asyncio

    from attune.cli.bench.run import Findings, Plan

BROKER_VARIABLE: Final = "ATTUNE__MESSAGE_QUEUE__URL"
REPETITIONS: Final = 5
BATCH: Final = 100
IDLE_SECONDS: Final = 15.0


class Options(TypedDict):
    """What may stand on the command line."""

    quick: bool
    full: bool
    workload: tuple[str, ...]
    runtime: tuple[str, ...]
    executions: int | None
    batch: int
    transport: str | None
    url: str | None
    repeat: int | None
    idle: float | None
    output: Format


@click.command()
@click.option("--quick", is_flag=True, help="About a minute: W1, W2, W3, smaller and once.")
@click.option("--full", is_flag=True, help="Also a backlog of a million in W5.")
@click.option(
    "--workload", type=click.Choice(NAMES), multiple=True, help="Only this one. May be repeated. Default: all."
)
@click.option("--runtime", type=click.Choice(RUNTIMES), multiple=True, help="Only this one. Default: all.")
@click.option("--executions", type=click.IntRange(1, 1_000_000), help="So many in every workload.")
@click.option(
    "--batch",
    type=click.IntRange(1, 1000),
    default=BATCH,
    show_default=True,
    help="Executions in one request; 1 sends single requests, one after the other.",
)
@click.option(
    "--transport",
    type=click.Choice(["postgres", "rabbitmq"]),
    help="What carries messages. Default: rabbitmq if --url is given, else postgres.",
)
@click.option("--url", help=f"RabbitMQ to use, in a virtual host that nobody uses. Default: {BROKER_VARIABLE}.")
@click.option("--repeat", type=click.IntRange(1, 100), help=f"Repetitions. Default: {REPETITIONS}, with --quick 1.")
@click.option(
    "--idle",
    type=click.FloatRange(0, 600),
    help=f"Seconds to watch a platform with nothing to do. Default: {IDLE_SECONDS:.0f}; 0 with --quick or --workload.",
)
@output_option()
@click.pass_context
def bench(context: click.Context, **options: Unpack[Options]) -> None:
    """Measure Attune on this machine.

    Starts a platform of its own that is gone afterwards; yours is not touched. Exit code 1 if order, a limit or an
    execution was broken.
    """
    from attune.cli.bench.report import VIEW, document_of, is_clean

    plan = _plan(options)
    document = document_of(_run(plan), transport=plan.transport)
    rows = document["workloads"]
    assert isinstance(rows, list)  # noqa: S101  Made by us a moment ago.
    show_document(document, VIEW, rows, options["output"])
    context.exit(Exit.OK if is_clean(rows) else Exit.FAILED)


def _plan(options: Options) -> "Plan":
    from attune.cli.bench.run import Plan

    quick, idle = options["quick"], options["idle"]
    default = 0.0 if quick or options["workload"] else IDLE_SECONDS
    return Plan(
        names=options["workload"] or (QUICK_NAMES if quick else NAMES),
        runtimes=options["runtime"] or RUNTIMES,
        quick=quick,
        full=options["full"],
        executions=options["executions"],
        batch=options["batch"],
        repeat=options["repeat"] or (1 if quick else REPETITIONS),
        broker_url=_broker_url(options),
        idle_seconds=default if idle is None else idle,
    )


def _broker_url(options: Options) -> str | None:
    """Only a broker that was asked for by name: one that happens to be set is the person's own."""
    url = options["url"]
    if options["transport"] == "postgres":
        if url:
            raise UsageFailed("--url is for --transport rabbitmq")
        return None
    if options["transport"] is None:
        return url
    found = url or os.environ.get(BROKER_VARIABLE)
    if not found or not found.startswith("amqp"):
        raise UsageFailed(f"--transport rabbitmq needs --url amqp://… or {BROKER_VARIABLE}")
    return found


def _run(plan: "Plan") -> "Findings":
    """Measure until done, or until a signal asks to stop; either way the platform is taken down first."""
    import asyncio
    import signal

    from attune.cli.bench.run import run_bench

    async def main() -> "Findings":
        measuring = asyncio.create_task(run_bench(plan, talk))
        for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            # Only the first counts: a second must not interrupt the cleaning up.
            asyncio.get_running_loop().add_signal_handler(each, _cancel_once, measuring)
        return await measuring

    try:
        return asyncio.run(main())
    except asyncio.CancelledError as error:
        raise click.Abort from error
    except TimeoutError as error:
        message = f"the platform that was measured stood still: {str(error) or 'nothing happened any more'}"
        raise CommandFailed(message, exit_code=Exit.TIMEOUT) from error


def _cancel_once(task: "asyncio.Task[Findings]") -> None:
    if not task.cancelling():
        talk("stopping; taking the platform down")
        task.cancel()
