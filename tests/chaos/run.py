"""Harms a platform of its own in every way there is while work flows, and says what every witness saw.

make chaos SEED=7 MINUTES=10 TRANSPORT=rabbitmq
make chaos SEED=7 ARGS="--control"
make chaos ARGS="--plan FOLDER/plan.json"
make chaos MINUTES=40 TRANSPORT=rabbitmq ARGS="--until-covered"
make chaos SEED=7 ARGS="--scenario lines --executions 10000 --lines 50"
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

from tests.chaos.full import Outcome, run_plan
from tests.chaos.kinds import BROKER, POSTGRES
from tests.chaos.plan import Plan, make_plan, read_plan
from tests.chaos.points.coverage import RECORD, Coverage
from tests.chaos.scenarios import command as scenarios
from tests.chaos.stage import failpoints_to_arm
from tests.chaos.summary import Summary, shown
from tests.witness.waiting import cancel_when_told_to_end

EVERYTHING = "everything"
# One seed with its beginning and end takes about twice this.
CHAOS_SECONDS = 75.0
CHAOS_SECONDS_MIN = 10.0
# What a seed takes besides its chaos.
BESIDE_SECONDS = 60.0
UNTIL_COVERED_MINUTES = "60"


async def main(arguments: argparse.Namespace) -> int:
    """One seed after another until the time is up; the first violation ends it, unless told otherwise."""
    cancel_when_told_to_end()
    total: Summary | None = None
    covered = Coverage() if arguments.coverage is None else Coverage.read(arguments.coverage)
    for plan in _plans(arguments, covered):
        outcome = await run_plan(plan, keep=arguments.keep)
        _tell(outcome)
        if outcome.summary.ok:
            # To have died where a promise was broken proves nothing.
            covered.note(plan.transport, outcome.reached)
        if arguments.coverage is not None:
            covered.write(arguments.coverage)
        total = outcome.summary if total is None else total + outcome.summary
        if not total.ok and not arguments.keep_going:
            break
    return close(total, covered, arguments)


def _plans(arguments: argparse.Namespace, covered: Coverage) -> Iterator[Plan]:
    """The plan of each seed, while there is time for another one, or a failpoint at which nobody has died."""
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
    transport = arguments.transport or POSTGRES
    while True:
        wanted = covered.missing(transport) if arguments.until_covered else ()
        if arguments.until_covered and not wanted:
            return
        plan = make_plan(
            seed, transport, chaos_seconds=chaos_seconds, failpoints=failpoints_to_arm(transport), wanted=wanted
        )
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


def close(total: Summary | None, covered: Coverage, arguments: argparse.Namespace) -> int:
    """What all seeds came to; a point that was to be reached and was not is no success."""
    transport = arguments.transport or POSTGRES
    for line in [] if total is None else total.table():
        _say(line)
    if arguments.coverage is not None:
        for line in covered.told(transport):
            _say(line)
    if total is None:
        return 0
    _say(total.line())
    return 0 if total.ok and not (arguments.until_covered and covered.missing(transport)) else 1


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", default="")
    parser.add_argument("--minutes", default="", help="in all; several seeds follow each other. Default: one seed")
    parser.add_argument("--transport", default="", choices=["", POSTGRES, BROKER])
    parser.add_argument("--scenario", default=EVERYTHING, choices=[EVERYTHING, *scenarios.SCENARIOS])
    parser.add_argument("--control", action="store_true", help="the same work without faults: nothing may be mended")
    parser.add_argument("--plan", default="", help="run a plan that an earlier run has kept")
    parser.add_argument("--coverage", type=Path, default=None, help="file that remembers failpoints over runs")
    parser.add_argument(
        "--until-covered", action="store_true", help="go on until a process was killed at every failpoint"
    )
    parser.add_argument("--keep", action="store_true", help="keep what was written down even if nothing is broken")
    parser.add_argument("--keep-going", action="store_true", help="go on after a violation")
    scenarios.add_arguments(parser)
    arguments = parser.parse_args()
    if arguments.until_covered:
        arguments.coverage = arguments.coverage or RECORD
        arguments.minutes = arguments.minutes or UNTIL_COVERED_MINUTES
    return arguments


if __name__ == "__main__":
    given = parse()
    sys.exit(asyncio.run(main(given) if given.scenario == EVERYTHING else scenarios.main(given)))
