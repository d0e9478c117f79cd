"""Each alert, provoked and resolved; told once, however many replicas look."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from uuid import uuid4

import pytest

from attune.domain.alerts.catalogue import ALERTS
from attune.domain.alerts.episodes import Alert, Episode, Turn
from attune.domain.execution import Failure
from attune.domain.messages import Message
from attune.domain.retry import Ending, Outcome
from attune.operations.access.write_audit import Actor
from attune.operations.dead_letters.drop_dead_letters import drop_dead_letters
from attune.operations.upkeep.evaluate_alerts import APART_SECONDS, evaluate_alerts
from attune.operations.upkeep.keep_house import ALERT_DAYS, Keeping, keep_house
from attune.operations.upkeep.store_counts import store_counts
from attune.operations.workers.cordon_worker import cordon_worker, uncordon_worker
from attune.operations.workers.quarantine_actions import LOSSES_MAX, count_losses, release_action
from attune.runtime.clock import utc_now
from attune.runtime.counts import Unstored
from attune.runtime.metrics import build_metrics
from attune.storage import dead_letters
from attune.storage.alerting import readings
from attune.storage.database import Database
from tests.witness.arrange import TestWorker, make_action, make_worker, place, request, start
from tests.witness.arrange_lines import make_line, make_policy
from tests.witness.lines import FAILED, end, nothing_is_broken
from tests.witness.past import LINES, make_past

ANA = Actor(name="ana")
LENGTH_MAX = 10_000
TIMED_OUT = Ending(outcome=Outcome.TIMEOUT, failure=Failure(code="timeout", message="took too long", by="test"))
# Looks until what a look remembers is no longer about the time of the trouble.
LOOKS_MAX = 15
# Two to begin with, seven to read, and those that write.
STATEMENTS_MAX = 14

Deed = Callable[[Database], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """How an alert comes about, and what ends it; some need a look that lies this many seconds back."""

    provoke: Deed
    cure: Deed
    since_seconds: float = 0.0


async def look(database: Database) -> Turn:
    async with database.transaction() as tx:
        return await evaluate_alerts(tx, default_length_max=LENGTH_MAX)


async def let_pass(database: Database, seconds: float) -> None:
    """As if everything that looks have written had been written earlier."""
    back = "- make_interval(secs => $1)"
    async with database.transaction() as tx:
        for column in ("since", "seen_at", "fired_at", "resolved_at"):
            await tx.execute(f"UPDATE alert SET {column} = {column} {back}", seconds)  # noqa: S608  written above
        await tx.execute(f"UPDATE alert_sample SET at = at {back}", seconds)  # noqa: S608  written above


def execute(*statements: str) -> Deed:
    async def do(database: Database) -> None:
        async with database.transaction() as tx:
            for statement in statements:
                await tx.execute(statement)

    return do


async def nothing(_database: Database) -> None:
    """Time alone heals."""


def ending(count: int, how: Ending) -> Deed:
    """Executions that end so, counted as a service would."""

    async def do(database: Database) -> None:
        metrics = build_metrics(version="test", service="worker")
        database.on_ended = metrics.count_ended
        worker = await make_worker(database, "runner", capacity=100, heartbeat_interval=1000)
        await execute("UPDATE worker SET cordoned = name <> 'runner'")(database)
        ids = await request(database, count=count)
        await place(database, ids)
        await end(database, worker, ids, how)
        await store_counts(database, Unstored(metrics.counts))

    return do


def dying(count: int) -> Deed:
    async def do(database: Database) -> None:
        message = Message(
            id=1,
            topic="pool.changed",
            type="pool.changed",
            items=(),
            deliveries=5,
            created=utc_now(),
            not_before=utc_now(),
        )
        async with database.transaction() as tx:
            for _ in range(count):
                await dead_letters.insert(tx, message, reason="failed too often", error="bug")

    return do


async def drop_all(database: Database) -> None:
    async with database.transaction() as tx:
        await drop_dead_letters(tx, await tx.fetch_column("SELECT id FROM dead_letter"), by=ANA)


async def wait_on_a_worker(database: Database) -> None:
    await place(database, await request(database))
    await execute("UPDATE assignment SET placed_at = now() - interval '6 minutes'")(database)


async def claim(database: Database) -> None:
    async with database.reading() as tx:
        row = await tx.fetch_row(
            "SELECT w.id, w.name, w.instance, a.execution_id FROM assignment a JOIN worker w ON w.id = a.worker_id"
        )
    assert row is not None
    worker = TestWorker(worker_id=row["id"], name=row["name"], instance=row["instance"])
    assert await start(database, worker, [(row["execution_id"], 1)])


async def cordon(database: Database) -> None:
    async with database.transaction() as tx:
        await cordon_worker(tx, 1, by=ANA)


async def uncordon(database: Database) -> None:
    async with database.transaction() as tx:
        await uncordon_worker(tx, 1, by=ANA)


def standing_in_line(count: int) -> Deed:
    async def do(database: Database) -> None:
        await make_line(database, waiting=count)

    return do


async def fill_a_line(database: Database) -> None:
    policy = await make_policy(database, "demo.limit", "demo.work", queue_timeout_seconds=None)
    async with database.transaction() as tx:
        await tx.execute("UPDATE policy SET max_queue_length = 20 WHERE id = $1", policy)
    await make_line(database, waiting=19, policy_id=policy)


async def stand_for_ten_minutes(database: Database) -> None:
    await make_line(database, active=1, waiting=1)
    await let_pass(database, APART_SECONDS)
    assert not (await look(database)).fired
    await let_pass(database, 601)


async def lose_workers(database: Database) -> None:
    async with database.transaction() as tx:
        assert await count_losses(tx, [(1, uuid4()) for _ in range(LOSSES_MAX)]) == [1]


async def release(database: Database) -> None:
    async with database.transaction() as tx:
        await release_action(tx, "demo.work", by=ANA)


EMPTY_LINE = execute("UPDATE line SET waiting = 0")
TROUBLES: Mapping[str, Trouble] = {
    "high_execution_timeout_rate": Trouble(provoke=ending(14, TIMED_OUT), cure=nothing, since_seconds=61),
    "no_active_workers": Trouble(provoke=cordon, cure=uncordon),
    "stale_executions": Trouble(provoke=wait_on_a_worker, cure=claim),
    "action_quarantined": Trouble(provoke=lose_workers, cure=release),
    "failure_rate": Trouble(provoke=ending(20, FAILED), cure=nothing, since_seconds=301),
    "queue_long": Trouble(provoke=standing_in_line(101), cure=EMPTY_LINE),
    "queue_growth": Trouble(provoke=standing_in_line(101), cure=EMPTY_LINE, since_seconds=301),
    "queue_near_full": Trouble(provoke=fill_a_line, cure=EMPTY_LINE),
    "queue_stuck": Trouble(
        provoke=stand_for_ten_minutes, cure=execute("UPDATE line SET total_completed = total_completed + 1")
    ),
    "dlq_buildup": Trouble(provoke=dying(101), cure=drop_all),
    "dlq_rate": Trouble(
        provoke=dying(11), cure=execute("UPDATE dead_letter SET parked_at = parked_at - interval '1 minute'")
    ),
    "outbox_stalled": Trouble(
        provoke=execute(
            "INSERT INTO outbox (topic, type, not_before)"
            " VALUES ('line.changed', 'line.changed', now() - interval '20 seconds')"
        ),
        cure=execute("DELETE FROM outbox"),
    ),
    "partition_default_used": Trouble(
        provoke=execute(
            "INSERT INTO audit_log (at, actor, operation, resource) VALUES (now() + interval '1 year', '', '', '')"
        ),
        cure=execute("DELETE FROM audit_log_default"),
    ),
}


@pytest.fixture
async def calm(database: Database) -> Database:
    """An action, a worker, and one look that found nothing."""
    await make_action(database)
    await make_worker(database, capacity=100, heartbeat_interval=1000)
    turn = await look(database)
    assert (turn.pending, turn.fired) == ([], [])
    return database


def named(episodes: object, name: str) -> list[Episode]:
    assert isinstance(episodes, list)
    return [each for each in episodes if each.name == name]


async def raise_alert(database: Database, alert: Alert, trouble: Trouble) -> Episode:
    """Provoke it, and look until it fires, which must be neither too early nor twice."""
    await let_pass(database, max(trouble.since_seconds, APART_SECONDS))
    await trouble.provoke(database)
    turn = await look(database)
    if alert.for_seconds:
        assert (len(named(turn.pending, alert.name)), named(turn.fired, alert.name)) == (1, [])
        await let_pass(database, alert.for_seconds + 1)
        turn = await look(database)
    [fired] = named(turn.fired, alert.name)
    await let_pass(database, APART_SECONDS)
    again = await look(database)
    assert (named(again.fired, alert.name), len(named(again.still, alert.name))) == ([], 1)
    return fired


async def resolve_alert(database: Database, alert: Alert) -> None:
    """Look until it is over, which is told once."""
    for _ in range(LOOKS_MAX):
        await let_pass(database, 61)
        turn = await look(database)
        if named(turn.resolved, alert.name):
            break
    else:
        pytest.fail(f"{alert.name} is not resolved")
    await let_pass(database, APART_SECONDS)
    turn = await look(database)
    assert not [each for part in (turn.resolved, turn.still, turn.fired) for each in named(part, alert.name)]


def test_there_is_a_trouble_for_every_alert() -> None:
    assert TROUBLES.keys() == {alert.name for alert in ALERTS}


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
async def test_each_alert_is_raised_by_its_trouble_and_resolved_by_its_cure(calm: Database, alert: Alert) -> None:
    trouble = TROUBLES[alert.name]

    fired = await raise_alert(calm, alert, trouble)
    assert "{" not in fired.message.replace("{}", "")
    await trouble.cure(calm)
    await resolve_alert(calm, alert)

    async with calm.reading() as tx:
        rows = await tx.fetch("SELECT state, severity, fired_at, resolved_at FROM alert WHERE name = $1", alert.name)
    assert [(row["state"], row["severity"]) for row in rows] == [("resolved", alert.severity)]
    assert rows[0]["fired_at"] < rows[0]["resolved_at"]


async def test_what_is_over_at_once_and_back_at_once_is_one_episode(calm: Database) -> None:
    [alert] = [alert for alert in ALERTS if alert.name == "dlq_buildup"]
    await raise_alert(calm, alert, TROUBLES["dlq_buildup"])
    await drop_all(calm)
    await let_pass(calm, APART_SECONDS)
    assert len(named((await look(calm)).still, alert.name)) == 1
    await dying(101)(calm)
    await let_pass(calm, APART_SECONDS)
    turn = await look(calm)
    assert (len(named(turn.still, alert.name)), named(turn.fired, alert.name)) == (1, [])
    async with calm.reading() as tx:
        assert await tx.fetch_value("SELECT count(*) FROM alert WHERE name = $1", alert.name) == 1


async def test_however_many_replicas_look_each_change_is_told_once(calm: Database) -> None:
    name = "action_quarantined"
    for _ in range(5):
        await lose_workers(calm)
        await let_pass(calm, 61)
        turns = await asyncio.gather(*(look(calm) for _ in range(8)))
        assert sum(len(named(list(turn.fired), name)) for turn in turns) == 1
        await release(calm)
        await let_pass(calm, 61)
        turns = await asyncio.gather(*(look(calm) for _ in range(8)))
        assert sum(len(named(list(turn.resolved), name)) for turn in turns) == 1
    async with calm.reading() as tx:
        assert await tx.fetch_value("SELECT count(*) FROM alert WHERE name = $1", name) == 5
    await nothing_is_broken(calm)


async def test_a_second_look_right_after_the_first_reads_nothing(calm: Database) -> None:
    await lose_workers(calm)
    assert await look(calm) == Turn()


async def test_a_paused_line_is_not_stuck(calm: Database) -> None:
    await stand_for_ten_minutes(calm)
    await execute("UPDATE line SET paused = true")(calm)
    assert named((await look(calm)).fired, "queue_stuck") == []


async def test_a_line_that_was_told_of_is_looked_at_even_if_it_is_not_among_the_longest(calm: Database) -> None:
    told_of, other = await make_line(calm), await make_line(calm, group='{"host":"b"}')
    async with calm.reading() as tx:
        read = await readings.list_lines(tx, also=[told_of.line_id], default_length_max=LENGTH_MAX)
    assert [line.line_id for line in read] == [told_of.line_id] != [other.line_id]


async def test_episodes_that_were_over_long_ago_are_forgotten(calm: Database) -> None:
    [alert] = [alert for alert in ALERTS if alert.name == "action_quarantined"]
    await raise_alert(calm, alert, TROUBLES[alert.name])
    await release(calm)
    await resolve_alert(calm, alert)

    async def keep() -> int:
        async with calm.transaction() as tx:
            return await keep_house(tx, Keeping(dead_letter_seconds=1e6, idempotency_hours=1000, history_days=1000))

    assert await keep() == 0
    async with calm.transaction() as tx:
        await tx.execute("UPDATE alert SET resolved_at = resolved_at - make_interval(days => $1)", ALERT_DAYS + 1)
    assert await keep() == 1


async def count_statements(database: Database) -> tuple[int, int]:
    """How many statements one look takes, and how many who wait it looks at."""
    sent: list[str] = []
    async with database.transaction() as tx:
        tx.connection.add_query_logger(lambda record: sent.append(record.query))
        before = await tx.fetch_value(PLACES_READ)
        sent.clear()
        await evaluate_alerts(tx, default_length_max=LENGTH_MAX)
        statements = len(sent)
        return statements, await tx.fetch_value(PLACES_READ) - before


PLACES_READ = """
    SELECT sum(pg_stat_get_xact_tuples_returned(oid))::bigint FROM pg_class
     WHERE relname LIKE 'line_entry%' OR relname LIKE 'execution_pkey' OR relname IN ('execution', 'unplaced')
"""


async def test_a_look_takes_few_statements_and_reads_nobody_who_waits(calm: Database) -> None:
    async with calm.snapshot(application="past") as tx:
        await make_past(tx, ended=0, waiting=10_000)
    await let_pass(calm, APART_SECONDS)

    statements, read = await count_statements(calm)

    assert (await look(calm)) == Turn(), "the look has been"
    assert statements <= STATEMENTS_MAX
    assert read == 0
    async with calm.reading() as tx:
        assert await tx.fetch_value("SELECT count(*) FROM alert WHERE name = 'queue_long'") == LINES
