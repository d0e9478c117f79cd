"""Keeps as many workers as are wanted, within the range that was asked for: up at once, down after a calm."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

import structlog

from attune.cli.platform.child import State
from attune.cli.platform.services import Count
from attune.cli.platform.supervisor import Supervisor
from attune.runtime.clock import monotonic

WORKER: Final = "worker"
LOOK_SECONDS: Final = 2.0
# Fewer are kept only if fewer were wanted for so long: starting and stopping costs more than idling.
CALM_SECONDS: Final = 30.0


@dataclass(slots=True, kw_only=True)
class Calm:
    """Remembers since when fewer were wanted than there are, and the most that was wanted since."""

    since: float | None = None
    most: int = 0

    def choose(self, wanted: int, *, present: int, now: float) -> int:
        """How many to keep."""
        if wanted >= present:
            self.since = None
            return wanted
        if self.since is None:
            self.since, self.most = now, wanted
        self.most = max(self.most, wanted)
        if now - self.since < CALM_SECONDS:
            return present
        self.since = None
        return self.most


class Autoscaler:
    """Scales services to fixed numbers, and workers within a range if one was given."""

    def __init__(self, supervisor: Supervisor, read_wanted: Callable[[], Awaitable[int | None]]) -> None:
        self._supervisor = supervisor
        self._read_wanted = read_wanted
        self._range: Count | None = None
        self._calm = Calm()
        self._log = structlog.get_logger()

    def scale(self, counts: Mapping[str, Count]) -> None:
        """Bring services to their numbers; a range is begun from where things are."""
        for service, count in counts.items():
            if service == WORKER:
                self._range = count if count.low < count.high else None
            self._supervisor.scale({service: count.clamp(self._present(service))})

    async def run(self) -> None:
        """Follow for ever."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if self._range is not None:
                await self._look(self._range)

    async def _look(self, count: Count) -> None:
        wanted = await self._read_wanted()
        if wanted is None:  # The API is starting, or busy; the next look will tell.
            return
        present = self._present(WORKER)
        kept = self._calm.choose(count.clamp(wanted), present=present, now=monotonic())
        if kept != present:
            self._log.info("workers.scaled", before=present, after=kept, wanted=wanted)
            self._supervisor.scale({WORKER: kept})

    def _present(self, service: str) -> int:
        staying = {State.RUNNING, State.RESTARTING}
        return sum(1 for each in self._supervisor.status if each.service == service and each.state in staying)
