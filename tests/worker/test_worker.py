"""A worker in this process on a real database: what it runs, gives back, cancels and survives."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from attune.domain.definitions import Runner
from attune.domain.json_values import Json
from attune.operations.cancel_execution import cancel_execution
from attune.operations.place_requested import place_requested
from attune.storage.database import Database
from tests.witness.arrange import always_half, make_action, place, request, statuses
from tests.witness.ledger import Ledger, ledger_command
from tests.witness.waiting import until
from tests.worker.conftest import StartWorker


async def ended(database: Database, ids: list[int]) -> bool:
    async with database.reading() as tx:
        return not await tx.fetch_value("SELECT count(*) FROM execution WHERE id = ANY($1) AND ended_at IS NULL", ids)


async def read(database: Database, execution_id: int) -> tuple[str, Json, Json]:
    async with database.reading() as tx:
        row = await tx.fetch_row("SELECT status, result, error FROM execution WHERE id = $1", execution_id)
    assert row is not None
    return row["status"], row["result"], row["error"]


async def log_of(database: Database, execution_id: int) -> list[tuple[str, str]]:
    async with database.reading() as tx:
        rows = await tx.fetch(
            "SELECT stream, content FROM execution_log WHERE execution_id = $1 ORDER BY attempt, seq", execution_id
        )
    return [(row["stream"], row["content"]) for row in rows]


async def test_a_native_action_runs_from_dispatch_to_success(
    database: Database, start_worker_here: StartWorker
) -> None:
    await make_action(database, "demo.echo", entry_point="echo")
    await start_worker_here()
    ids = await request(database, "demo.echo", count=3, parameters={"message": "hi"})

    await place(database, ids)
    await until(lambda: ended(database, ids))

    assert await statuses(database, ids) == ["succeeded"] * 3
    assert (await read(database, ids[0]))[1] == {"message": "hi"}


async def test_a_failing_command_keeps_its_exit_code_and_both_streams(
    database: Database, start_worker_here: StartWorker
) -> None:
    await make_action(
        database, "demo.shell", runner=Runner.SHELL, entry_point=None, command="echo out; echo err >&2; exit 3"
    )
    await start_worker_here()
    [execution] = await request(database, "demo.shell")

    await place(database, [execution])
    await until(lambda: ended(database, [execution]))

    status, result, error = await read(database, execution)
    assert status == "failed"
    assert result == {"exit_code": 3, "stdout": "out\n", "stderr": "err\n"}
    assert error == {"code": "exit_code", "message": "exited with 3", "by": "worker-1"}
    assert sorted(await log_of(database, execution)) == [("stderr", "err\n"), ("stdout", "out\n")]


async def test_an_attempt_starts_once_however_often_it_is_dispatched(
    database: Database, start_worker_here: StartWorker, tmp_path: Path
) -> None:
    ledger = Ledger(tmp_path / "ledger.txt")
    command = ledger_command(ledger.path, body="sleep 0.3")
    await make_action(database, "demo.shell", runner=Runner.SHELL, entry_point=None, command=command)
    worker = await start_worker_here()
    [execution] = await request(database, "demo.shell")
    async with database.transaction() as tx:
        await place_requested(tx, [execution], max_queue_length=100, actor="test", draw=always_half)
        await tx.execute(
            """
            INSERT INTO outbox (topic, type, items)
            SELECT 'execution.dispatch.worker.' || $1::bigint, 'execution.dispatched', $2 FROM generate_series(1, 5)
            """,
            worker.worker_id,
            [[execution, 1]],
        )

    await until(lambda: ended(database, [execution]))

    assert ledger.starts() == [(execution, 1)]
    assert ledger.ends() == [(execution, 1)]


async def test_a_cancelled_script_ends_with_its_whole_tree(
    database: Database, start_worker_here: StartWorker, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    command = f"setsid sleep 300 & echo $! >> {pids}; sleep 300 & echo $! >> {pids}; wait"
    await make_action(database, "demo.shell", runner=Runner.SHELL, entry_point=None, command=command)
    await start_worker_here()
    [execution] = await request(database, "demo.shell")
    await place(database, [execution])

    async def both_started() -> bool:
        return pids.exists() and len(pids.read_text().split()) == 2

    await until(both_started)
    async with database.transaction() as tx:
        await cancel_execution(tx, execution, actor="test")
    await until(lambda: ended(database, [execution]))

    assert await statuses(database, [execution]) == ["cancelled"]
    assert [pid for pid in pids.read_text().split() if Path(f"/proc/{pid}").exists()] == []


async def test_more_than_there_are_slots_for_is_handed_back_and_runs_later(
    database: Database, start_worker_here: StartWorker
) -> None:
    await make_action(database, "demo.shell", runner=Runner.SHELL, entry_point=None, command="sleep 0.3")
    worker = await start_worker_here(capacity=1)
    ids = await request(database, "demo.shell", count=2)
    # Two replicas that placed at the same moment: more than the worker has slots for.
    async with database.transaction() as tx:
        await tx.execute("UPDATE worker SET capacity = 2")
    await place(database, ids)

    async def marked() -> bool:
        async with database.reading() as tx:
            return bool(await tx.fetch_value("SELECT marked_full FROM worker"))

    async def handed_back() -> bool:
        async with database.reading() as tx:
            return bool(
                await tx.fetch_value("SELECT count(*) FROM execution_history WHERE reason = 'worker had no free slot'")
            )

    await until(handed_back)

    async def cleared() -> bool:
        return not await marked()

    await until(cleared)
    assert sorted(await statuses(database, ids)) in (["running", "scheduling"], ["scheduling", "succeeded"])
    assert worker.attempts.capacity == 1


async def test_draining_gives_back_what_waits_and_lets_the_rest_finish(
    database: Database, start_worker_here: StartWorker, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    command = f"while [ ! -e {gate} ]; do sleep 0.02; done"
    await make_action(database, "demo.shell", runner=Runner.SHELL, entry_point=None, command=command)
    worker = await start_worker_here()
    [execution] = await request(database, "demo.shell")
    await place(database, [execution])

    async def runs() -> bool:
        return await statuses(database, [execution]) == ["running"]

    await until(runs)
    draining = asyncio.create_task(worker.drain())

    async def drains() -> bool:
        async with database.reading() as tx:
            return bool(await tx.fetch_value("SELECT status FROM worker") == "draining")

    await until(drains)
    gate.touch()
    await draining

    assert await statuses(database, [execution]) == ["succeeded"]
    async with database.reading() as tx:
        assert await tx.fetch_value("SELECT status FROM worker") == "inactive"


async def test_what_outlives_the_shutdown_time_ends_as_a_lost_worker(
    database: Database, start_worker_here: StartWorker
) -> None:
    await make_action(database, "demo.shell", runner=Runner.SHELL, entry_point=None, command="sleep 300")
    worker = await start_worker_here(shutdown_seconds=0.1)
    [execution] = await request(database, "demo.shell")
    await place(database, [execution])

    async def runs() -> bool:
        return await statuses(database, [execution]) == ["running"]

    await until(runs)
    await worker.drain()

    status, _, error = await read(database, execution)
    assert status == "failed"
    assert isinstance(error, dict)
    assert error["code"] == "worker_shutdown"


async def test_a_fenced_attempt_is_killed_and_changes_nothing(
    database: Database, start_worker_here: StartWorker, tmp_path: Path
) -> None:
    pids = tmp_path / "pid"
    await make_action(
        database, "demo.shell", runner=Runner.SHELL, entry_point=None, command=f"echo $$ > {pids}; sleep 300"
    )
    worker = await start_worker_here(heartbeat_seconds=0.3)
    [execution] = await request(database, "demo.shell")
    await place(database, [execution])

    async def started() -> bool:
        return pids.exists() and bool(pids.read_text().strip())

    await until(started)
    async with database.transaction() as tx:
        await tx.execute("UPDATE assignment SET lease = gen_random_uuid()")

    async def gone() -> bool:
        return not Path(f"/proc/{pids.read_text().strip()}").exists() and len(worker.attempts) == 0

    await until(gone)
    assert await statuses(database, [execution]) == ["running"]
    async with database.reading() as tx:
        assert await tx.fetch_value("SELECT count(*) FROM late_result") == 0


async def test_a_dispatch_whose_message_was_lost_is_found_by_the_heartbeat(
    database: Database, start_worker_here: StartWorker
) -> None:
    await make_action(database)
    await start_worker_here(heartbeat_seconds=0.3)
    [execution] = await request(database)
    async with database.transaction() as tx:
        await tx.execute(
            """
            INSERT INTO assignment (execution_id, attempt, worker_id, worker_instance)
            SELECT $1, 1, id, instance FROM worker
            """,
            execution,
        )
        await tx.execute("UPDATE execution SET status = 'scheduled', attempt = 1 WHERE id = $1", execution)

    await until(lambda: ended(database, [execution]))
    assert await statuses(database, [execution]) == ["succeeded"]


@pytest.mark.parametrize(
    "work", [{"entry_point": "sleep"}, {"runner": Runner.SHELL, "entry_point": None, "command": "sleep 300"}]
)
async def test_what_does_not_end_in_time_ends_as_timeout(
    database: Database, start_worker_here: StartWorker, work: dict[str, object]
) -> None:
    await make_action(database, "demo.slow", timeout_seconds=1, **work)
    await start_worker_here()
    [execution] = await request(database, "demo.slow", parameters={"seconds": 300})
    await place(database, [execution])

    await until(lambda: ended(database, [execution]))

    status, _, error = await read(database, execution)
    assert status == "timeout"
    assert isinstance(error, dict)
    assert error["message"] == "did not end within 1 s"


async def test_a_late_report_changes_nothing_and_is_kept_for_people(
    database: Database, start_worker_here: StartWorker, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    command = f"while [ ! -e {gate} ]; do sleep 0.02; done; echo late"
    await make_action(database, "demo.shell", runner=Runner.SHELL, entry_point=None, command=command)
    worker = await start_worker_here(heartbeat_seconds=60)
    [execution] = await request(database, "demo.shell")
    await place(database, [execution])

    async def runs() -> bool:
        return await statuses(database, [execution]) == ["running"]

    await until(runs)
    async with database.transaction() as tx:
        await tx.execute("UPDATE assignment SET lease = gen_random_uuid()")
    gate.touch()

    async def kept() -> bool:
        async with database.reading() as tx:
            return bool(await tx.fetch_value("SELECT count(*) FROM late_result WHERE outcome = 'succeeded'"))

    await until(kept)
    assert await statuses(database, [execution]) == ["running"]
    assert await log_of(database, execution) == []
    assert len(worker.attempts) == 0
