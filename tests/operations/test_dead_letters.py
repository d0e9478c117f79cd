"""What becomes of a dispatch that no worker took in time, and of what people decide about dead letters."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from attune.domain.endings.dead_letters import Expiry, Outcome
from attune.domain.messages import Item, Message
from attune.domain.retry import Ending
from attune.domain.retry import Outcome as AttemptOutcome
from attune.operations.access.write_audit import Actor
from attune.operations.attend_workers import hand_back_full
from attune.operations.dead_letters.bury_dead_letters import bury_dead_letters
from attune.operations.dead_letters.drop_dead_letters import drop_dead_letters
from attune.operations.dead_letters.expire_own_ttls import expire_own_ttls
from attune.operations.dead_letters.replay_dead_letters import replay_dead_letters
from attune.operations.finish_executions import Report, finish_executions
from attune.operations.release_executions import release_executions
from attune.storage import dead_letters
from attune.storage.assignments import Held
from attune.storage.database import Database
from attune.storage.tx import Row
from tests.witness.arrange import always_half, make_action, make_worker, place, request, start, statuses

ANA = Actor(name="ana")
DIED = datetime(2026, 1, 2, tzinfo=UTC)
PINNED_TO_NOBODY = 999


def expiry(item: Item, worker_id: int = 1) -> Expiry:
    return Expiry(item=item, deaths=(f"worker.{worker_id}.executions expired at noon",), died_at=DIED)


async def bury(database: Database, *items: Item, placements_max: int = 5) -> list[Outcome]:
    async with database.transaction() as tx:
        return await bury_dead_letters(tx, [expiry(item) for item in items], placements_max=placements_max)


async def place_unplaced(database: Database) -> None:
    async with database.transaction() as tx:
        await release_executions(tx, [], actor="executor test", draw=always_half)


async def letters(database: Database) -> list[Row]:
    async with database.reading() as tx:
        return await tx.fetch("SELECT * FROM dead_letter ORDER BY id")


async def scheduled(database: Database, **changes: object) -> int:
    await make_action(database, "demo.work", **changes)
    [execution] = await request(database)
    await place(database, [execution])
    assert await statuses(database, [execution]) == ["scheduled"]
    return execution


async def test_an_expired_dispatch_goes_to_another_worker_and_costs_no_try(database: Database) -> None:
    silent = await make_worker(database, name="silent")
    execution = await scheduled(database)
    other = await make_worker(database, name="other")

    assert await bury(database, (execution, 1)) == [Outcome.PLACED_ELSEWHERE]
    await place_unplaced(database)

    async with database.reading() as tx:
        row = await tx.fetch_row("SELECT status, attempt, worker, tries FROM execution")
    assert row is not None
    assert tuple(row) == ("scheduled", 2, other.worker_id, 0)
    [letter] = await letters(database)
    assert (letter["worker_id"], letter["worker_instance"]) == (silent.worker_id, silent.instance)
    assert (letter["action_ref"], letter["reason"], letter["outcome_by"]) == (
        "demo.work",
        "expired",
        "dead_letter_handler",
    )
    assert letter["deaths"] == ["worker.1.executions expired at noon"]


async def test_it_fails_with_the_promised_text_when_its_placements_are_spent(database: Database) -> None:
    await make_worker(database)
    execution = await scheduled(database)

    assert await bury(database, (execution, 1), placements_max=1) == [Outcome.FAILED_EXECUTION]

    async with database.reading() as tx:
        row = await tx.fetch_row("SELECT status, result, error FROM execution")
    assert row is not None
    assert (row["status"], row["error"]["code"]) == ("failed", "worker_queue_ttl_expired")
    assert row["result"] == {
        "error": "Worker queue TTL expired",
        "message": "Worker did not process execution within configured TTL",
        "failed_by": "dead_letter_handler",
    }


async def test_it_fails_when_no_worker_that_is_alive_could_run_it(database: Database) -> None:
    await make_worker(database)
    execution = await scheduled(database)
    async with database.transaction() as tx:
        await tx.execute("UPDATE worker SET status = 'lost', last_heartbeat = now() - interval '1 hour'")

    assert await bury(database, (execution, 1)) == [Outcome.FAILED_EXECUTION]

    async with database.reading() as tx:
        reason = await tx.fetch_value("SELECT change_reason FROM execution")
    assert reason == "Worker queue TTL expired, and no worker could run it"


async def test_pinned_work_fails_though_others_could_run_it(database: Database) -> None:
    await make_action(database)
    await make_worker(database)
    [execution] = await request(database, worker_id=PINNED_TO_NOBODY)
    await place(database, [execution])

    assert await bury(database, (execution, 1)) == [Outcome.FAILED_EXECUTION]
    assert await statuses(database, [execution]) == ["failed"]


async def test_a_dead_letter_that_comes_again_leaves_one_row(database: Database) -> None:
    await make_worker(database)
    execution = await scheduled(database)

    assert await bury(database, (execution, 1), (execution, 1)) == [Outcome.PLACED_ELSEWHERE]
    await bury(database, (execution, 1))
    await bury(database, (12_345, 1))
    await bury(database, (12_345, 1))

    assert [letter["outcome"] for letter in await letters(database)] == ["placed_elsewhere", "no_effect"]


@pytest.mark.parametrize("moved_to", ["running", "succeeded", "next attempt", "nothing"])
async def test_a_dead_letter_of_an_attempt_that_moved_on_changes_nothing(database: Database, moved_to: str) -> None:
    worker = await make_worker(database)
    execution = await scheduled(database)
    attempt = 1
    if moved_to in {"running", "succeeded"}:
        [started] = await start(database, worker, [(execution, 1)])
        held = Held(execution_id=execution, attempt=1, lease=started.lease)
        if moved_to == "succeeded":
            report = Report(held=held, worker_id=worker.worker_id, ending=Ending(outcome=AttemptOutcome.SUCCEEDED))
            async with database.transaction() as tx:
                await finish_executions(tx, [report], actor="worker test", draw=always_half)
    elif moved_to == "next attempt":
        await bury(database, (execution, 1))
        await place_unplaced(database)
    else:
        execution, attempt = 12_345, 1
    async with database.reading() as tx:
        before = await tx.fetch("SELECT * FROM execution")

    assert await bury(database, (execution, attempt)) == [Outcome.NO_EFFECT]

    async with database.reading() as tx:
        assert await tx.fetch("SELECT * FROM execution") == before
    # It is no reason to think badly of the worker; only the one before it, which had an effect, may be.
    blamed = [letter["outcome"] for letter in await letters(database) if letter["worker_instance"]]
    assert blamed == (["placed_elsewhere"] if moved_to == "next attempt" else [])


async def test_a_stale_dead_letter_beside_the_current_one_hides_nothing(database: Database) -> None:
    await make_worker(database)
    execution = await scheduled(database)
    await bury(database, (execution, 1))
    await place_unplaced(database)

    outcomes = await bury(database, (execution, 2), (execution, 1))

    assert outcomes == [Outcome.PLACED_ELSEWHERE, Outcome.NO_EFFECT]


async def test_what_matters_most_is_handled_first(database: Database) -> None:
    await make_action(database)
    await make_worker(database, capacity=8)
    ids = [(await request(database, priority=priority))[0] for priority in (0, 5, -1)]
    await place(database, ids)

    await bury(database, *((each, 1) for each in ids), placements_max=1)

    async with database.reading() as tx:
        ended = await tx.fetch_value("SELECT items FROM outbox WHERE topic = 'execution.completed'")
    assert [item[0] for item in ended] == [ids[1], ids[0], ids[2]]


async def test_a_worker_that_let_a_dispatch_expire_is_the_last_choice_until_it_starts_anew(database: Database) -> None:
    silent = await make_worker(database, name="silent", capacity=8)
    execution = await scheduled(database)
    busy = await make_worker(database, name="busy", capacity=8)
    await bury(database, (execution, 1))
    await place_unplaced(database)

    async def placed_now() -> int:
        [new] = await request(database)
        await place(database, [new])
        async with database.reading() as tx:
            return int(await tx.fetch_value("SELECT worker FROM execution WHERE id = $1", new))

    # By load alone the first would be the silent one's.
    assert [await placed_now() for _ in range(3)] == [busy.worker_id] * 3
    await make_worker(database, name="silent", capacity=8)
    assert await placed_now() == silent.worker_id


async def test_the_only_worker_is_not_shunned(database: Database) -> None:
    worker = await make_worker(database)
    execution = await scheduled(database)
    await bury(database, (execution, 1))
    await place_unplaced(database)

    async with database.reading() as tx:
        assert await tx.fetch_column("SELECT worker_id FROM assignment") == [worker.worker_id]


async def wait_back(database: Database, seconds: float) -> None:
    async with database.transaction() as tx:
        await tx.execute("UPDATE assignment SET placed_at = now() - make_interval(secs => $1)", seconds)


async def expire(database: Database, *, pinned_ttl_seconds: float | None = None) -> int:
    async with database.transaction() as tx:
        return await expire_own_ttls(tx, pinned_ttl_seconds=pinned_ttl_seconds, placements_max=5)


@pytest.mark.parametrize(("waited", "expired"), [(1.0, 0), (3.0, 1)])
async def test_an_action_may_have_a_shorter_time_to_live(database: Database, waited: float, expired: int) -> None:
    await make_worker(database)
    await scheduled(database, worker_queue_ttl_seconds=2)
    await wait_back(database, waited)

    assert await expire(database) == expired
    assert [letter["outcome"] for letter in await letters(database)] == ["placed_elsewhere"] * expired


async def test_a_longer_time_to_live_outlasts_the_queues(database: Database) -> None:
    worker = await make_worker(database)
    execution = await scheduled(database, worker_queue_ttl_seconds=600)
    await wait_back(database, 301)
    async with database.transaction() as tx:
        await tx.execute("DELETE FROM outbox")

    assert await bury(database, (execution, 1)) == []

    assert await statuses(database, [execution]) == ["scheduled"]
    async with database.reading() as tx:
        told = await tx.fetch("SELECT topic, items FROM outbox")
    assert [(row["topic"], row["items"]) for row in told] == [
        (f"execution.dispatch.worker.{worker.worker_id}", [[execution, 1]])
    ]
    assert await letters(database) == []


async def test_without_dead_letters_pinned_work_still_comes_to_an_end(database: Database) -> None:
    await make_action(database)
    [execution] = await request(database, worker_id=PINNED_TO_NOBODY)
    await place(database, [execution])
    await wait_back(database, 10)

    assert await expire(database, pinned_ttl_seconds=None) == 0
    assert await expire(database, pinned_ttl_seconds=9) == 1
    assert await statuses(database, [execution]) == ["failed"]


async def park(database: Database, topic: str, type_: str, *items: Item) -> int:
    message = Message(id=1, topic=topic, type=type_, items=items, deliveries=5, created=DIED, not_before=DIED)
    async with database.transaction() as tx:
        return await dead_letters.insert(tx, message, reason="failed too often", error="bug")


async def replay(database: Database, *ids: int) -> list[tuple[bool, str | None]]:
    async with database.transaction() as tx:
        verdicts = await replay_dead_letters(tx, ids, by=ANA)
    return [(each.effect, each.outcome) for each in verdicts]


async def count_sent(database: Database, topic: str) -> int:
    async with database.reading() as tx:
        return int(await tx.fetch_value("SELECT count(*) FROM outbox WHERE topic = $1", topic))


async def test_replaying_sends_once_however_often_it_is_asked_for(database: Database) -> None:
    parked = await park(database, "pool.changed", "pool.changed", (7, 0))

    assert await replay(database, parked) == [(True, "replayed")]
    assert await replay(database, parked) == [(False, "replayed")]

    assert await count_sent(database, "pool.changed") == 1
    async with database.reading() as tx:
        audited = await tx.fetch_column("SELECT resource FROM audit_log WHERE operation = 'dead_letter.replay'")
    assert audited == [f"dead_letter/{parked}"]


async def test_replaying_the_dispatch_of_an_attempt_that_is_over_changes_nothing_and_says_so(
    database: Database,
) -> None:
    worker = await make_worker(database)
    execution = await scheduled(database)
    topic = f"execution.dispatch.worker.{worker.worker_id}"
    parked = await park(database, topic, "execution.dispatched", (execution, 1))
    await start(database, worker, [(execution, 1)])

    async with database.transaction() as tx:
        [verdict] = await replay_dead_letters(tx, [parked], by=ANA)

    assert (verdict.effect, verdict.outcome) == (False, Outcome.NO_EFFECT)
    assert f"attempt 1 of execution {execution}" in verdict.message
    assert await count_sent(database, topic) == 1


async def test_replaying_the_dispatch_of_a_waiting_attempt_tells_its_worker_again(database: Database) -> None:
    worker = await make_worker(database)
    execution = await scheduled(database)
    topic = f"execution.dispatch.worker.{worker.worker_id}"
    parked = await park(database, topic, "execution.dispatched", (execution, 1))

    assert await replay(database, parked) == [(True, "replayed")]
    assert await count_sent(database, topic) == 2


async def test_what_is_no_message_cannot_be_sent_again_and_still_be_dropped(database: Database) -> None:
    async with database.transaction() as tx:
        parked = await dead_letters.insert_unreadable(tx, topic="x", body="{", reason="unreadable", error="no message")

    assert await replay(database, parked) == [(False, None)]
    async with database.transaction() as tx:
        assert [each.effect for each in await drop_dead_letters(tx, [parked], by=ANA)] == [True]
        assert [each.effect for each in await drop_dead_letters(tx, [parked], by=ANA)] == [False]
    assert await replay(database, parked) == [(False, "dropped")]


async def test_handing_back_a_stale_and_a_current_attempt_together_hands_back_the_current_one(
    database: Database,
) -> None:
    worker = await make_worker(database)
    execution = await scheduled(database)
    await bury(database, (execution, 1))
    await place_unplaced(database)

    async with database.transaction() as tx:
        await hand_back_full(tx, [(execution, 2), (execution, 1)], instance=worker.instance, actor="worker test")

    assert await statuses(database, [execution]) == ["scheduling"]
