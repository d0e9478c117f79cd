"""A storm over lines: people ask, cancel, pause, clear, change limits; messages come twice, and executors die."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

import asyncpg
import httpx2

from tests.chaos.scenarios.tracks import LIMIT_MAX, Track, make_tracks, write_packs
from tests.witness.ledger import Ledger
from tests.witness.platform import Platform
from tests.witness.waiting import until

EXECUTORS = ("executor-1", "executor-2", "executor-3")
SUBMISSION_MAX = 8
CANCEL_CHANCE = 0.15
CLEAR_CHANCE = 0.03
PRIORITIES = (0, 0, 0, 0, 0, 0, 5, -5)
DEED_SECONDS = 0.3
PACE_SECONDS = 0.02
PAUSE_SECONDS = 0.6
BACK_SECONDS = 60.0
# How long the last may take after the storm is over.
FINISH_SECONDS = 600.0
# Each of these is told three times again, and as many dispatches once.
COPIES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class StormPlan:
    """How much work flows over how many lines, and how often an executor dies meanwhile."""

    executions: int
    lines: int
    seed: int
    kills: int


@dataclass(slots=True, kw_only=True)
class Storm:
    """A storm while it goes on."""

    platform: Platform
    client: httpx2.AsyncClient
    database: asyncpg.Pool
    tracks: Sequence[Track]
    dice: random.Random
    plan: StormPlan
    done: Counter[str] = field(default_factory=Counter)
    # How many executors were killed or found dead; clients ask for their next share when the next one dies.
    rounds: int = 0
    calm: asyncio.Event = field(default_factory=asyncio.Event)

    async def ask(self, method: str, path: str, body: object = None) -> httpx2.Response:
        """Ask, and while the answer is that it may work later, ask again: nothing was done yet."""
        while True:
            answer = await self.client.request(method, path, json=body)
            if answer.status_code != httpx2.codes.SERVICE_UNAVAILABLE:
                answer.raise_for_status()
                return answer
            self.done["put_off"] += 1
            await asyncio.sleep(PACE_SECONDS)

    async def in_time(self, part: float) -> None:
        """Wait until so much of the storm has passed, so that every kill meets work under way."""
        while part * self.plan.kills > self.rounds + 1:
            await asyncio.sleep(PACE_SECONDS)


async def run_storm(storm: Storm) -> None:
    """Let the storm pass, and wait until everything accepted has ended and every line is empty."""
    ledger = Ledger(storm.platform.home / "ledger.txt")
    ledger.create()
    for pack in write_packs(storm.platform.home / "storm-packs", storm.tracks, ledger.path):
        await storm.ask("POST", "/api/v1/packs:install", {"path": str(pack)})
    async with asyncio.TaskGroup() as tasks:
        deeds = [tasks.create_task(_keep(storm, deed)) for deed in (_pause, _change_limit, _copy_messages)]
        killing = tasks.create_task(_keep_killing(storm))
        await asyncio.gather(*(_keep_asking(storm, track) for track in storm.tracks), killing)
        storm.calm.set()
        await asyncio.gather(*deeds)
    await until(partial(_is_over, storm.database), seconds=FINISH_SECONDS)


def make_storm(platform: Platform, client: httpx2.AsyncClient, database: asyncpg.Pool, plan: StormPlan) -> Storm:
    """A storm that has not begun."""
    dice = random.Random(plan.seed)
    tracks = make_tracks(plan.lines, dice)
    return Storm(platform=platform, client=client, database=database, tracks=tracks, dice=dice, plan=plan)


async def _keep_asking(storm: Storm, track: Track) -> None:
    """One client: its next request is sent when the last was answered, so it knows its own order."""
    share, rest = divmod(storm.plan.executions, storm.plan.lines)
    wanted = share + (1 if storm.tracks.index(track) < rest else 0)
    while len(track.accepted) < wanted:
        await storm.in_time(len(track.accepted) / wanted)
        size = min(storm.dice.randint(1, SUBMISSION_MAX), wanted - len(track.accepted))
        asked = [
            {
                "action_ref": storm.dice.choice(track.refs),
                "parameters": dict(track.parameters),
                "priority": storm.dice.choice(PRIORITIES),
            }
            for _ in range(size)
        ]
        answer = await storm.ask("POST", "/api/v1/executions:batch", {"executions": asked})
        track.accepted += [each["id"] for each in answer.json()["executions"]]
        if storm.dice.random() < CANCEL_CHANCE:
            await _cancel(storm, track)
        if storm.dice.random() < CLEAR_CHANCE:
            await _clear(storm, track)


async def _cancel(storm: Storm, track: Track) -> None:
    """Somebody of the line, wherever it stands; most likely one of those who came last and still wait."""
    victim = storm.dice.choice(track.accepted[-20:])
    track.cancel_asked.add(victim)
    await storm.ask("POST", f"/api/v1/executions/{victim}/cancel")
    storm.done["cancels"] += 1


async def _line_of(storm: Storm, track: Track) -> int | None:
    if track.line_id is None and track.accepted:
        track.line_id = await storm.database.fetchval(
            "SELECT line_id FROM attune.execution WHERE id = $1", track.accepted[0]
        )
    return track.line_id


async def _clear(storm: Storm, track: Track) -> None:
    line_id = await _line_of(storm, track)
    track.cleared = len(track.accepted)
    await storm.ask("POST", f"/api/v1/lines/{line_id}/clear")
    storm.done["clears"] += 1


async def _keep(storm: Storm, deed: Callable[[Storm], Awaitable[None]]) -> None:
    while not storm.calm.is_set():
        await deed(storm)
        with suppress(TimeoutError):
            async with asyncio.timeout(storm.dice.uniform(0, DEED_SECONDS)):
                await storm.calm.wait()


async def _pause(storm: Storm) -> None:
    line_id = await _line_of(storm, storm.dice.choice(storm.tracks))
    if line_id is None:
        return
    await storm.ask("POST", f"/api/v1/lines/{line_id}/pause")
    await asyncio.sleep(storm.dice.uniform(0, PAUSE_SECONDS))
    await storm.ask("POST", f"/api/v1/lines/{line_id}/resume")
    storm.done["pauses"] += 1


async def _change_limit(storm: Storm) -> None:
    track = storm.dice.choice([each for each in storm.tracks if each.changeable])
    limit = storm.dice.randint(1, LIMIT_MAX)
    track.limits.add(limit)
    patch = {"concurrency": {"limit": limit}}
    await storm.ask("PATCH", f"/api/v1/policies/{track.policy_ref}", patch)
    storm.done["limits"] += 1


async def _copy_messages(storm: Storm) -> None:
    """Tell everybody again what was or was not yet told: ends, requests, lines, and dispatches.

    The rows look like messages whose delay is over, so that the relay of RabbitMQ takes them as soon as a consumer of
    the outbox would.
    """
    everybody = [execution_id for track in storm.tracks for execution_id in track.accepted]
    if not everybody:
        return
    told = [storm.dice.choice(everybody) for _ in range(COPIES)]
    copied = await storm.database.execute(
        """
        INSERT INTO attune.outbox (topic, type, items, created)
        SELECT topic, type, items, now() - interval '1 second' FROM (
            SELECT t AS topic, t AS type, jsonb_build_array(jsonb_build_array(id, attempt)) AS items
              FROM attune.execution, unnest(ARRAY['execution.completed', 'execution.requested']) AS t
             WHERE id = ANY ($1)
            UNION ALL
            SELECT 'line.changed', 'line.changed', jsonb_build_array(jsonb_build_array(line_id, 0))
              FROM attune.execution WHERE id = ANY ($1)
            UNION ALL
            (SELECT 'execution.dispatch.worker.' || worker_id, 'execution.dispatched',
                    jsonb_build_array(jsonb_build_array(execution_id, attempt))
               FROM attune.assignment ORDER BY execution_id LIMIT $2)) copies
        """,
        told,
        COPIES,
    )
    storm.done["copies"] += int(copied.rpartition(" ")[2])


async def _keep_killing(storm: Storm) -> None:
    """One executor after the other; each comes back before the next dies, so that somebody is always there."""
    for _ in range(storm.plan.kills):
        victim = storm.dice.choice(EXECUTORS)
        killed_pid = await storm.platform.kill(victim)
        storm.done["kills"] += 1 if killed_pid is not None else 0
        storm.rounds += 1
        await until(partial(storm.platform.is_back, victim, killed_pid), seconds=BACK_SECONDS)


async def _is_over(database: asyncpg.Pool) -> bool:
    left = await database.fetchval(
        """
        SELECT (SELECT count(*) FROM attune.execution WHERE ended_at IS NULL)
             + (SELECT count(*) FROM attune.line_entry) + (SELECT count(*) FROM attune.outbox)
        """
    )
    return not left
