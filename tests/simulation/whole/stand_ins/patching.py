"""Puts the stand-ins in the place of the statements, and virtual time in the place of the machine's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from types import ModuleType, SimpleNamespace
from typing import Any

import attune.executor.sweeps
import attune.operations.request_executions
import attune.runtime.clock
import attune.storage.access.audit_log
import attune.storage.assignments
import attune.storage.availability.probes
import attune.storage.availability.quarantines
import attune.storage.availability.serving
import attune.storage.availability.steering
import attune.storage.births
import attune.storage.dead_letters
import attune.storage.executions
import attune.storage.families
import attune.storage.line_upkeep.controls
import attune.storage.line_upkeep.sweeps
import attune.storage.lines
import attune.storage.outbox
import attune.storage.output.late_results
import attune.storage.placing
import attune.storage.unplaced
import attune.storage.workers
import attune.transport.consume
import attune.transport.expiry
import attune.transport.postgres
import attune.transport.rabbitmq.source
import attune.worker.claims
import attune.worker.heartbeat
import attune.worker.perform
import attune.worker.reports
import attune.worker.service
from tests.simulation.whole.stand_ins import assignments, executions, lines, messages, workers
from tests.simulation.whole.virtual import VirtualAsyncio, running_loop

storage = attune.storage

_UNPLACED: dict[str, Any] = {"insert_many": assignments.insert_unplaced, "delete_many": assignments.delete_unplaced}


def _take(module: ModuleType, names: str) -> dict[str, Any]:
    return {name: getattr(module, name) for name in names.split()}


# Which stand-in is in the place of what.
STAND_INS: Mapping[ModuleType, Mapping[str, Callable[..., Any]]] = {
    storage.executions: _take(
        executions,
        "change_many lock_requested lock_scheduling lock_scheduled lock_many lock_ending list_startable list_due exists"
        " list_patient list_moved_by list_requested save_places save_inherited",
    ),
    storage.families: _take(executions, "list_live lock_stopping list_childless"),
    storage.births: _take(executions, "insert_many"),
    storage.assignments: _take(
        assignments,
        "insert_many insert_started delete_many start_many renew_many list_lost list_unstarted_on"
        " list_overdue_unstarted list_past_deadline list_patient list_past_own_ttl",
    ),
    storage.unplaced: _UNPLACED | _take(assignments, "list_first list_pools exists_older_than"),
    storage.workers: _take(workers, "register beat change_status mark_lost_by_pid mark_stale_lost set_full"),
    storage.availability.probes: _take(workers, "mark_unresponsive take_due save_pong"),
    storage.availability.quarantines: _take(workers, "add_losses forget_losses release"),
    storage.availability.serving: _take(
        workers, "list_unserved list_living list_unserved_executions list_stranded settle_served"
    ),
    storage.availability.steering: _take(workers, "lock save"),
    storage.placing: _take(workers, "open_pool"),
    storage.lines: _take(
        lines,
        "find_policies insert_missing lock_by_key save_joined insert_entries admit release"
        " list_held list_stuck list_leaked delete_idle find_held_by_ancestors",
    ),
    storage.line_upkeep.controls: _take(lines, "lock_many save_pause save_resume list_waiting"),
    storage.line_upkeep.sweeps: _take(lines, "list_overdue put_off_timeouts"),
    storage.outbox: _take(
        messages,
        "insert take count_suspect insert_counted count_failed uncount put_off delete delete_many claim_overdue"
        " expire_dispatches",
    ),
    storage.dead_letters: {"insert": messages.insert_dead_letter} | _take(messages, "insert_buried"),
    storage.output.late_results: {"insert_many": messages.insert_late},
    storage.access.audit_log: {"insert_many": messages.insert_audit},
}

# Where a name was taken over by itself.
COPIES = ((attune.operations.request_executions, "insert_many", executions.insert_many),)

# Whoever sleeps, waits or starts tasks does so in virtual time.
TIMED = (
    attune.executor.sweeps,
    attune.transport.consume,
    attune.transport.expiry,
    attune.transport.postgres,
    attune.transport.rabbitmq.source,
    attune.worker.claims,
    attune.worker.heartbeat,
    attune.worker.perform,
    attune.worker.reports,
)
LOGGING = (
    attune.executor.sweeps,
    attune.transport.consume,
    attune.transport.expiry,
    attune.transport.rabbitmq.source,
    attune.worker.claims,
    attune.worker.heartbeat,
    attune.worker.perform,
    attune.worker.reports,
)


class _Silence:
    def __getattr__(self, _name: str) -> Callable[..., Any]:
        return lambda *_arguments, **_values: self


class _Dice:
    @staticmethod
    def random() -> float:
        return running_loop().dice.random()


@contextmanager
def stand_ins() -> Iterator[None]:
    """Everything in its place, and back again afterwards."""
    silence = SimpleNamespace(get_logger=_Silence)
    clock = SimpleNamespace(monotonic=lambda: running_loop().now)
    replaced: list[tuple[Any, str, Any]] = [
        *((module, name, function) for module, names in STAND_INS.items() for name, function in names.items()),
        *COPIES,
        *((module, "asyncio", VirtualAsyncio) for module in TIMED),
        *((module, "structlog", silence) for module in LOGGING),
        # It asks which task runs, and there is none of asyncio's.
        (attune.transport.rabbitmq.source, "broker_calls", nullcontext),
        (attune.runtime.clock, "time", clock),
        (attune.runtime.clock, "_DICE", _Dice),
    ]
    with replacing(replaced):
        yield


@contextmanager
def replacing(replaced: list[tuple[Any, str, Any]]) -> Iterator[None]:
    """Each name of each thing stands for something else, for a while."""
    before = [(thing, name, getattr(thing, name)) for thing, name, _ in replaced]
    for thing, name, value in replaced:
        setattr(thing, name, value)
    try:
        yield
    finally:
        for thing, name, value in before:
            setattr(thing, name, value)
