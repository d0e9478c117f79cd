"""What executors, workers and people do to lines, each in a transaction, and what the model makes of it."""

# ruff: noqa: ARG002 — every deed is told the same, and few need all of it

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from attune.operations.acceptance import Request
from attune.operations.access.write_audit import Actor
from attune.operations.cancel_execution import cancel_execution
from attune.operations.finish_executions import Report, finish_executions
from attune.operations.lines.admit_waiting import admit_waiting
from attune.operations.lines.join_lines import QueueFull
from attune.operations.lines.pause_line import pause_line
from attune.operations.lines.resume_line import resume_line
from attune.operations.release_executions import release_executions
from attune.operations.request_executions import request_executions
from attune.operations.start_executions import Started, start_executions
from attune.storage.assignments import Held
from attune.storage.tx import Tx
from tests.simulation.model import Model
from tests.witness.arrange import GRACE_SECONDS, MAX_QUEUE_LENGTH, TestWorker, always_half
from tests.witness.lines import SUCCESS
from tests.witness.prepare import prepare

ACTOR = "executor test"


@dataclass(kw_only=True)
class Scene:
    """What deeds are done to: the action, its lines, its worker, and the attempts that were started."""

    action_ref: str
    scope: str
    worker: TestWorker
    leases: dict[int, Started] = field(default_factory=dict)


class Deed(ABC):
    """Something done in one transaction."""

    def ends(self) -> set[int]:
        """Who may end by it."""
        return set()

    def tells(self) -> set[int]:
        """Whose end it tells of."""
        return set()

    async def prepare(self, tx: Tx, scene: Scene) -> None:  # noqa: B027 — most deeds have nothing to prepare
        """What happens first; the transaction may be held up after it."""

    @abstractmethod
    async def do(self, tx: Tx, scene: Scene) -> Any:  # noqa: ANN401 — what `apply` of the same deed takes
        """Do it, and say what the model needs to know."""

    @abstractmethod
    def apply(self, model: Model, scene: Scene, outcome: Any) -> None:  # noqa: ANN401 — what `do` of the same deed returned
        """Let the model follow, once it is committed."""


@dataclass(kw_only=True)
class Ask(Deed):
    """Somebody requests executions of several groups and priorities."""

    items: Sequence[tuple[str, int]]

    async def do(self, tx: Tx, scene: Scene) -> list[int]:
        wanted = [
            Request(action_ref=scene.action_ref, parameters={"g": group}, priority=priority)
            for group, priority in self.items
        ]
        prepared = await prepare(tx, wanted)
        (answer,) = await request_executions(
            tx, [prepared], max_queue_length=MAX_QUEUE_LENGTH, no_worker_grace_seconds=GRACE_SECONDS
        )
        assert not isinstance(answer, QueueFull)
        return [row.execution_id for row in answer]

    def apply(self, model: Model, scene: Scene, outcome: list[int]) -> None:
        for execution_id, (group, priority) in zip(outcome, self.items, strict=True):
            model.join(group_key(group), execution_id, priority)


def group_key(group: str) -> str:
    """The group as a line of the policy's one parameter spells it."""
    return f'{{"g":"{group}"}}'


@dataclass(kw_only=True)
class Admit(Deed):
    """An executor looks at lines."""

    async def do(self, tx: Tx, scene: Scene) -> list[str]:
        lines = await tx.fetch("SELECT id, group_key FROM line WHERE scope = $1", scene.scope)
        await admit_waiting(tx, [line["id"] for line in lines], actor=ACTOR, draw=always_half)
        return [line["group_key"] for line in lines]

    def apply(self, model: Model, scene: Scene, outcome: list[str]) -> None:
        model.step(outcome)


@dataclass(kw_only=True)
class Release(Deed):
    """An executor is told that executions ended; perhaps again, perhaps wrongly."""

    ids: Sequence[int]

    def tells(self) -> set[int]:
        return set(self.ids)

    async def do(self, tx: Tx, scene: Scene) -> list[str]:
        # The lines whose entries are there when the step begins, even if they go while it waits for the lock.
        groups = await tx.fetch_column(
            """
            SELECT DISTINCT l.group_key FROM line_entry e JOIN line l ON l.id = e.line_id
             WHERE e.execution_id = ANY($1)
            """,
            self.ids,
        )
        await release_executions(tx, self.ids, actor=ACTOR, draw=always_half)
        return groups

    def apply(self, model: Model, scene: Scene, outcome: list[str]) -> None:
        model.step(outcome, self.ids)


@dataclass(kw_only=True)
class Cancel(Deed):
    """A person cancels."""

    execution_id: int

    def ends(self) -> set[int]:
        return {self.execution_id}

    async def do(self, tx: Tx, scene: Scene) -> bool:
        await cancel_execution(tx, self.execution_id, actor="ana")
        return await has_ended(tx, self.execution_id)

    def apply(self, model: Model, scene: Scene, outcome: bool) -> None:  # noqa: FBT001 — the outcome is its only meaning
        if outcome:
            model.ended.add(self.execution_id)


@dataclass(kw_only=True)
class Start(Deed):
    """The worker starts what it was given."""

    execution_id: int

    async def do(self, tx: Tx, scene: Scene) -> list[Started]:
        attempt = await tx.fetch_value("SELECT attempt FROM execution WHERE id = $1", self.execution_id)
        return await start_executions(tx, [(self.execution_id, attempt)], claimant=scene.worker.claimant)

    def apply(self, model: Model, scene: Scene, outcome: list[Started]) -> None:
        for started in outcome:
            scene.leases[started.startable.execution_id] = started


@dataclass(kw_only=True)
class Finish(Deed):
    """The worker reports an end; perhaps again."""

    started: Started

    def ends(self) -> set[int]:
        return {self.started.startable.execution_id}

    async def do(self, tx: Tx, scene: Scene) -> bool:
        startable = self.started.startable
        held = Held(execution_id=startable.execution_id, attempt=startable.attempt, lease=self.started.lease)
        report = Report(held=held, worker_id=scene.worker.worker_id, ending=SUCCESS)
        await finish_executions(tx, [report], actor="worker test", draw=always_half)
        return await has_ended(tx, startable.execution_id)

    def apply(self, model: Model, scene: Scene, outcome: bool) -> None:  # noqa: FBT001 — as above
        if outcome:
            model.ended.add(self.started.startable.execution_id)


@dataclass(kw_only=True)
class Steer(Deed):
    """A person pauses or resumes a line."""

    group: str
    pauses: bool

    async def do(self, tx: Tx, scene: Scene) -> None:
        line_id = await tx.fetch_value(
            "SELECT id FROM line WHERE scope = $1 AND group_key = $2", scene.scope, self.group
        )
        await (pause_line if self.pauses else resume_line)(tx, line_id, by=Actor(name="ana"))

    def apply(self, model: Model, scene: Scene, outcome: None) -> None:
        (model.pause if self.pauses else model.resume)(self.group)


async def has_ended(tx: Tx, execution_id: int) -> bool:
    return bool(await tx.fetch_value("SELECT ended_at IS NOT NULL FROM execution WHERE id = $1", execution_id))
