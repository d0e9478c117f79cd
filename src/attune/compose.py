"""Builds each service from its settings: the only place where parts are joined. Dull and complete on purpose."""

import asyncio
import os
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import structlog

from attune import __version__
from attune.domain.messages import Message
from attune.domain.unplacing import Unplacing
from attune.executor.service import Executor
from attune.executor.sweeps import SweepSettings
from attune.notifier.service import Notifier
from attune.operations.access.bootstrap_admin import bootstrap_admin
from attune.operations.access.create_token import TokenRequest, create_token
from attune.operations.access.open_vault import open_vault
from attune.operations.access.verify_key import verify_key
from attune.operations.access.write_audit import Actor
from attune.operations.attend_workers import mark_worker_lost as record_worker_lost
from attune.operations.install_pack import install_pack
from attune.operations.unplace_executions import unplace_executions
from attune.operations.upkeep.check_invariants import CheckReport, check_invariants
from attune.operations.upkeep.store_counts import counting
from attune.packs.read import read_pack
from attune.packs.shipped import find_core_pack
from attune.packs.store import stage
from attune.runtime import clock
from attune.runtime.failpoints import arm_from_environment
from attune.runtime.home import Home, database_url, read_secret
from attune.runtime.keys import load_or_create_key
from attune.runtime.metrics import Metrics, build_metrics
from attune.runtime.passwords import hash_password
from attune.runtime.settings import Settings, TransportKind
from attune.runtime.supervise import CannotStart, Restart, Tasks, run_service
from attune.sensor.service import SensorService
from attune.storage import workers
from attune.storage.access import identities
from attune.storage.database import Database, may_work_later
from attune.transport.limits import Limits
from attune.transport.postgres import PostgresOptions, PostgresTransport
from attune.transport.protocol import Transport
from attune.transport.topology import (
    EXECUTOR_QUEUES,
    Queue,
    TopologyMismatch,
    TopologyRow,
    dead_letter_queue,
    describe,
    worker_queues,
)
from attune.worker.plan import plan_worker
from attune.worker.service import WorkerParts, run_worker

SERVICES = ("api", "executor", "worker", "sensor", "notifier")
# asyncio's own loop starts subprocesses twice as fast as uvloop; everything else is faster on uvloop.
ON_STOCK_LOOP = frozenset({"worker", "sensor"})

ADMIN = "admin"
CLI_TOKEN = "command line"  # noqa: S105  the token's name, not the token
PASSWORD_BYTES = 12
# How long a service that starts waits for a database that is just starting, too.
PATIENCE_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Wiring:
    """What every service is built from."""

    name: str
    settings: Settings
    home: Home
    database: Database
    transport: Transport
    metrics: Metrics


def serve(service: str, settings: Settings, home: Path, name: str) -> int:
    """Run one service in this process until it is told to stop; returns its exit code."""
    arm_from_environment(os.environ, process=name, service=service)

    async def main(tasks: Tasks) -> None:
        async with (
            wired(settings, home, name=name, service=service, patience_seconds=PATIENCE_SECONDS) as wiring,
            counting(wiring.database, wiring.metrics.counts, tasks),
        ):
            structlog.get_logger().info("service.starting", name=name, transport=wiring.transport.name)
            try:
                await _RUN[service](wiring, tasks)
            except TopologyMismatch as error:
                # A service that cannot hear is worse than none; its message names the cure.
                raise CannotStart(str(error)) from error
            except Exception as error:
                if not may_work_later(error):
                    raise
                # Gone again after we had waited for it: whoever starts us anew waits again, and no trace helps anybody.
                raise CannotStart(f"the database or the network failed: {type(error).__name__}: {error}") from error

    return run_service(main, loop_factory=_loop_factory(service))


def _loop_factory(service: str) -> Callable[[], asyncio.AbstractEventLoop] | None:
    if service in ON_STOCK_LOOP:
        return None
    import uvloop

    return uvloop.new_event_loop


@asynccontextmanager
async def wired(
    settings: Settings, home: Path, *, name: str, service: str = "", patience_seconds: float = 0
) -> AsyncIterator[Wiring]:
    """A database and a transport, joined; both are closed at the end."""
    where = Home(home)
    async with opened(settings, where, application=f"attune {name}", patience_seconds=patience_seconds) as database:
        transport = open_transport(settings, database, name=name)
        metrics = build_metrics(version=__version__, service=service)
        database.after_commit = transport.after_commit
        database.on_ended = metrics.count_ended
        yield Wiring(name=name, settings=settings, home=where, database=database, transport=transport, metrics=metrics)


@asynccontextmanager
async def opened(
    settings: Settings, home: Home, *, application: str, size: int | None = None, patience_seconds: float = 0
) -> AsyncIterator[Database]:
    """A pool of connections to the platform's database."""
    database = await Database.connect(
        database_url(settings, home),
        size=size or settings.database.pool_size,
        application=application,
        items_max=settings.executor.batch_max,
        patience_seconds=patience_seconds,
    )
    try:
        yield database
    finally:
        await database.close()


