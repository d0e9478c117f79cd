"""Kills processes of a platform, one after the other, while executions flow; then asks every witness what happened."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import httpx2

from attune.cli.bench.killing import Outage, find_unexplained
from attune.storage.database import Database
from attune.storage.upkeep.yardstick import list_left_attempts
from tests.witness.ledger import Ledger, ledger_command
from tests.witness.platform import Platform
from tests.witness.waiting import until

VICTIMS = ("api-1", "executor-1", "worker-1", "sensor-1", "notifier-1", "postgres")
TRACE_TAG = "chaos"
BATCH = 5
# Long enough that a kill always meets some of them running.
WORK_SECONDS = 0.5
# About how long it takes to kill one process and see it come back; requests are spread over all of it.
KILL_SECONDS = 1.2
BACK_SECONDS = 60.0
FINISH_SECONDS = 240.0
PAGE = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class KillPlan:
    """How much work flows, and how often each victim dies meanwhile."""

    rounds: int
    count: int
    idempotent: bool
    seed: int
    victims: Sequence[str] = VICTIMS


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What the clients, the database and the ledger say afterwards."""

    accepted: list[int] = field(default_factory=list)
    unknown: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)
    codes: Counter[str] = field(default_factory=Counter)
    # The first message of each code.
    messages: dict[str, str] = field(default_factory=dict)
    attempts: Counter[int] = field(default_factory=Counter)
    doubled_starts: list[tuple[int, int]] = field(default_factory=list)
    missing: list[int] = field(default_factory=list)
    outages: list[Outage] = field(default_factory=list)
    # Second attempts for which no killed worker or database can be blamed.
    unexplained: list[str] = field(default_factory=list)


def write_pack(folder: Path, ledger: Path, *, idempotent: bool) -> None:
    """A pack with one action that tells the ledger when it starts and ends."""
    (folder / "actions").mkdir(parents=True)
    (folder / "pack.yaml").write_text("ref: chaos\nversion: 1.0.0\n")
    (folder / "actions" / "work.yaml").write_text(
        "ref: chaos.work\n"
        "runner: shell\n"
        "command: |\n"
        + "".join(f"  {line}\n" for line in ledger_command(ledger, body=f"sleep {WORK_SECONDS}").splitlines())
        + f"idempotent: {str(idempotent).lower()}\n"
        "timeout_seconds: 60\n"
    )


async def run_kills(platform: Platform, plan: KillPlan) -> Outcome:
    """Let executions flow while every victim is killed once a round."""
    ledger = Ledger(platform.home / "ledger.txt")
    ledger.create()
    write_pack(platform.home / "chaos-pack", ledger.path, idempotent=plan.idempotent)
    await platform.run("pack", "install", str(platform.home / "chaos-pack"))
    outcome = Outcome()
    dice = random.Random(plan.seed)
    async with platform.client() as client:
        killed = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_keep_requesting(client, outcome, plan, killed=killed))
            tasks.create_task(_keep_killing(platform, outcome, plan, dice=dice, killed=killed))
        await until(lambda: _all_ended(client, outcome), seconds=FINISH_SECONDS)
        await _collect(client, outcome)
        await _ask_for_unexplained(platform, outcome)
    outcome.doubled_starts = ledger.doubled_starts()
    return outcome


async def _keep_requesting(
    client: httpx2.AsyncClient, outcome: Outcome, plan: KillPlan, *, killed: asyncio.Event
) -> None:
    """Ask in small batches until enough were accepted; spread out, so that every kill meets work under way."""
    pause = KILL_SECONDS * plan.rounds * len(plan.victims) / (plan.count / BATCH)
    number = 0
    while len(outcome.accepted) < plan.count:
        number += 1
        size = min(BATCH, plan.count - len(outcome.accepted))
        body = {"executions": [{"action_ref": "chaos.work", "parameters": {}, "trace_tag": TRACE_TAG}] * size}
        await _request(client, outcome, body, key=f"chaos-{number}")
        if not killed.is_set():
            await asyncio.sleep(pause)


async def _request(client: httpx2.AsyncClient, outcome: Outcome, body: object, *, key: str) -> None:
    """Repeat under the same key until there is an answer: what was accepted unheard is then answered again."""
    while True:
        try:
            answer = await client.post("/api/v1/executions:batch", json=body, headers={"Idempotency-Key": key})
        except httpx2.HTTPError:
            outcome.unknown += 1
        else:
            if answer.status_code == httpx2.codes.ACCEPTED:
                outcome.accepted += [each["id"] for each in answer.json()["executions"]]
                return
            assert answer.status_code >= httpx2.codes.INTERNAL_SERVER_ERROR, answer.text
        await asyncio.sleep(0.1)


async def _keep_killing(
    platform: Platform, outcome: Outcome, plan: KillPlan, *, dice: random.Random, killed: asyncio.Event
) -> None:
    for _ in range(plan.rounds):
        for victim in dice.sample(plan.victims, len(plan.victims)):
            began = time.time()
            killed_pid = await platform.kill(victim)
            if killed_pid is not None:
                outcome.kills[victim] += 1
            await until(partial(platform.is_back, victim, killed_pid), seconds=BACK_SECONDS)
            outcome.outages.append(Outage(victim=victim, began=began, ended=time.time()))
            await asyncio.sleep(dice.uniform(0.1, 0.9))
    killed.set()


async def _all_ended(client: httpx2.AsyncClient, outcome: Outcome) -> bool:
    try:
        rows = await _list(client)
    except httpx2.HTTPError:
        return False
    ended = {row["id"] for row in rows if row["ended_at"]}
    return ended.issuperset(outcome.accepted) and len(ended) == len(rows)


async def _list(client: httpx2.AsyncClient) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    cursor: str | None = None
    while True:
        parameters = {"trace_tag": TRACE_TAG, "limit": str(PAGE)} | ({"cursor": cursor} if cursor else {})
        answer = await client.get("/api/v1/executions", params=parameters)
        answer.raise_for_status()
        page = answer.json()
        rows += page["items"]
        cursor = page["next_cursor"]
        if cursor is None:
            return rows


async def _collect(client: httpx2.AsyncClient, outcome: Outcome) -> None:
    rows = await _list(client)
    found = {row["id"] for row in rows}
    outcome.missing = [each for each in outcome.accepted if each not in found]
    for row in rows:
        outcome.statuses[str(row["status"])] += 1
        outcome.attempts[int(str(row["attempt"]))] += 1
        error = row["error"]
        if isinstance(error, dict):
            outcome.codes[str(error["code"])] += 1
            outcome.messages.setdefault(str(error["code"]), str(error["message"]))


async def _ask_for_unexplained(platform: Platform, outcome: Outcome) -> None:
    """Each attempt that was not the last must have been on a worker that was killed, or could not reach PostgreSQL."""
    database = await Database.connect((await platform.run("db", "url")).out.strip(), size=1)
    try:
        async with database.reading() as tx:
            left = await list_left_attempts(tx, TRACE_TAG)
    finally:
        await database.close()
    outcome.unexplained = [f"{each.execution_id}: {each.reason}" for each in find_unexplained(left, outcome.outages)]
