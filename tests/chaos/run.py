"""Harms a platform of its own in every way there is while work flows, and says what every witness saw.

make chaos SEED=7 MINUTES=10 TRANSPORT=rabbitmq
make chaos SEED=7 ARGS="--control"
make chaos ARGS="--plan FOLDER/plan.json"
make chaos SEED=7 ARGS="--scenario lines --executions 10000 --lines 50"
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

from attune.runtime.failpoints.once import coverage as coverage_of
from tests.chaos.full import Outcome, run_plan
from tests.chaos.plan import Plan, make_plan, read_plan
from tests.chaos.scenarios import command as scenarios
from tests.chaos.stage import failpoints_to_arm
from tests.chaos.summary import Summary, shown

EVERYTHING = "everything"
# One seed with its beginning and end takes about twice this.
CHAOS_SECONDS = 75.0
CHAOS_SECONDS_MIN = 10.0
# What a seed takes besides its chaos.
BESIDE_SECONDS = 60.0


async def main(arguments: argparse.Namespace) -> int:
    """One seed after another until the time is up; the first violation ends it, unless told otherwise."""
    this = asyncio.current_task()
    assert this is not None
    # Whoever ends a run wants what it started to end too.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, this.cancel)
    total: Summary | None = None
    for plan in _plans(arguments):
        outcome = await run_plan(plan, coverage=arguments.coverage, keep=arguments.keep)
        _tell(outcome)
        total = outcome.summary if total is None else total + outcome.summary
        if not total.ok and not arguments.keep_going:
            break
    assert total is not None
    _close(total, arguments.coverage)
    return 0 if total.ok else 1


def _plans(arguments: argparse.Namespace) -> Iterator[Plan]:
    """The plan of each seed, while there is time for another one."""
    if arguments.plan:
        plan = read_plan(Path(arguments.plan).read_text())
        yield plan.without_faults() if arguments.control else plan
        return
    seed = int(arguments.seed or secrets.randbelow(10**6))
    minutes = float(arguments.minutes or 0)
    end = monotonic() + minutes * 60
    chaos_seconds = CHAOS_SECONDS
    if minutes:
        chaos_seconds = min(CHAOS_SECONDS, max(CHAOS_SECONDS_MIN, minutes * 60 - BESIDE_SECONDS))
    while True:
        transport = arguments.transport or "postgres"
        plan = make_plan(seed, transport, chaos_seconds=chaos_seconds, failpoints=failpoints_to_arm())
        yield plan.without_faults() if arguments.control else plan
        seed += 1
        if monotonic() + chaos_seconds > end:
            return


def _tell(outcome: Outcome) -> None:
    for line in shown(outcome.verdict):
        _say(line)
    if outcome.folder is not None:
        _say(f"kept in {outcome.folder}: plan, client log, ledger, logs of services, tables")
    _say(f"{outcome.summary.line()}")


def _close(total: Summary, coverage: Path | None) -> None:
    for line in total.table():
        _say(line)
    if coverage is not None and coverage.is_dir():
        _say(str(coverage_of(coverage)))
    _say(total.line())


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", default="")
    parser.add_argument("--minutes", default="", help="in all; several seeds follow each other. Default: one seed")
    parser.add_argument("--transport", default="", choices=["", "postgres", "rabbitmq"])
    parser.add_argument("--scenario", default=EVERYTHING, choices=[EVERYTHING, *scenarios.SCENARIOS])
    parser.add_argument("--control", action="store_true", help="the same work without faults: nothing may be mended")
    parser.add_argument("--plan", default="", help="run a plan that an earlier run has kept")
    parser.add_argument("--coverage", type=Path, default=None, help="folder that remembers failpoints over runs")
    parser.add_argument("--keep", action="store_true", help="keep what was written down even if nothing is broken")
    parser.add_argument("--keep-going", action="store_true", help="go on after a violation")
    scenarios.add_arguments(parser)
    return parser.parse_args()


if __name__ == "__main__":
    given = parse()
    sys.exit(asyncio.run(main(given) if given.scenario == EVERYTHING else scenarios.main(given)))
