"""A world that a script leads by the hand: for traces, where what happens when is the point."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from attune.domain.execution import Status
from tests.simulation.whole import virtual
from tests.simulation.whole.broker import Consumer, Weather
from tests.simulation.whole.plan import Plan
from tests.simulation.whole.rows import ExecutionRow
from tests.simulation.whole.run import REST_SECONDS, judge_rest
from tests.simulation.whole.services import SimulatedWorker, WorkerPlan
from tests.simulation.whole.store import Session
from tests.simulation.whole.virtual import Waker
from tests.simulation.whole.world import World, new_execution

# Nothing that a script waits for takes longer.
PATIENCE_SECONDS = 2000.0


class Stage:
    """One installation, without faults but those of the script."""

    def __init__(
        self, *capacities: int, executors: int = 1, external: bool = False, troubled: bool = False, zones: int = 9
    ) -> None:
        workers = tuple(
            WorkerPlan(name=f"worker-{number}", capacity=capacity, labels={"zone": "a"} if number <= zones else {})
            for number, capacity in enumerate(capacities, start=1)
        )
        plan = Plan(
            seed=1,
            events=(),
            workers=workers,
            executors=executors,
            external=external,
            weather=Weather(),
            troubled=troubled,
        )
        self.world = World(plan=plan)
        virtual.enter(self.world.loop)
        self.world.begin()
        self.run(1.0)

    def end(self) -> str:
        """The name of what went wrong, if anything did."""
        self.world.end()
        virtual.leave()
        return self.world.violation.name if self.world.violation else ""

    @property
    def found(self) -> bool:
        return self.world.violation is not None

    def run(self, seconds: float) -> None:
        loop = self.world.loop
        loop.run_until(loop.now + seconds, done=lambda: self.found)

    def until(self, done: Callable[[], bool]) -> None:
        loop = self.world.loop
        loop.run_until(loop.now + PATIENCE_SECONDS, done=lambda: self.found or done())
        assert self.found or done(), "the script waits for something that does not happen"

    def rest(self) -> None:
        """Without anybody's help."""
        loop = self.world.loop
        loop.run_until(loop.now + REST_SECONDS, done=lambda: self.found or self.world.is_at_rest())
        if not self.found:
            judge_rest(self.world)

    def judge_ended(self) -> None:
        """Whoever was there has ended; messages to workers that are gone may remain."""
        store = self.world.store
        if not self.found and (
            store.table("entry") or any(row.ended_at is None for row in store.table("execution").values())
        ):
            self.world.accuse("everything_can_end", "somebody still waits")

    def worker(self, number: int) -> SimulatedWorker:
        return self.world.workers[f"worker-{number}"]

    def submit(self, action: int, *, seconds: float = 1.0, exits: Sequence[int] = (0,), **more: Any) -> int:  # noqa: ANN401 — what a request may say besides
        """Ask, and wait until it is accepted; the id."""
        table = self.world.store.table("execution")
        before = set(table)
        how = {"g": "a", "seconds": seconds, "exits": list(exits)} | more.pop("parameters", {})
        self.world.submit(new_execution(self.world.store, action, how, **more))
        self.until(lambda: len(table) > len(before))
        return max(table)

    def row(self, id_: int) -> ExecutionRow:
        row: ExecutionRow = self.world.store.table("execution")[id_]
        return row

    def until_status(self, id_: int, *statuses: Status) -> None:
        self.until(lambda: self.row(id_).status in statuses)

    def until_running(self, id_: int, attempt: int) -> None:
        """Its script lives."""
        ledger = self.world.around.ledger
        self.until(lambda: any(each.attempt == attempt for each in ledger.living(id_)))

    def deafen(self, worker: SimulatedWorker) -> Consumer:
        """Its consumer of cancels and pings hangs; everything else goes on."""
        consumers = self.world.around.broker.consumers
        deaf = next(each for each in consumers if each.process is worker.process and "cancel" in each.queue.name)
        consumers.remove(deaf)
        return deaf

    def hold(self, where: str, when: Callable[[Session], bool]) -> Callable[[], None]:
        """Keep the first such transaction where it is; what is returned lets it go on."""
        kept: list[Waker] = []

        def keep(session: Session, at: str) -> Callable[[Waker], None] | None:
            return kept.append if not kept and at == where and when(session) else None

        self.world.store.hold = keep

        def let_go() -> None:
            self.world.store.hold = None
            for wake in kept:
                wake()

        self.is_held = lambda: bool(kept)
        return let_go
