"""Lines under transactions that meet at the wrong moment."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from attune.domain.definitions import Runner
from attune.operations.acceptance import Request
from attune.operations.lines.join_lines import QueueFull
from attune.operations.release_executions import release_executions
from attune.operations.request_executions import request_executions
from attune.storage.database import Database
from attune.storage.line_upkeep import controls
from attune.storage.tx import Tx
from tests.witness.arrange import MAX_QUEUE_LENGTH, always_half, make_action, make_worker, place, request, statuses
from tests.witness.lines import admit, end, make_policy
from tests.witness.prepare import prepare
from tests.witness.waiting import until


async def be_patient(tx: Tx) -> int:
    """Wait longer than an executor would; returns the connection's process."""
    await tx.execute("SET LOCAL lock_timeout = '25s'")
    await tx.execute("SET LOCAL idle_in_transaction_session_timeout = '60s'")
    return int(await tx.fetch_value("SELECT pg_backend_pid()"))


async def ask(tx: Tx) -> int:
    wanted = [Request(action_ref="demo.work", parameters={})]
    prepared = await prepare(tx, wanted)
    (answer,) = await request_executions(tx, [prepared], max_queue_length=MAX_QUEUE_LENGTH, no_worker_grace_seconds=60)
    assert not isinstance(answer, QueueFull)
    return answer[0].execution_id


async def wait_until_blocked(database: Database, pid: Awaitable[int]) -> None:
    waiting = await pid

    async def blocked() -> bool:
        async with database.reading() as tx:
            return bool(await tx.fetch_value("SELECT cardinality(pg_blocking_pids($1)) > 0", waiting))

    await until(blocked)


async def test_a_request_that_read_a_policy_before_it_was_replaced_does_not_bring_it_back(database: Database) -> None:
    await make_action(database)
    await make_policy(database, concurrency={"limit": 5})
    await request(database)
    known: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def ask_late() -> None:
        async with database.transaction() as tx:
            known.set_result(await be_patient(tx))
            await ask(tx)

    async with database.transaction() as tx:
        await be_patient(tx)
        await controls.lock_many(tx, await tx.fetch_column("SELECT id FROM line"))
        late = asyncio.create_task(ask_late())
        await wait_until_blocked(database, known)
        async with database.transaction() as replacing:
            await replacing.execute("DELETE FROM policy")
        await make_policy(database, ref="demo.successor", concurrency={"limit": 1})
        await ask(tx)
    await late

    async with database.reading() as tx:
        governing = await tx.fetch_column("SELECT p.ref FROM line l LEFT JOIN policy p ON p.id = l.policy_id")
    assert governing == ["demo.successor"]


async def test_a_release_that_places_several_pools_locks_them_in_their_order(database: Database) -> None:
    """Otherwise two replicas could each hold the pool that the other wants."""
    await make_action(database, "demo.native")
    await make_action(database, "demo.shell", runner=Runner.SHELL, entry_point=None, command="true")
    async with database.reading() as tx:
        low, high = await tx.fetch("SELECT ref, runner, pool FROM action ORDER BY pool")
    await make_policy(database, scope={"action": high["ref"]}, concurrency={"limit": 1})
    worker = await make_worker(database, runtimes=[high["runner"]])
    (stranded,) = await request(database, low["ref"])
    await place(database, [stranded])
    first, second = await request(database, high["ref"], count=2)
    await admit(database)
    await end(database, worker, [first])
    known: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def release() -> None:
        async with database.transaction() as tx:
            known.set_result(await be_patient(tx))
            await release_executions(tx, [first], actor="executor test", draw=always_half)

    async with database.transaction() as tx:
        await be_patient(tx)
        await tx.execute("SELECT pg_advisory_xact_lock($1)", low["pool"])
        releasing = asyncio.create_task(release())
        await wait_until_blocked(database, known)
        assert await tx.fetch_value("SELECT pg_try_advisory_xact_lock($1)", high["pool"])
    await releasing

    assert await statuses(database, [stranded, second]) == ["scheduling", "scheduled"]
