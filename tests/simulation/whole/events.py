"""What can happen to a world: work, people, and faults, each by its name in a plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from attune.domain.errors import NotFound
from attune.domain.execution import TERMINAL
from attune.domain.messages import MessageType
from attune.operations.access.write_audit import Actor
from attune.operations.cancel_execution import cancel_execution
from attune.operations.lines import resume_line as resuming
from attune.operations.lines.clear_line import clear_line
from attune.operations.lines.pause_line import pause_line
from attune.operations.workers.cordon_worker import cordon_worker, uncordon_worker
from attune.operations.workers.drain_worker import drain_worker
from attune.operations.workers.quarantine_actions import release_action
from attune.storage.database import may_work_later
from attune.storage.tx import Tx
from tests.simulation.whole.plan import IDEMPOTENT, LINED, NATIVE, PARENT, PLAIN, RETRIED, ZONED, Event
from tests.simulation.whole.rows import LineRow, PolicyRow
from tests.simulation.whole.services import Executor, SimulatedWorker
from tests.simulation.whole.stand_ins.moments import moment
from tests.simulation.whole.store import session_of
from tests.simulation.whole.world import World, new_execution

BY = Actor(name="person")
Do = Callable[[World, Event], None]


def happen(world: World, event: Event) -> None:
    world.trace.append((event.at, "plan", event.kind, event.which, event.how))
    KINDS[event.kind](world, event)


# Work


def _submit(world: World, event: Event) -> None:
    dice = Random(event.how)
    action = dice.choice([PLAIN, IDEMPOTENT, RETRIED, RETRIED, LINED, LINED, ZONED, ZONED, PARENT, NATIVE])
    new = []
    for _ in range(dice.choice([1, 1, 2, 3])):
        how: dict[str, Any] = {
            "g": dice.choice("aab"),
            "seconds": dice.choice([0.1, 0.1, 1.0, 1.0, 4.0, 15.0, 40.0, 90.0]),
            "exits": dice.choice([[0], [0], [0], [1, 0], [1, 1, 1]]),
            "stubborn": dice.random() < 0.2,
        }
        if action == PARENT:
            how |= {"children": 2, "exits": [0]}
        more: dict[str, Any] = {"priority": dice.choice([0, 0, 0, 1])}
        if dice.random() < 0.08 and world.store.table("worker"):
            more["pinned_to"] = dice.choice(sorted(world.store.table("worker")))
        elif dice.random() < 0.08:
            more["not_before"] = moment(world.store.clock + dice.random() * 10)
        if dice.random() < 0.1:
            more["ttl_seconds"] = dice.choice([5.0, 60.0])
        new.append(new_execution(world.store, action, how, **more))
    world.submit(*new)


def _submit_long(world: World, event: Event) -> None:
    """Something that will still run when a lease has run out."""
    how = {"g": "a", "seconds": 45.0 + event.how % 50}
    world.submit(new_execution(world.store, IDEMPOTENT, how))


# People


def _live(world: World, which: int) -> int | None:
    """Somebody alive, rather a parent."""
    rows = [row for row in world.store.table("execution").values() if row.status not in TERMINAL]
    ids = [row.parent for row in rows if row.parent is not None] or [row.id for row in rows]
    return ids[which % len(ids)] if ids else None


def _cancel(world: World, event: Event) -> None:
    if (id_ := _live(world, event.which)) is not None:
        world.do(lambda tx: cancel_execution(tx, id_, actor="person", force=event.kind == "force"))


def _line(world: World, which: int) -> LineRow | None:
    lines = list(world.store.table("line").values())
    return lines[which % len(lines)] if lines else None


def _pause(world: World, event: Event) -> None:
    if (line := _line(world, event.which)) is not None:
        world.do(lambda tx: _forgiving(pause_line(tx, line.id, by=BY)))
        world.loop.at(1 + event.how % 20, lambda: resume(world, line.id))


async def _forgiving(work: Any) -> None:  # noqa: ANN401 — a coroutine
    """The line may be gone by now."""
    try:
        await work
    except NotFound:
        return


def resume(world: World, line_id: int) -> None:
    world.do(lambda tx: _forgiving(resuming.resume_line(tx, line_id, by=BY)))


def _with_database(world: World, work: Callable[[Any], Any]) -> None:
    """What takes several transactions; whoever asked gives up if the database does not answer."""

    async def run() -> None:
        try:
            await _forgiving(work(world.api))
        except Exception as error:
            if not may_work_later(error):
                raise

    world.client.start(run())


def _clear(world: World, event: Event) -> None:
    if (line := _line(world, event.which)) is not None:
        _with_database(world, lambda database: clear_line(database, line.id, by=BY))


def _worker_id(world: World, which: int) -> int | None:
    ids = sorted(world.store.table("worker"))
    return ids[which % len(ids)] if ids else None


def _drain(world: World, event: Event) -> None:
    if (id_ := _worker_id(world, event.which)) is not None:
        _with_database(world, lambda database: drain_worker(database, id_, by=BY))
        world.loop.at(2 + event.how % 25, lambda: uncordon(world, id_))


def _cordon(world: World, event: Event) -> None:
    if (id_ := _worker_id(world, event.which)) is not None:
        world.do(lambda tx: cordon_worker(tx, id_, by=BY))
        world.loop.at(2 + event.how % 25, lambda: uncordon(world, id_))


def uncordon(world: World, worker_id: int) -> None:
    world.do(lambda tx: uncordon_worker(tx, worker_id, by=BY))


def release(world: World, ref: str) -> None:
    world.do(lambda tx: release_action(tx, ref, by=BY))


def _limit(world: World, event: Event) -> None:
    """As changing a policy does: the row, and a hint for each line that somebody waits in."""
    policies = list(world.store.table("policy").values())
    policy: PolicyRow = policies[event.which % len(policies)]

    async def change(tx: Tx) -> None:
        s = session_of(tx)
        await s.lock("policy", policy.id)
        s.change("policy", s.get("policy", policy.id, PolicyRow) or policy).limit = 1 + event.how % 3
        lines = [line for line in s.rows("line", LineRow) if line.policy_id == policy.id and line.waiting]
        tx.announce(MessageType.LINE_CHANGED, MessageType.LINE_CHANGED, [(line.id, 0) for line in lines])

    world.do(change)


def _leave(world: World, event: Event) -> None:
    """A worker is told to stop, and comes back later."""
    worker = _a_worker(world, event.which)
    if not worker.process.alive or worker.leaving:
        return
    worker.process.start(worker.drain())
    world.loop.at(5 + event.how % 30, lambda: _come_back(world, worker))


def _come_back(world: World, worker: SimulatedWorker) -> None:
    if world.workers[worker.plan.name] is worker and (worker.left or not worker.process.alive):
        if worker.process.alive:
            world.kill(worker.process)
        world.start_worker(worker.plan)


# Faults


def _a_worker(world: World, which: int) -> SimulatedWorker:
    workers = list(world.workers.values())
    return workers[which % len(workers)]


def _an_executor(world: World, which: int) -> Executor:
    return world.executors[which % len(world.executors)]


def _service(world: World, event: Event) -> Executor | SimulatedWorker:
    return _a_worker(world, event.which) if event.kind.endswith("worker") else _an_executor(world, event.which)


def _kill(world: World, event: Event) -> None:
    service = _service(world, event)
    if not service.process.alive:
        return
    delay = event.how % 40 / 2
    if isinstance(service, SimulatedWorker):
        world.kill_worker(service, told=event.how % 2 == 0)
        world.loop.at(delay, lambda: _come_back(world, service))
    else:
        world.kill(service.process)
        name = service.process.name
        world.loop.at(delay / 4, lambda: world.start_executor(name))


def _while(event: Event) -> float:
    """For a moment, for less than a lease, or for longer than one."""
    return (1.0, 12.0, 50.0)[event.how % 3] + event.how % 7


def _stop(world: World, event: Event) -> None:
    process = _service(world, event).process
    if process.alive and not process.stopped:
        world.stop(process)
        world.loop.at(_while(event), lambda: world.go_on(process) if process.stopped else None)


def _cut(world: World, event: Event) -> None:
    process = _service(world, event).process
    process.cut = True
    world.store.break_off(lambda session: session.process is process)

    def mend() -> None:
        process.cut = False

    world.loop.at(_while(event), mend)


def _drop_link(world: World, event: Event) -> None:
    services = world.services
    world.around.broker.disconnect(services[event.which % len(services)].process)


def _wipe(world: World, _event: Event) -> None:
    world.around.broker.wipe()


def _broker_away(world: World, event: Event) -> None:
    broker = world.around.broker
    broker.down = True
    world.loop.at(event.how % 40 / 2, broker.come_back)


def _restart_database(world: World, event: Event) -> None:
    store = world.store
    store.restart()
    store.down = True

    def come_back() -> None:
        store.down = False
        store.started_at = store.clock

    world.loop.at(event.how % 60 / 2, come_back)


def _clock_jump(world: World, event: Event) -> None:
    """The database's clock only: nobody else's is asked about leases. A jump ahead may outrun a lease."""
    world.store.clock_offset += event.how % 50 - 15
    for script in world.around.ledger.scripts:
        script.excuse = script.excuse or "the clock of the database jumped"


KINDS: Mapping[str, Do] = {
    "submit": _submit,
    "submit long": _submit_long,
    "cancel": _cancel,
    "force": _cancel,
    "pause": _pause,
    "clear": _clear,
    "drain": _drain,
    "cordon": _cordon,
    "limit": _limit,
    "leave": _leave,
    "kill worker": _kill,
    "kill executor": _kill,
    "stop worker": _stop,
    "stop executor": _stop,
    "cut worker": _cut,
    "cut executor": _cut,
    "drop link": _drop_link,
    "wipe broker": _wipe,
    "broker away": _broker_away,
    "restart database": _restart_database,
    "clock jump": _clock_jump,
}
