"""The step in the database and its specification agree on thousands of histories, many lines in one transaction."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict
from datetime import timedelta
from random import Random

import pytest

from attune.domain.adaptive import Decision
from attune.domain.admission import Rate
from attune.domain.definitions import Adaptive, AdaptiveTarget
from attune.domain.execution import TERMINAL, Change, Failure, Status
from attune.operations.change_executions import change_executions
from attune.operations.place_newcomers import place_newcomers
from attune.storage import executions, lines
from attune.storage.database import Database
from attune.storage.line_upkeep import sweeps
from attune.storage.line_upkeep.sweeps import Adapting
from attune.storage.tx import Tx
from tests.simulation.deeds import Ask, Scene, Steer, group_key
from tests.simulation.model import Model, check_log, expected, read
from tests.witness.arrange import always_half, make_action, make_worker
from tests.witness.lines import make_policy, nothing_is_broken, release

LINES = 250
# Each is an action of its own with LINES lines; the full run sets 42 and more, for ten thousand histories.
ACTIONS = int(os.environ.get("ATTUNE_SIMULATION_ACTIONS", "8"))
ROUNDS = 5
JOINING = 500
# Small, so that steps often stop at it.
ADMITTED_MAX = 3
WINDOW = timedelta(hours=1)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(ACTIONS))
async def test_the_step_and_its_specification_agree(database: Database, seed: int) -> None:
    random = Random(seed)
    model = Model(
        limit=random.choice([None, 1, 1, 2, 3]),
        rate=Rate(max=random.randint(1, 4), window=WINDOW) if seed % 3 == 0 else None,
        admitted_max=ADMITTED_MAX,
    )
    if seed % 4 == 1:
        model.limit, model.adaptive = model.limit or 3, draw_bounds(random)
    scene = await arrange(database, model)

    for _ in range(ROUNDS):
        await join(database, scene, model, random)
        await steer(database, scene, model, random)
        await end_some(database, model, random)
        await step(database, scene, model, random)
        await compare(database, scene, model)
        await adapt(database, scene, model, random)
        await compare(database, scene, model)
        await change_outside(database, scene, model, random)
    assert len(model.lines) > LINES / 2
    # On a slow machine those of whose end nobody was told would have held their slots suspiciously long by now.
    await release(database, sorted(model.ended))
    await nothing_is_broken(database)


async def arrange(database: Database, model: Model) -> Scene:
    action_id = await make_action(database)
    worker = await make_worker(database, capacity=1_000_000, heartbeat_interval=100_000.0)
    rate = model.rate
    limits: dict[str, object] = {"concurrency": {"parameters": ["g"], "limit": model.limit or 1}}
    if rate:
        limits["rate_limit"] = {"max": rate.max, "window_seconds": WINDOW.total_seconds(), "method": "delay"}
    await make_policy(database, **limits)
    await set_limits(database, model)
    return Scene(action_ref="demo.work", scope=f"action:{action_id}", worker=worker)


def draw_bounds(random: Random) -> Adaptive:
    """A limit that moves, in half of the cases from below."""
    target = random.choice([None, AdaptiveTarget(failure_rate=0.5)])
    return Adaptive(min=random.randint(1, 2), max=random.randint(3, 5), target=target)


async def set_limits(database: Database, model: Model) -> None:
    async with database.transaction() as tx:
        adaptive = None if model.adaptive is None else asdict(model.adaptive)
        await tx.execute("UPDATE policy SET max_concurrent = $1, adaptive = $2", model.limit, adaptive)


async def join(database: Database, scene: Scene, model: Model, random: Random) -> None:
    """Some groups get many, most get few."""
    items = [(f"g{int(LINES * random.random() ** 2)}", random.choice([0, 0, 0, 5])) for _ in range(JOINING)]
    deed = Ask(items=items)
    async with database.transaction() as tx:
        ids = await deed.do(tx, scene)
    deed.apply(model, scene, ids)


async def steer(database: Database, scene: Scene, model: Model, random: Random) -> None:
    for group in random.sample(sorted(model.lines), 10):
        deed = Steer(group=group, pauses=random.random() < 0.5)
        async with database.transaction() as tx:
            await deed.do(tx, scene)
        deed.apply(model, scene, None)


async def end_some(database: Database, model: Model, random: Random) -> None:
    """End a third of those who live, and in a few lines everybody but the last who waits."""
    crowded = set(random.sample(sorted(model.lines), len(model.lines) // 10))
    live = [execution_id for execution_id in model.executions if execution_id not in model.ended]
    chosen = [each for each in live if random.random() < 1 / 3 or model.group_of[each] in crowded]
    spared = {
        max(line.waiting, key=lambda entry: entry.place).execution_id
        for group, line in model.lines.items()
        if line.waiting and group in crowded
    }
    ending = [execution_id for execution_id in chosen if execution_id not in spared]
    async with database.transaction() as tx:
        await cancel(tx, ending)
    model.ended.update(ending)


async def cancel(tx: Tx, ids: Sequence[int]) -> None:
    locked = await executions.lock_many(tx, ids)
    changes = [
        Change(
            execution_id=execution_id,
            current=row.running.status,
            attempt=row.running.attempt,
            target=Status.CANCELLED,
            actor="ana",
            reason="cancel requested",
            failure=Failure(code="cancelled", message="cancelled by ana", by="ana"),
        )
        for execution_id, row in locked.items()
        if row.running.status not in TERMINAL
    ]
    assert len(await change_executions(tx, changes)) == len(ids)


async def step(database: Database, scene: Scene, model: Model, random: Random) -> None:
    """One step for most lines, told of some who ended, of some of them again, and of some who did not end."""
    told = [each for each in model.executions if random.random() < 0.3]
    async with database.transaction() as tx:
        rows = await tx.fetch("SELECT id, group_key FROM line WHERE scope = $1", scene.scope)
        group_of = {row["id"]: row["group_key"] for row in rows}
        chosen = [line_id for line_id in group_of if random.random() < 0.8]
        left = {line_id for line_id, group in group_of.items() if stands_in(model, group, told)}
        admitted = await lines.admit(tx, chosen, told, limit=ADMITTED_MAX)
        for pool in sorted({pool for _, pool in admitted.waiting}):
            mine = [item for item, its_pool in admitted.waiting if its_pool == pool]
            await place_newcomers(tx, mine, pool=pool, current=Status.QUEUED, actor="test", draw=always_half)
        assert await find_forgotten(tx, [*left, *chosen]) == []
    again = model.step([group_of[line_id] for line_id in left.union(chosen)], told)
    at_once = {group_of[line_id] for line_id, seconds in admitted.wake_seconds.items() if seconds == 0}
    assert at_once == again


async def adapt(database: Database, scene: Scene, model: Model, random: Random) -> None:
    """Limits move by themselves in some of the lines in which they do; what moves them is not the question here."""
    if model.adaptive is None:
        return
    async with database.transaction() as tx:
        rows = await tx.fetch("SELECT id, group_key FROM line WHERE scope = $1", scene.scope)
        groups = {row["id"]: row["group_key"] for row in rows if random.random() < 1 / 3}
        windows = await sweeps.read_windows(tx, list(groups))
        looks = [(line, move(line, random.randint(line.adaptive.min, line.adaptive.max))) for line in windows]
        changed = await sweeps.save_looks(tx, looks) if looks else []
    assert sorted(changed) == sorted(line.line_id for line, decision in looks if decision.limit != line.limit)
    for line, decision in looks:
        model.adapt(groups[line.line_id], decision.limit)


def move(line: Adapting, limit: int) -> Decision:
    return Decision(limit=limit, best_seconds=None, reason="chance" if limit != line.limit else "")


async def find_forgotten(tx: Tx, line_ids: Sequence[int]) -> list[str]:
    """Lines that only their rate holds back, and that nobody will look at when it no longer does."""
    return await tx.fetch_column(
        """
        SELECT l.group_key
          FROM line l JOIN policy p ON p.id = l.policy_id
         CROSS JOIN LATERAL (SELECT l.recent[(p.rate_limit ->> 'max')::int] + interval '1 hour' AS at) due
         WHERE l.id = ANY($1) AND l.waiting > 0 AND NOT l.paused AND COALESCE(l.active < l.max_concurrent, true)
           AND due.at > clock_timestamp()
           AND (l.wake_at IS NULL OR l.wake_at > due.at OR l.wake_at <= clock_timestamp())
        """,
        line_ids,
    )


def stands_in(model: Model, group: str, told: Sequence[int]) -> bool:
    line = model.lines[group]
    return not {entry.execution_id for entry in line.active | line.waiting}.isdisjoint(told)


async def compare(database: Database, scene: Scene, model: Model) -> None:
    async with database.reading() as tx:
        seen = await read(tx, scene.scope)
        rows = await tx.fetch("SELECT group_key, cardinality(recent) AS count FROM line WHERE scope = $1", scene.scope)
    wanted = expected(model)
    assert seen.keys() == wanted.keys()
    for group, line in wanted.items():
        assert seen[group] == line, group
        check_log(seen[group].log)
    assert {row["group_key"]: row["count"] for row in rows} == {
        group: len(line.recent) for group, line in model.lines.items()
    }


async def change_outside(database: Database, scene: Scene, model: Model, random: Random) -> None:
    """Another limit, hours later, and now and then without workers."""
    model.limit = random.choice([model.limit, None, 1, 2, 4])
    model.workers_live = random.random() < 0.8
    hours = random.choice([0, 2])
    model.let_time_pass(hours)
    if model.adaptive is not None or random.random() < 1 / 4:
        model.adaptive = draw_bounds(random) if model.limit and random.random() < 3 / 4 else None
    await set_limits(database, model)
    async with database.transaction() as tx:
        await tx.execute("UPDATE worker SET cordoned = $1", not model.workers_live)
        await tx.execute(
            "UPDATE line SET recent = ARRAY(SELECT at - $1::interval FROM unnest(recent) at)", timedelta(hours=hours)
        )
        # The log keeps its times; what it says of before is not to be judged by the rate.
        await tx.execute("UPDATE policy SET updated = clock_timestamp()")


def test_the_groups_of_lines_are_spelled_as_the_policy_does() -> None:
    assert group_key("g1") == '{"g":"g1"}'
