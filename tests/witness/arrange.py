"""Puts a database into the state a test starts from: actions, workers, requested executions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID, uuid4

from attune.domain.definitions import ActionDefinition, Runner
from attune.domain.json_values import Json
from attune.operations.acceptance import Request
from attune.operations.attend_workers import register_worker
from attune.operations.lines.join_lines import QueueFull
from attune.operations.place_requested import place_requested
from attune.operations.request_executions import request_executions
from attune.operations.start_executions import Claimant, Started, start_executions
from attune.runtime.vault import WITHOUT_KEY, Vault
from attune.storage import actions
from attune.storage.database import Database
from attune.storage.tx import Tx
from attune.storage.workers import Registration
from tests.witness.prepare import prepare

MAX_QUEUE_LENGTH = 10_000
# Most tests ask first and bring the worker later.
GRACE_SECONDS = 3600.0


def always_half() -> float:
    """A draw that never surprises."""
    return 0.5


async def make_action(database: Database, ref: str = "demo.work", **changes: object) -> int:
    """An action of an ad-hoc pack; returns its id."""
    pack = ref.split(".", maxsplit=1)[0]
    action = ActionDefinition(**({"ref": ref, "runner": Runner.NATIVE, "entry_point": "noop"} | changes))  # type: ignore[arg-type]  # callers change what they name
    async with database.transaction() as tx:
        pack_id = await tx.fetch_value(
            """
            INSERT INTO pack (ref, version, digest) VALUES ($1, '1.0.0', 'none')
            ON CONFLICT (ref) DO UPDATE SET updated = now() RETURNING id
            """,
            pack,
        )
        await actions.save_many(tx, pack_id, [action])
        return int(await tx.fetch_value("SELECT id FROM action WHERE ref = $1", ref))


@dataclass(frozen=True, slots=True, kw_only=True)
class TestWorker:
    """A registered worker that no process stands behind."""

    __test__ = False
    worker_id: int
    name: str
    instance: UUID

    @property
    def claimant(self) -> Claimant:
        """This worker as it claims."""
        return Claimant(worker_id=self.worker_id, name=self.name, instance=self.instance, lease_seconds=30)


async def make_worker(
    database: Database,
    name: str = "worker-1",
    *,
    capacity: int = 4,
    runtimes: Sequence[str] = ("native", "shell"),
    heartbeat_interval: float = 60.0,
) -> TestWorker:
    """A worker that has just registered; with a short interval it will soon be stale, as nobody sends heartbeats."""
    instance = uuid4()
    registration = Registration(
        name=name,
        instance=instance,
        runtimes=runtimes,
        labels={},
        capacity=capacity,
        isolation="none",
        heartbeat_interval=heartbeat_interval,
        host="test",
        pid=1,
        version="test",
    )
    async with database.transaction() as tx:
        worker_id = await register_worker(tx, registration)
    return TestWorker(worker_id=worker_id, name=name, instance=instance)


async def request(
    database: Database,
    ref: str = "demo.work",
    *,
    count: int = 1,
    parameters: Mapping[str, Json] | None = None,
    worker_id: int | None = None,
    priority: int = 0,
    grace_seconds: float = GRACE_SECONDS,
    vault: Vault = WITHOUT_KEY,
) -> list[int]:
    """Accepted executions; returns their ids in order."""
    wanted = Request(action_ref=ref, parameters=parameters or {}, worker_id=worker_id, priority=priority)
    requests = [wanted] * count
    async with database.transaction() as tx:
        prepared = await prepare(tx, requests, vault=vault)
        (answer,) = await request_executions(
            tx, [prepared], max_queue_length=MAX_QUEUE_LENGTH, no_worker_grace_seconds=grace_seconds
        )
        if isinstance(answer, QueueFull):
            raise answer
        return [row.execution_id for row in answer]


async def place(database: Database, ids: Sequence[int]) -> None:
    """What an executor does with requested executions."""
    async with database.transaction() as tx:
        await place_requested(tx, ids, max_queue_length=MAX_QUEUE_LENGTH, actor="executor test", draw=always_half)


async def start(database: Database, worker: TestWorker, claims: Sequence[tuple[int, int]]) -> list[Started]:
    """What a worker does with dispatched executions."""
    async with database.transaction() as tx:
        return await start_executions(tx, claims, claimant=worker.claimant)


async def statuses(database: Database, ids: Sequence[int]) -> list[str]:
    """Where executions stand, in the order given."""
    async with database.reading() as tx:
        return await _statuses(tx, ids)


async def _statuses(tx: Tx, ids: Sequence[int]) -> list[str]:
    rows = await tx.fetch("SELECT id, status FROM execution WHERE id = ANY($1)", ids)
    by_id = {row["id"]: row["status"] for row in rows}
    return [by_id[execution_id] for execution_id in ids]
