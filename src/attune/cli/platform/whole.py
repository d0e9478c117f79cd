"""The life of a whole platform: database, schema, first administrator, services; ready, running, stopped."""

import asyncio
import contextlib
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import structlog

from attune.cli.exits import CommandFailed, Exit, database_errors
from attune.cli.platform.announce import Announcer, Summary
from attune.cli.platform.autoscale import Autoscaler
from attune.cli.platform.child import Death, Status
from attune.cli.platform.control import ControlServer, Request
from attune.cli.platform.database_keeper import DatabaseKeeper
from attune.cli.platform.logfiles import excerpt, rotate
from attune.cli.platform.readiness import has_active_worker, is_ready, wanted_workers, why_not_ready
from attune.cli.platform.services import DEFAULT_COUNTS, GUARDIAN, Count, check_count, specify_in
from attune.cli.platform.supervisor import Supervisor
from attune.runtime.home import Home, database_url, embedded_server, keep_secret, read_secret, with_database
from attune.runtime.settings import Settings

READY_SECONDS_MAX: Final = 120.0
READY_POLL_SECONDS: Final = 0.2
# A service that died so often before the platform was ready will not get well by itself.
EARLY_DEATHS_MAX: Final = 3
GRACE_MARGIN_SECONDS: Final = 5.0
REPORT_SECONDS_MAX: Final = 5.0
REPORT_PAUSE_SECONDS: Final = 1.0
REPORTS_MAX: Final = 30  # Then the lease has run out anyway.
ROTATE_SECONDS: Final = 30.0
SHOWN_LOG_LINES: Final = 5
LOGIN: Final = "admin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is to be run."""

    settings: Settings
    home: Home
    counts: Mapping[str, Count]
    environment: Mapping[str, str]

    @property
    def url(self) -> str:
        """Where the API can be reached from this machine."""
        host = self.settings.api.host
        wildcard = {"0.0.0.0": "127.0.0.1", "::": "[::1]", "": "127.0.0.1"}  # noqa: S104  compared, not bound
        shown = wildcard.get(host, f"[{host}]" if ":" in host else host)
        return f"http://{shown}:{self.settings.api.port}"


