"""The sensor service: follows changes of packs and rules, and will host timers and sensors."""

from dataclasses import dataclass

import structlog

from attune.runtime.supervise import Restart, Tasks
from attune.transport.protocol import Transport


@dataclass(frozen=True, slots=True, kw_only=True)
class SensorService:
    """One replica; any number may run."""

    name: str
    transport: Transport

    async def run(self, tasks: Tasks) -> None:
        """Work until told to stop."""
        tasks.start("transport", self.transport.run, restart=Restart())
        await self.transport.declare(())
        tasks.start("broadcasts", self._follow, restart=Restart())
        await tasks.stop.wait()

    async def _follow(self) -> None:
        log = structlog.get_logger()
        async for broadcast in self.transport.broadcasts():
            log.info("broadcast.received", entity=broadcast.entity, revision=broadcast.revision)
