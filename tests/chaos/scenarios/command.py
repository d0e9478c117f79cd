"""Runs one of the narrower scenarios for as long as asked: kills, a storm over lines, or a restart of everything.

make chaos ARGS="--scenario kills" SEED=7 MINUTES=5 TRANSPORT=rabbitmq
make chaos SEED=7 ARGS="--scenario lines --executions 10000 --lines 50"
make chaos ARGS="--scenario restart --executions 10000"
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import secrets
import sys
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack

import asyncpg

from tests.chaos.scenarios.kills import VICTIMS, KillPlan, Outcome, run_kills
from tests.chaos.scenarios.restart import OPTIONS, SETTINGS, run_restart
from tests.chaos.scenarios.score import IDLE_SECONDS_MAX, Score, judge
from tests.chaos.scenarios.storm import StormPlan, make_storm, run_storm
from tests.witness.platform import running_platform
from tests.witness.servers import start_rabbitmq

KILLS = "kills"
LINES = "lines"
RESTART = "restart"
SCENARIOS = (KILLS, LINES, RESTART)
EXECUTIONS = {KILLS: 500, LINES: 10_000, RESTART: 10_000}
ROUNDS = 5
# How often an executor dies for so many executions, unless it was said.
EXECUTIONS_PER_KILL = 500


async def main(arguments: argparse.Namespace) -> int:
    """One platform after another until the time is up; the first violation ends it."""
    seed = int(arguments.seed or secrets.randbelow(10**6))
    minutes = float(arguments.minutes or 1)
    transport = arguments.transport or "postgres"
    until = time.monotonic() + minutes * 60
    async with AsyncExitStack() as stack:
        settings = {}
        if transport == "rabbitmq":
            broker = await stack.enter_async_context(start_rabbitmq())
            settings["ATTUNE__MESSAGE_QUEUE__URL"] = broker.url()
        while True:
            if not await _run_scenario(arguments, seed, settings):
                return 1
            seed += 1
            if time.monotonic() > until:
                return 0


async def _run_scenario(arguments: argparse.Namespace, seed: int, settings: dict[str, str]) -> bool:
    if arguments.scenario == LINES:
        return await _blow(arguments, seed, settings)
    if arguments.scenario == RESTART:
        return await _restart(arguments, settings)
    return await run_once(_kill_plan(arguments, seed), arguments.transport or "postgres", settings)


async def _restart(arguments: argparse.Namespace, settings: Mapping[str, str]) -> bool:
    """One platform, of which everything is killed once and together."""
    async with running_platform(options=OPTIONS, settings={**SETTINGS, **settings}) as platform:
        outcome = await run_restart(platform, arguments.executions or EXECUTIONS[RESTART])
        check = await platform.run("check", "-o", "json", check=False)
    complaint = "" if check.code == 0 else check.out
    told = {"transport": arguments.transport or "postgres", "violations": outcome.violations, "check": complaint}
    _say(told | dataclasses.asdict(outcome))
    return not outcome.violations and not complaint


def _kill_plan(arguments: argparse.Namespace, seed: int) -> KillPlan:
    return KillPlan(
        rounds=arguments.rounds,
        count=arguments.executions or EXECUTIONS[KILLS],
        idempotent=seed % 2 == 0,
        seed=seed,
        victims=arguments.victims or VICTIMS,
    )


async def _blow(arguments: argparse.Namespace, seed: int, settings: Mapping[str, str]) -> bool:
    """One platform, one storm over its lines."""
    executions = arguments.executions or EXECUTIONS[LINES]
    kills = max(1, executions // EXECUTIONS_PER_KILL) if arguments.kills is None else arguments.kills
    plan = StormPlan(executions=executions, lines=arguments.lines, seed=seed, kills=kills)
    begin = time.monotonic()
    score, check = await weather(plan, settings)
    transport = arguments.transport or "postgres"
    told = {"transport": transport, "seed": seed, "seconds": round(time.monotonic() - begin, 1), "check": check}
    _say(told | score.report)
    return not score.faults and not check and max(score.gaps, default=0.0) <= IDLE_SECONDS_MAX


async def weather(plan: StormPlan, settings: Mapping[str, str]) -> tuple[Score, str]:
    """A platform with three executors under a storm: what the witnesses say, and what `attune check` complains of."""
    # No worker dies here, so none shall look dead on a machine that is busy.
    settings = {"ATTUNE__WORKER__HEARTBEAT_INTERVAL": "10", **settings}
    async with running_platform(options=["--scale", "executor=3"], settings=settings) as platform:
        url = (await platform.run("db", "url")).out.strip()
        async with platform.client() as client, asyncpg.create_pool(url, min_size=1, max_size=4) as database:
            storm = make_storm(platform, client, database, plan)
            await run_storm(storm)
            score = await judge(storm)
        check = await platform.run("check", "-o", "json", check=False)
    return score, "" if check.code == 0 else check.out


def _say(report: Mapping[str, object]) -> None:
    sys.stdout.write(json.dumps(report) + "\n")
    sys.stdout.flush()


async def run_once(plan: KillPlan, transport: str, settings: dict[str, str]) -> bool:
    """One platform, one plan."""
    begin = time.monotonic()
    async with running_platform(settings=settings) as platform:
        outcome = await run_kills(platform, plan)
        check = await platform.run("check", "-o", "json", check=False)
    problems = violations(plan, outcome) + ([] if check.code == 0 else [f"attune check: {check.out}"])
    report = {
        "transport": transport,
        "seed": plan.seed,
        "idempotent": plan.idempotent,
        "seconds": round(time.monotonic() - begin, 1),
        "accepted": len(outcome.accepted),
        "unanswered_requests": outcome.unknown,
        "kills": dict(outcome.kills),
        "statuses": dict(outcome.statuses),
        "codes": dict(outcome.codes),
        "messages": outcome.messages,
        "attempts": dict(outcome.attempts),
        "violations": problems,
    }
    _say(report)
    return not problems


def violations(plan: KillPlan, outcome: Outcome) -> list[str]:
    """Everything that breaks the promise."""
    found = []
    if outcome.missing:
        found.append(f"accepted and gone: {outcome.missing}")
    if outcome.doubled_starts:
        found.append(f"started twice in one attempt: {outcome.doubled_starts}")
    if sum(outcome.statuses.values()) != plan.count:
        found.append(f"{sum(outcome.statuses.values())} executions exist, {plan.count} were asked for")
    if outcome.unexplained:
        found.append(f"tried again though no worker was killed: {outcome.unexplained}")
    others = set(outcome.statuses) - {"succeeded"}
    if plan.idempotent and others:
        found.append(f"not all succeeded: {dict(outcome.statuses)} {dict(outcome.codes)}")
    if not plan.idempotent and (others - {"failed"} or set(outcome.codes) - {"worker_lost"}):
        found.append(f"failed for another reason than a lost worker: {dict(outcome.codes)}")
    return found


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What only these scenarios take."""
    parser.add_argument("--executions", type=int, default=0, help=f"{EXECUTIONS} unless named")
    parser.add_argument("--lines", type=int, default=50, help="over how many lines a storm goes")
    parser.add_argument("--kills", type=int, default=None, help="how often a storm kills an executor")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--victims", nargs="*", help=f"whom to kill; all of {', '.join(VICTIMS)} unless named")