class Platform:
    """Runs a plan until a signal or a command stops it."""

    def __init__(self, plan: Plan, announcer: Announcer) -> None:
        self._plan = plan
        self._announcer = announcer
        self._log = structlog.get_logger()
        self._stop = asyncio.Event()
        server = embedded_server(plan.settings, plan.home)
        self._database = DatabaseKeeper(server, say=announcer.say) if server else None
        self._settings = with_database(plan.settings, plan.home)
        self._supervisor = Supervisor(
            specify_in(plan.home, plan.environment),
            on_death=self._on_death,
            grace_seconds=plan.settings.worker.shutdown_timeout + GRACE_MARGIN_SECONDS,
        )
        self._autoscaler = Autoscaler(self._supervisor, self._read_wanted)
        self._control = ControlServer(plan.home, self._answer)
        self._deaths: dict[str, Death] = {}
        self._reports: set[asyncio.Task[None]] = set()

    async def live(self) -> None:
        """Start, say that it is ready, and run until stopped; leaves no process behind, however it ends."""
        loop = asyncio.get_running_loop()
        for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(each, self._on_signal)
        starting = asyncio.create_task(self._start())
        stopping = asyncio.create_task(self._stop.wait())
        besides = {asyncio.create_task(self._rotate_logs()), asyncio.create_task(self._autoscaler.run())}
        try:
            await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                starting.result()
                await stopping
        finally:
            for task in {starting, stopping, *besides}:
                task.cancel()
            await asyncio.wait({starting, stopping, *besides})
            await self._shut_down()

    async def _start(self) -> None:
        if self._database is not None:
            self._announcer.say("starting the database")
            await self._database.start()
        password = await self._bootstrap()
        plan = self._plan
        self._announcer.say("starting the services")
        await self._control.start()
        self._autoscaler.scale({**DEFAULT_COUNTS, **plan.counts})
        self._supervisor.scale({GUARDIAN: 1})
        await self._until_ready()
        plan.home.url.write_text(f"{plan.url}\n", encoding="utf-8")
        self._log.info("platform.ready", url=plan.url)
        self._announcer.ready(Summary(url=plan.url, home=str(plan.home.root), login=LOGIN, password=password))

    async def _bootstrap(self) -> str | None:
        """Bring the database to this version and log the command line in; a new administrator's password."""
        from attune.storage.migrate import migrate

        home = self._plan.home
        url = database_url(self._plan.settings, home)
        with database_errors(url):
            applied = await migrate(url)
            self._log.info("database.migrated", applied=len(applied))
            from attune import compose

            made = await compose.bootstrap(self._settings, home.root)
        if made.cli_token is not None:
            keep_secret(home.cli_token, made.cli_token)
        return made.admin_password

    async def _until_ready(self) -> None:
        try:
            async with asyncio.timeout(READY_SECONDS_MAX):
                while not await self._is_ready():
                    self._give_up_on_crashes()
                    await asyncio.sleep(READY_POLL_SECONDS)
        except TimeoutError as error:
            reason = await why_not_ready(self._plan.url)
            message = (
                f"not ready after {READY_SECONDS_MAX:.0f} seconds: {reason}. The logs are in {self._plan.home.logs}"
            )
            raise CommandFailed(message, exit_code=Exit.TIMEOUT) from error

    async def _is_ready(self) -> bool:
        if not await is_ready(self._plan.url):
            return False
        if not any(each.service == "worker" for each in self._supervisor.status):
            return True  # Asked to run none here.
        token = read_secret(self._plan.home.cli_token)
        return token is None or await has_active_worker(self._plan.url, token)

    def _give_up_on_crashes(self) -> None:
        for each in self._supervisor.status:
            if each.restarts >= EARLY_DEATHS_MAX:
                log = self._plan.home.log(each.name)
                message = f"{each.name} {self._deaths[each.name].reason} again and again; the end of {log}:"
                raise CommandFailed(message, details=excerpt(log, lines_max=SHOWN_LOG_LINES))

    async def _shut_down(self) -> None:
        """Services first, for they still write to the database; then the database."""
        self._log.info("platform.stopping")
        self._plan.home.url.unlink(missing_ok=True)
        for task in self._reports:
            task.cancel()
        try:
            await self._supervisor.stop()
        finally:
            if self._database is not None:
                await self._database.stop()
            await self._control.close()
        self._log.info("platform.stopped")

    def _on_signal(self) -> None:
        """First time: stop gracefully. Second time: now."""
        if self._stop.is_set():
            self._announcer.say("stopping at once")
            self._supervisor.kill()
        else:
            self._announcer.say("stopping; once more to stop at once")
        self._stop.set()

    async def _on_death(self, death: Death) -> None:
        self._deaths[death.name] = death
        self._log.warning("process.died", process=death.name, pid=death.pid, reason=death.reason)
        self._announcer.say(f"{death.name} {death.reason}; starting it again in {death.delay_seconds:.1f} s")
        if death.service == "worker" and death.pid is not None and not await self._report_lost(death.name, death.pid):
            task = asyncio.create_task(self._report_lost_later(death.name, death.pid))
            self._reports.add(task)
            task.add_done_callback(self._reports.discard)

    async def _report_lost(self, name: str, pid: int) -> bool:
        """Tell the database at once that a worker is gone, instead of leaving it to find out by the lease."""
        from attune import compose

        try:
            async with asyncio.timeout(REPORT_SECONDS_MAX):
                await compose.mark_worker_lost(self._settings, self._plan.home.root, name=name, pid=pid)
        except Exception as error:  # noqa: BLE001  Only a shortcut: without it the lease runs out.
            self._log.warning("worker.loss_not_reported", worker=name, reason=str(error) or type(error).__name__)
            return False
        return True

    async def _report_lost_later(self, name: str, pid: int) -> None:
        """The database may be restarting too. A worker started meanwhile has another pid and is not meant."""
        for _ in range(REPORTS_MAX):
            await asyncio.sleep(REPORT_PAUSE_SECONDS)
            if await self._report_lost(name, pid):
                return

    async def _answer(self, request: Request) -> object:
        if request.command == "scale":
            counts = {
                service: Count(low=low, high=request.at_most.get(service, low))
                for service, low in request.scale.items()
            }
            for service, count in counts.items():
                check_count(service, count)
            self._autoscaler.scale(counts)
        elif request.command == "down":
            self._stop.set()
        elif request.command != "status":
            raise CommandFailed(f"unknown command {request.command!r}")
        return await self._describe()

    async def _read_wanted(self) -> int | None:
        token = read_secret(self._plan.home.cli_token)
        return None if token is None else await wanted_workers(self._plan.url, token)

    async def _describe(self) -> dict[str, object]:
        database = [self._database.status] if self._database is not None else []
        rows: list[Status] = [*database, *self._supervisor.status]
        return {
            "url": self._plan.url,
            "ready": await is_ready(self._plan.url),
            "transport": str(self._plan.settings.message_queue.transport),
            "processes": [
                {"name": row.name, "service": row.service, "pid": row.pid, "state": row.state, "restarts": row.restarts}
                for row in rows
            ],
        }

    async def _rotate_logs(self) -> None:
        while True:
            await asyncio.sleep(ROTATE_SECONDS)
            with contextlib.suppress(OSError):  # A full disk stops neither the services nor their supervisor.
                for log in self._plan.home.logs.glob("*.log"):
                    await asyncio.to_thread(rotate, log)