def open_transport(settings: Settings, database: Database, *, name: str) -> Transport:
    """The transport the settings ask for."""
    ttl_seconds = dispatch_ttl_seconds(settings)
    if settings.message_queue.transport is TransportKind.POSTGRES:
        return PostgresTransport(database, PostgresOptions(dispatch_ttl_seconds=ttl_seconds))
    from attune.transport.rabbitmq import RabbitOptions, RabbitTransport

    async def on_returned_dispatch(message: Message) -> bool:
        """No queue took it: its worker is gone for good, so another one shall have the work."""
        async with database.transaction() as tx:
            why = Unplacing(
                actor=name,
                reason="the worker's queue does not exist",
                placements_max=settings.executor.placements_max,
            )
            moved = await unplace_executions(tx, message.items, why=why)
        # What stayed is pinned or over; for it the message waits until its TTL.
        return len(moved) == len(message.items)

    options = RabbitOptions(
        url=settings.message_queue.full_url.reveal(),
        dead_letter_exchange=settings.message_queue.rabbitmq.dead_letter.exchange,
        dispatch_ttl_seconds=ttl_seconds,
        relay_interval_seconds=settings.outbox.relay_interval,
    )
    return RabbitTransport(database, options, on_returned_dispatch=on_returned_dispatch)


def dispatch_ttl_seconds(settings: Settings) -> float | None:
    """How long a dispatch waits for its worker; None leaves the timeout sweep as the only net."""
    rabbitmq = settings.message_queue.rabbitmq
    return rabbitmq.worker_queue_ttl_ms / 1000 if rabbitmq.dead_letter.enabled else None


def executor_queues(settings: Settings) -> tuple[Queue, ...]:
    """Everything an executor declares and consumes."""
    dead_letter = settings.message_queue.rabbitmq.dead_letter
    if not dead_letter.enabled:
        return EXECUTOR_QUEUES
    return (*EXECUTOR_QUEUES, dead_letter_queue(ttl_ms=dead_letter.ttl_ms, exchange=dead_letter.exchange))


def limits_of(settings: Settings) -> Limits:
    """How much a consumer takes and how often it tries."""
    return Limits(
        batch_max=settings.executor.batch_max,
        deliveries_max=settings.consumer.deliveries_max,
        suspect_seconds=settings.consumer.suspect_seconds,
        backoff_seconds=settings.consumer.backoff_seconds,
    )


async def _run_executor(wiring: Wiring, tasks: Tasks) -> None:
    settings = wiring.settings
    rabbitmq = settings.message_queue.rabbitmq
    if not rabbitmq.dead_letter.enabled:
        structlog.get_logger().warning(
            "dead_letters.off",
            consequence="what no worker takes is noticed by the scheduled timeout only",
            cure="set message_queue.rabbitmq.dead_letter.enabled to true",
        )
    executor = Executor(
        name=wiring.name,
        instance=clock.new_uuid(),
        database=wiring.database,
        transport=wiring.transport,
        queues=executor_queues(settings),
        limits=limits_of(settings),
        max_queue_length=settings.executor.queue.max_queue_length,
        sweep_settings=SweepSettings(
            heartbeat_interval=settings.worker.heartbeat_interval,
            scheduled_timeout=settings.executor.scheduled_timeout,
            timeout_check_interval=settings.executor.timeout_check_interval,
            placements_max=settings.executor.placements_max,
            history_days=settings.retention.history_days,
            logs_days=settings.retention.logs_days,
            artifacts_days=settings.retention.artifacts_days,
            executions_days=settings.retention.executions_days,
            dead_letter_seconds=rabbitmq.dead_letter.ttl_ms / 1000,
            pinned_ttl_seconds=None if rabbitmq.dead_letter.enabled else rabbitmq.worker_queue_ttl_ms / 1000,
            idempotency_hours=settings.retention.idempotency_hours,
            queue_timeout_seconds=settings.executor.queue.queue_timeout_seconds,
            line_history_days=settings.retention.line_history_days if settings.executor.queue.enable_metrics else None,
            health_check_interval=settings.executor.health_check_interval,
        ),
        metrics=wiring.metrics,
    )
    await executor.run(tasks)


async def _run_sensor(wiring: Wiring, tasks: Tasks) -> None:
    await SensorService(name=wiring.name, transport=wiring.transport).run(tasks)


async def _run_notifier(wiring: Wiring, tasks: Tasks) -> None:
    await Notifier(name=wiring.name, transport=wiring.transport).run(tasks)


async def _run_worker(wiring: Wiring, tasks: Tasks) -> None:
    settings = wiring.settings
    plan = plan_worker(settings, wiring.home, name=wiring.name, version=__version__, limits=limits_of(settings))
    tasks.start("transport", wiring.transport.run, restart=Restart())
    parts = WorkerParts(
        plan=plan,
        database=wiring.database,
        transport=wiring.transport,
        metrics=wiring.metrics,
        vault=await open_vault(wiring.database, settings.security.key_file or wiring.home.key),
    )
    await run_worker(parts, tasks)


