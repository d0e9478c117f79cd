"""What an executor looks for by itself: every sweep is guarded, counted, and safe on every replica at once."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace

import structlog

from attune.domain.placement import STALE_INTERVALS
from attune.executor.contact import Contact
from attune.operations.dead_letters.expire_own_ttls import expire_own_ttls
from attune.operations.expire_executions import expire_deadlines, expire_scheduled
from attune.operations.lines.adapt_limits import adapt_limits
from attune.operations.lines.expire_waiting import expire_waiting
from attune.operations.lines.remove_idle_lines import remove_idle_lines
from attune.operations.rescue_lost import rescue_lost
from attune.operations.upkeep.heal_states import heal_states
from attune.operations.upkeep.keep_house import Keeping, keep_house
from attune.operations.upkeep.record_lines import record_lines
from attune.operations.workers.expire_unserved import expire_unserved
from attune.operations.workers.probe_workers import LOOK_SHARE, probe_workers
from attune.runtime.metrics import Metrics
from attune.storage.database import Database, may_work_later
from attune.storage.tx import Tx

DEADLINE_SECONDS = 5.0
OWN_TTL_SECONDS = 0.5
AUDIT_SECONDS = 60.0
QUEUE_TIMEOUT_SECONDS = 1.0
ADAPTIVE_SECONDS = 1.0
NO_WORKER_SECONDS = 5.0
IDLE_LINES_SECONDS = 60.0
# Several looks make up the minute that is kept.
LINE_HISTORY_SECONDS = 10.0
HOUSEKEEPING_SECONDS = 3600.0
# After the database was away, look again soon.
RETRY_SECONDS = 1.0

Draw = Callable[[], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepSettings:
    """How often sweeps run and what they tolerate."""

    heartbeat_interval: float
    scheduled_timeout: float
    timeout_check_interval: float
    placements_max: int
    history_days: int
    dead_letter_seconds: float
    # Where dead letters are off: how long pinned work waits for its worker.
    pinned_ttl_seconds: float | None
    idempotency_hours: int
    queue_timeout_seconds: float
    health_check_interval: float
    # None: no history of lines is kept.
    line_history_days: int | None = None
    logs_days: int = 30
    artifacts_days: int = 30
    executions_days: int = 30

    @property
    def keeping(self) -> Keeping:
        """How long things are kept."""
        return Keeping(
            dead_letter_seconds=self.dead_letter_seconds,
            idempotency_hours=self.idempotency_hours,
            history_days=self.history_days,
            logs_days=self.logs_days,
            artifacts_days=self.artifacts_days,
            executions_days=self.executions_days,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """One thing to look for, and how often; it returns how much it had to mend."""

    name: str
    interval_seconds: float
    operation: Callable[[Tx], Awaitable[int]]
    contact: Contact = field(default_factory=Contact)
    # It gives work up because nobody could do it, and so waits until everybody had the time to be heard.
    patient: bool = False


def sweeps(settings: SweepSettings, *, draw: Draw) -> Sequence[Sweep]:
    """The table of everything an executor looks for."""
    heartbeat = settings.heartbeat_interval
    # Lost workers are looked for twice in each interval; two such looks missed in a row are no accident. Who counts as
    # gone after so many heartbeats has the same time to be heard again after an outage.
    contact = Contact(break_seconds=2 * heartbeat, patience_seconds=STALE_INTERVALS * heartbeat)
    return tuple(replace(sweep, contact=contact) for sweep in _table(settings, draw=draw))


def _table(settings: SweepSettings, *, draw: Draw) -> Sequence[Sweep]:
    return (
        *_of_workers(settings, draw=draw),
        *_records(settings),
        Sweep(
            name="scheduled timeout",
            interval_seconds=settings.timeout_check_interval,
            operation=lambda tx: expire_scheduled(
                tx, timeout_seconds=settings.scheduled_timeout, placements_max=settings.placements_max
            ),
            patient=True,
        ),
        Sweep(
            name="own ttl",
            interval_seconds=OWN_TTL_SECONDS,
            operation=lambda tx: expire_own_ttls(
                tx, pinned_ttl_seconds=settings.pinned_ttl_seconds, placements_max=settings.placements_max
            ),
        ),
        Sweep(
            name="deadline",
            interval_seconds=DEADLINE_SECONDS,
            operation=lambda tx: expire_deadlines(tx, draw=draw),
        ),
        Sweep(
            name="queue timeout",
            interval_seconds=QUEUE_TIMEOUT_SECONDS,
            operation=lambda tx: expire_waiting(tx, default_seconds=settings.queue_timeout_seconds),
        ),
        Sweep(name="adaptive limits", interval_seconds=ADAPTIVE_SECONDS, operation=adapt_limits),
        Sweep(name="idle lines", interval_seconds=IDLE_LINES_SECONDS, operation=remove_idle_lines),
        Sweep(name="state audit", interval_seconds=AUDIT_SECONDS, operation=heal_states),
        Sweep(
            name="housekeeping",
            interval_seconds=HOUSEKEEPING_SECONDS,
            operation=lambda tx: keep_house(tx, settings.keeping),
        ),
    )


def _of_workers(settings: SweepSettings, *, draw: Draw) -> Sequence[Sweep]:
    return (
        Sweep(
            name="lost workers",
            interval_seconds=settings.heartbeat_interval / 2,
            operation=lambda tx: rescue_lost(tx, placements_max=settings.placements_max, draw=draw),
        ),
        Sweep(
            name="health probe",
            interval_seconds=settings.health_check_interval * LOOK_SHARE,
            operation=lambda tx: probe_workers(tx, interval_seconds=settings.health_check_interval),
        ),
        Sweep(
            name="no worker",
            interval_seconds=NO_WORKER_SECONDS,
            operation=lambda tx: expire_unserved(tx, timeout_seconds=settings.queue_timeout_seconds),
            patient=True,
        ),
    )


def _records(settings: SweepSettings) -> Sequence[Sweep]:
    days = settings.line_history_days
    if days is None:
        return ()
    return (
        Sweep(
            name="line history",
            interval_seconds=LINE_HISTORY_SECONDS,
            operation=lambda tx: record_lines(tx, days=days),
        ),
    )


async def repeat(sweep: Sweep, database: Database, *, metrics: Metrics, draw: Draw) -> None:
    """Run a sweep until cancelled; the first time soon, because a restart is when something may be lying about."""
    log = structlog.get_logger()
    counter = metrics.sweep_actions.labels(sweep=sweep.name)
    pause = min(sweep.interval_seconds, RETRY_SECONDS)
    while True:
        # Replicas that started together shall not sweep together.
        await asyncio.sleep(pause * (0.75 + draw() / 2))
        if sweep.patient and not sweep.contact.is_old:
            pause = min(sweep.interval_seconds, RETRY_SECONDS)
            continue
        try:
            async with database.transaction() as tx:
                acted = await sweep.operation(tx)
        except Exception as error:
            if not may_work_later(error):
                raise
            log.warning("sweep.put_off", sweep=sweep.name, error=str(error))
            pause = RETRY_SECONDS
            continue
        sweep.contact.touch()
        pause = sweep.interval_seconds
        if acted:
            counter.inc(acted)
            log.info("sweep.acted", sweep=sweep.name, executions=acted)
