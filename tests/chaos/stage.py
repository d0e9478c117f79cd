"""Everything a run starts and may therefore harm: its PostgreSQL, its broker, the ways to them, and the platform."""

from __future__ import annotations

import json
import os
import secrets
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from attune.runtime import failpoints
from tests.chaos.kinds import BROKER, POSTGRES, SCALE, SERVICES
from tests.chaos.plan import KILL, Plan
from tests.chaos.points.coverage import transports_of
from tests.chaos.points.ways import EXPIRY, MIGRATION
from tests.chaos.postgres import Postgres, a_postgres
from tests.chaos.shim import Shim, build_shim
from tests.witness.platform import Platform, running_platform
from tests.witness.proxy import Proxy, proxy_before
from tests.witness.servers import RabbitMQ, start_rabbitmq
from tests.witness.wheels import offline

MARK = "started-by-chaos"
# Where the packages of the packs of a run are.
WHEELS = "wheels"
HEARTBEAT_SECONDS = 2
SETTINGS = {
    "ATTUNE__WORKER__HEARTBEAT_INTERVAL": str(HEARTBEAT_SECONDS),
    # So few that somebody has to wait for room where one worker is missing.
    "ATTUNE__WORKER__CAPACITY": "6",
    "ATTUNE__EXECUTOR__SCHEDULED_TIMEOUT": "10",
    "ATTUNE__EXECUTOR__HEALTH_CHECK_INTERVAL": "5",
    "ATTUNE__EXECUTOR__NO_WORKER_GRACE_SECONDS": "120",
    # What was never started is placed for as long as a fault lasts.
    "ATTUNE__EXECUTOR__PLACEMENTS_MAX": "50",
    "ATTUNE__DATABASE__POOL_SIZE": "6",
    "ATTUNE__LOG__FORMAT": "json",
}
# Where dispatches are to expire: later than others have taken the work over, and soon enough to be seen.
EXPIRING = {"ATTUNE__MESSAGE_QUEUE__RABBITMQ__WORKER_QUEUE_TTL_MS": "12000"}


class Refused(Exception):
    """This is not a platform that the run has started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A running platform of three executors and three workers, and every lever there is to harm it."""

    folder: Path
    mark: str
    platform: Platform
    postgres: Postgres
    broker: RabbitMQ | None
    # The ways to `postgres`, `rabbitmq` and `api`.
    ways: Mapping[str, Proxy]
    shim: Shim | str
    fired: Path

    def refuse_others(self) -> None:
        """Only a home with the mark of this very run may be harmed."""
        mark = self.platform.home / MARK
        if not mark.is_file() or mark.read_text() != self.mark:
            raise Refused(f"{self.platform.home} was not started by this run; it is left alone")

    def processes(self) -> dict[str, psutil.Process]:
        """The services that run now, by name: the children of the supervisor of our home."""
        self.refuse_others()
        found: dict[str, psutil.Process] = {}
        with suppress(psutil.Error, OSError, ValueError):
            supervisor = int((self.platform.home / "run" / "supervisor.lock").read_text().split()[0])
            for child in psutil.Process(supervisor).children():
                with suppress(psutil.Error):
                    found[child.environ().get("ATTUNE_PROCESS", "")] = child
        return {name: child for name, child in found.items() if name in SERVICES}

    def send(self, name: str, which: signal.Signals) -> int | None:
        """Signal one service; returns its process, or None if it was just not there."""
        process = self.processes().get(name)
        if process is None:
            return None
        with suppress(psutil.NoSuchProcess):
            process.send_signal(which)
        return process.pid

    def has_fired(self, point: str) -> bool:
        """Whether a process has been there since it was let loose."""
        return point in self.reached()

    def reached(self) -> dict[str, str]:
        """What has fired so far: point → action."""
        said = {path.name: path.read_text() for path in self.fired.iterdir()}
        return {name: json.loads(text)["action"] for name, text in said.items() if text}

    def ports_of(self, name: str) -> set[int]:
        """From where the connections of a service come."""
        process = self.processes().get(name)
        if process is not None:
            with suppress(psutil.Error):
                return {each.laddr.port for each in process.net_connections("tcp4")}
        return set()


@asynccontextmanager
async def a_stage(plan: Plan, folder: Path) -> AsyncIterator[Stage]:
    """Start everything; nothing of it runs afterwards."""
    _say_what_is_not_inherited()
    shim = build_shim(folder, (POSTGRES, *SERVICES))
    loaded = shim.variables() if isinstance(shim, Shim) else {}
    fired = folder / "failpoints"
    fired.mkdir()
    for name in plan.armed.keys() - {MIGRATION}:
        # As if it had fired already: each is let loose when its time comes.
        (fired / name).touch()
    async with AsyncExitStack() as stack:
        postgres = await stack.enter_async_context(a_postgres(folder / POSTGRES, loaded))
        ways = {POSTGRES: await stack.enter_async_context(proxy_before(postgres.url))}
        settings = {**SETTINGS, **loaded, **offline(folder / WHEELS)}
        settings["ATTUNE__DATABASE__URL"] = ways[POSTGRES].redirect(postgres.url)
        broker = None
        if plan.transport == BROKER:
            broker = await stack.enter_async_context(start_rabbitmq())
            ways[BROKER] = await stack.enter_async_context(proxy_before(broker.url()))
            settings["ATTUNE__MESSAGE_QUEUE__URL"] = ways[BROKER].redirect(broker.url())
        if EXPIRY in plan.armed:
            settings |= EXPIRING
        if plan.failpoints:
            settings |= {
                "ATTUNE_FAILPOINTS": ";".join(plan.failpoints),
                "ATTUNE_FAILPOINTS_SEED": str(plan.seed),
                "ATTUNE_FAILPOINTS_FOLDER": str(fired),
            }
        dies = plan.armed.get(MIGRATION) == KILL
        starting = running_platform(options=SCALE, settings=settings, dies_first=dies)
        platform = await stack.enter_async_context(starting)
        mark = secrets.token_hex(16)
        (platform.home / MARK).write_text(mark)
        ways["api"] = await stack.enter_async_context(proxy_before(platform.url))
        yield Stage(
            folder=folder,
            mark=mark,
            platform=platform,
            postgres=postgres,
            broker=broker,
            ways=ways,
            shim=shim,
            fired=fired,
        )


def failpoints_to_arm(transport: str) -> dict[str, list[str]]:
    """Every point of a transport, with what it can be armed with besides a kill."""
    return {
        name: ["unknown", "sleep:0.5"] if each.answered else ["sleep:0.5"]
        for name, each in failpoints.DECLARED.items()
        if transport in transports_of(each)
    }


def _say_what_is_not_inherited() -> None:
    foreign = sorted(name for name in os.environ if name.startswith("ATTUNE"))
    if foreign:
        told = ", ".join(foreign)
        sys.stderr.write(f"chaos: {told} is ignored: a run only harms a platform that it starts itself\n")