async def _run_api(wiring: Wiring, tasks: Tasks) -> None:
    from attune.api.app import create_app  # the web framework: only this service pays for its import
    from attune.api.checks import platform_checks
    from attune.api.parts import ApiLimits, ApiParts
    from attune.api.serve import serve_api

    settings = wiring.settings
    parts = ApiParts(
        database=wiring.database,
        metrics=wiring.metrics,
        version=__version__,
        pack_store=wiring.home.packs,
        limits=ApiLimits(
            body_max_bytes=settings.api.body_max_bytes,
            wait_max_seconds=settings.api.wait_max_seconds,
            batch_max=settings.executor.batch_max,
            refuse_above=settings.outbox.refuse_above,
            accept_below=settings.outbox.accept_below,
            max_queue_length=settings.executor.queue.max_queue_length,
            line_metrics=settings.executor.queue.enable_metrics,
            no_worker_grace_seconds=settings.executor.no_worker_grace_seconds,
        ),
        checks=platform_checks(wiring.database, wiring.transport),
        vault=await open_vault(wiring.database, settings.security.key_file or wiring.home.key),
    )
    tasks.start("transport", wiring.transport.run, restart=Restart())
    await wiring.transport.declare(())
    await serve_api(create_app(parts), host=settings.api.host, port=settings.api.port, stop=tasks.stop)


_RUN: Mapping[str, Callable[[Wiring, Tasks], Awaitable[None]]] = {
    "api": _run_api,
    "executor": _run_executor,
    "worker": _run_worker,
    "sensor": _run_sensor,
    "notifier": _run_notifier,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bootstrap:
    """What a first start made, to be shown or kept once."""

    admin_password: str | None
    cli_token: str | None


async def bootstrap(settings: Settings, home: Path) -> Bootstrap:
    """Check the key, make the first administrator, log the command line in, install the core pack."""
    where = Home(home)
    key = load_or_create_key(settings.security.key_file or where.key)
    async with opened(settings, where, application="attune up", size=2) as database:
        async with database.transaction() as tx:
            await verify_key(tx, key)
        made = await _make_admin(database, where)
        await _install_core_pack(database, where)
    return made


async def _make_admin(database: Database, home: Home) -> Bootstrap:
    password = secrets.token_urlsafe(PASSWORD_BYTES)
    hashed = await asyncio.to_thread(hash_password, password)
    async with database.transaction() as tx:
        first = await bootstrap_admin(
            tx, login=ADMIN, password_hash=hashed, token_name=CLI_TOKEN, by=Actor(name="attune up")
        )
        if first is not None:
            return Bootstrap(admin_password=password, cli_token=first.token_secret)
        # A first start may have ended between making the administrator and keeping the token.
        admin = await identities.find_by_login(tx, ADMIN)
        if admin is None or read_secret(home.cli_token) is not None:
            return Bootstrap(admin_password=None, cli_token=None)
        wanted = TokenRequest(identity=admin.id, name=CLI_TOKEN)
        token = await create_token(tx, wanted, by=Actor(name="attune up"))
        return Bootstrap(admin_password=None, cli_token=token.secret)


async def _install_core_pack(database: Database, home: Home) -> None:
    folder = find_core_pack()
    staged = await asyncio.to_thread(stage, folder, home.packs)
    reading = await asyncio.to_thread(read_pack, staged)
    async with database.transaction() as tx:
        await install_pack(tx, reading.definition, digest=reading.digest, source="core", by=Actor(name="attune up"))


async def check(settings: Settings, home: Path, *, everything: bool) -> CheckReport:
    """The verdict on every invariant, straight from the database."""
    async with (
        opened(settings, Home(home), application="attune check", size=2) as database,
        database.snapshot(application="attune check") as tx,
    ):
        return await check_invariants(tx, everything=everything)


async def mark_worker_lost(settings: Settings, home: Path, *, name: str, pid: int) -> bool:
    """Tell the database that a worker's process has ended."""
    async with (
        opened(settings, Home(home), application="attune up", size=2) as database,
        database.transaction() as tx,
    ):
        return await record_worker_lost(tx, name=name, pid=pid)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyReport:
    """Every queue, and whether all is well with them."""

    ok: bool
    transport: str
    queues: Sequence[TopologyRow]


async def topology(settings: Settings, home: Path, *, verify: bool, repair: bool) -> TopologyReport:
    """Who declares and consumes what; compared with what is really there, if asked."""
    async with wired(settings, home, name="topology") as wiring:
        async with wiring.database.reading() as tx:
            worker_ids = await workers.list_ids(tx)
        ttl_ms = settings.message_queue.rabbitmq.worker_queue_ttl_ms
        wanted = [
            *executor_queues(settings),
            *(queue for worker_id in worker_ids for queue in worker_queues(worker_id, ttl_ms=ttl_ms)),
        ]
        if verify or repair:
            rows = await wiring.transport.inspect(wanted, repair=repair)
        else:
            rows = [describe(queue) for queue in wanted]
        ok = not any(row.problem for row in rows)
        return TopologyReport(ok=ok, transport=wiring.transport.name, queues=rows)
