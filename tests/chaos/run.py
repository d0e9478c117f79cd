"""Kills processes for as long as asked, on the transport asked for, and says what every witness saw.

make chaos SEED=7 MINUTES=5 TRANSPORT=rabbitmq
"""

from __future__ import annotations

import argparse
import asyncio
import json
import secrets
import sys
import time
from contextlib import AsyncExitStack

from tests.chaos.kills import VICTIMS, KillPlan, Outcome, run_kills
from tests.witness.platform import running_platform
from tests.witness.servers import start_rabbitmq

EXECUTIONS = 500
ROUNDS = 5


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
            plan = KillPlan(
                rounds=arguments.rounds,
                count=arguments.executions,
                idempotent=seed % 2 == 0,
                seed=seed,
                victims=arguments.victims or VICTIMS,
            )
            if not await run_once(plan, transport, settings):
                return 1
            seed += 1
            if time.monotonic() > until:
                return 0


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
    sys.stdout.write(json.dumps(report) + "\n")
    sys.stdout.flush()
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
    others = set(outcome.statuses) - {"succeeded"}
    if plan.idempotent and others:
        found.append(f"not all succeeded: {dict(outcome.statuses)} {dict(outcome.codes)}")
    if not plan.idempotent and (others - {"failed"} or set(outcome.codes) - {"worker_lost"}):
        found.append(f"failed for another reason than a lost worker: {dict(outcome.codes)}")
    return found


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", default="")
    parser.add_argument("--minutes", default="")
    parser.add_argument("--transport", default="", choices=["", "postgres", "rabbitmq"])
    parser.add_argument("--executions", type=int, default=EXECUTIONS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--victims", nargs="*", help=f"whom to kill; all of {', '.join(VICTIMS)} unless named")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(asyncio.run(main(parse())))
