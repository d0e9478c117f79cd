"""The fork servers of one worker: started when they are needed, replaced when they are old, never more than a few."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import structlog

from attune.runtime.clock import monotonic
from attune.worker.forking.server import ForkServer, NotStarted, ServerKind
from attune.worker.launcher.child import Child, LauncherLost
from attune.worker.launcher.client import Launcher
from attune.worker.launcher.order import Order, Walls
from attune.worker.processes import Children

# Beyond this many the one that was used longest ago is let go.
SERVERS_MAX: Final = 8
# A server is replaced after this many copies and this long, so that whatever may gather in it does not gather for ever.
JOBS_MAX: Final = 2000
AGE_SECONDS_MAX: Final = 3600.0
# An unused one costs memory and nothing else.
IDLE_SECONDS_MAX: Final = 300.0
TEND_SECONDS: Final = 30.0
# After a server could not be started, its actions start cold for this long before it is tried again.
COLD_SECONDS: Final = 60.0
# A copy is made in milliseconds; a server that takes longer is no longer one.
ANSWER_SECONDS_MAX: Final = 10.0
# A killed process is gone sooner.
END_SECONDS_MAX: Final = 5.0


class ForkServers:
    """Finds or starts the server an order needs; where there is none, the launcher starts it cold."""

    def __init__(
        self,
        launcher: Launcher,
        children: Children,
        program: Path,
        *,
        marker: str,
        servers_max: int = SERVERS_MAX,
    ) -> None:
        self._launcher = launcher
        self._children = children
        self._program = program
        self._marker = marker
        self._servers_max = servers_max
        self.answer_seconds_max = ANSWER_SECONDS_MAX
        # The least recently used one first.
        self._servers: dict[ServerKind, ForkServer] = {}
        # Those that are retired and still have copies, too.
        self._all: set[ForkServer] = set()
        self._starting: dict[ServerKind, asyncio.Task[ForkServer]] = {}
        self._cold_until: dict[ServerKind, float] = {}
        self._log = structlog.get_logger()

    async def prepare(self, kind: ServerKind, walls: Walls) -> None:
        """See that there is a server for what is about to be started, which takes its time; without one it starts cold.

        Apart from starting it, because between the last look at an attempt's lease and its start nothing may take time.
        """
        try:
            server = await self._find(kind)
        except NotStarted as error:
            self._log.warning("fork_server.not_started", python=str(kind.python), reason=str(error))
        else:
            await server.find_out(walls)

    async def spawn(self, kind: ServerKind, order: Order, stdin: bytes | None) -> Child:
        """Start an action as a copy, or cold. A copy that may have begun is never begun again."""
        server = self._servers.get(kind)
        if server is not None and not server.lost and server.can_give(order.walls):
            try:
                async with asyncio.timeout(self.answer_seconds_max):
                    return await server.spawn(replace(order, walls=server.own_walls(order.walls)), stdin=stdin)
            except TimeoutError:
                # Actions of its account may have stopped it. Nobody knows whether the copy was made: it ends with it.
                server.stop()
                raise LauncherLost from None
            except OSError as error:
                # It could not make the copy: nothing has begun.
                self._log.warning("fork_server.refused", python=str(kind.python), reason=error.strerror)
        return await self._launcher.spawn(order, stdin=stdin)

    async def tend(self) -> None:
        """Let go of what nobody uses any more, for ever."""
        while True:
            await asyncio.sleep(TEND_SECONDS)
            self.let_idle_go(monotonic())

    def let_idle_go(self, now: float) -> None:
        """Retire what was not used for long."""
        for kind, server in list(self._servers.items()):
            if now - server.used_at > IDLE_SECONDS_MAX:
                self._retire(kind)

    async def close(self) -> None:
        """End them all."""
        starting = tuple(self._starting.values())
        for task in starting:
            task.cancel()
        for server in self._all:
            server.stop()
        ending = [*starting, *(server.ended for server in self._all if server.ended is not None)]
        if ending:
            await asyncio.wait(ending, timeout=END_SECONDS_MAX)
        self._servers.clear()

    async def _find(self, kind: ServerKind) -> ForkServer:
        server = self._servers.pop(kind, None)
        if server is not None:
            self._servers[kind] = server  # The most recently used one last.
            if not _is_worn(server):
                return server
            self._retire(kind)
        if monotonic() < self._cold_until.get(kind, 0.0):
            raise NotStarted("it could not be started a moment ago")
        starting = self._starting.get(kind)
        if starting is None:
            starting = self._starting[kind] = asyncio.create_task(self._start(kind), name="fork server")
            starting.add_done_callback(lambda _: self._starting.pop(kind, None))
        # Others wait for it too: one that is cancelled must not take it away from them.
        return await asyncio.shield(starting)

    async def _start(self, kind: ServerKind) -> ForkServer:
        server = ForkServer(kind, self._children)
        try:
            await server.open(self._launcher, self._program, marker=self._marker)
        except NotStarted:
            self._cold_until[kind] = monotonic() + COLD_SECONDS
            raise
        except BaseException:
            server.stop()
            raise
        self._servers[kind] = server
        self._all = {each for each in self._all if not each.gone} | {server}
        while len(self._servers) > self._servers_max:
            self._retire(next(iter(self._servers)))
        self._log.info("fork_server.started", python=str(kind.python), pid=server.pid)
        return server

    def _retire(self, kind: ServerKind) -> None:
        self._servers.pop(kind).retire()


@dataclass(frozen=True, slots=True, kw_only=True)
class Warm:
    """Starts the actions of one environment as copies of its server."""

    servers: ForkServers
    python: Path
    preload: Sequence[str] = ()

    async def prepare(self, walls: Walls) -> None:
        await self.servers.prepare(self._kind(walls), walls)

    async def spawn(self, order: Order, *, stdin: bytes | None = None) -> Child:
        return await self.servers.spawn(self._kind(order.walls), order, stdin)

    def _kind(self, walls: Walls) -> ServerKind:
        return ServerKind(python=self.python, account=walls.account, preload=tuple(self.preload))


def _is_worn(server: ForkServer) -> bool:
    return server.lost or server.jobs >= JOBS_MAX or monotonic() - server.started_at > AGE_SECONDS_MAX
