"""One run from its beginning to its end: a plan, then no more faults, and then everything has to come to rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from tests.simulation.whole import events, virtual
from tests.simulation.whole.broker import Weather
from tests.simulation.whole.plan import Plan
from tests.simulation.whole.rows import ActionRow, LineRow, WorkerRow
from tests.simulation.whole.world import World

# Longer than every timeout and lease together; who has not ended by then never will.
REST_SECONDS = 4000.0
# Of what is done in a run; many times as much as ever needed.
STEPS_MAX = 60_000
MEND_SECONDS = 10.0
# After so long without faults leases are again what they should be.
SETTLE_SECONDS = 60.0
# In a run without faults these have nothing to do. That no worker is there may be people's doing.
NETS = ("lost workers", "state audit", "scheduled timeout", "deadline", "queue timeout")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a run."""

    seed: int
    digest: str
    executions: int
    attempts: int
    steps: int
    seconds: float
    violation: str = ""
    text: str = ""
    trace: tuple[str, ...] = ()


def live(plan: Plan, *, tracing: bool = False) -> Outcome:
    """One run from beginning to end."""
    world = World(plan=plan)
    loop = world.loop
    virtual.enter(loop)
    try:
        world.begin()
        for event in plan.events:
            loop.at(event.at, lambda event=event: events.happen(world, event))  # type: ignore[misc]  # a lambda with a default

        def found() -> bool:
            if loop.steps > STEPS_MAX:
                world.accuse("everything_can_end", "it goes round and round")
            return world.violation is not None

        loop.run_until(plan.horizon_seconds, done=found)
        give_up = plan.horizon_seconds + REST_SECONDS
        mend(world)
        while not found() and not world.is_at_rest() and loop.now < give_up:
            loop.run_until(min(loop.now + MEND_SECONDS, give_up), done=lambda: found() or world.is_at_rest())
            mend(world)
            if loop.now > plan.horizon_seconds + SETTLE_SECONDS:
                world.judge_by(world.judge.see_time)
        if not found():
            judge_rest(world)
    finally:
        world.end()
        virtual.leave()
    return _outcome(world, tracing=tracing)


def judge_rest(world: World) -> None:
    if not world.is_at_rest():
        stuck = [f"{row.id} {row.status}" for row in world.store.table("execution").values() if row.ended_at is None]
        left = {name: len(world.store.table(name)) for name in ("assignment", "unplaced", "entry", "outbox")}
        world.accuse("everything_can_end", f"executions {stuck}, rows {left}")
        return
    if world.plan.calm:
        acted = {name: count for name, count in world.around.counters.acted.items() if name in NETS}
        if acted:
            world.accuse("nets_are_idle", f"without a fault: {acted}")


def _outcome(world: World, *, tracing: bool) -> Outcome:
    violation = world.violation
    return Outcome(
        seed=world.plan.seed,
        digest=world.digest(),
        executions=len(world.store.table("execution")),
        attempts=world.judge.attempts,
        steps=world.loop.steps,
        seconds=round(world.loop.now, 3),
        violation=violation.name if violation else "",
        text=str(violation) if violation else "",
        trace=tuple(map(str, world.trace)) if tracing else (),
    )


def mend(world: World) -> None:
    """No faults any more: everybody is there, everything is connected, nothing is held by hand."""
    around = world.around
    around.broker.weather = Weather()
    world.store.down = False
    around.broker.come_back()
    for database in [*(each.database for each in world.services), world.api]:
        database.lost_answers = 0.0
    for service in world.services:
        service.process.cut = False
        if service.process.stopped:
            world.go_on(service.process)
    for executor in list(world.executors):
        if not executor.process.alive:
            world.start_executor(executor.process.name)
    for worker in list(world.workers.values()):
        if not worker.process.alive or worker.left:
            if worker.process.alive:
                world.kill(worker.process)
            world.start_worker(worker.plan)
    let_go(world)


def let_go(world: World) -> None:
    for line in list(world.store.table("line").values()):
        if cast("LineRow", line).paused:
            events.resume(world, line.id)
    for worker in list(world.store.table("worker").values()):
        if cast("WorkerRow", worker).cordoned:
            events.uncordon(world, worker.id)
    for action in list(world.store.table("action").values()):
        if cast("ActionRow", action).quarantined_at is not None:
            events.release(world, action.ref)
