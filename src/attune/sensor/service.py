"""The sensor service: follows changes of packs and rules, and will host timers and sensors."""

from dataclasses import dataclass

from attune.runtime.supervise import Tasks
from attune.transport.follow import follow_broadcasts
from attune.transport.protocol import Transport


@dataclass(frozen=True, slots=True, kw_only=True)
class SensorService:
    """One replica; any number may run."""

    name: str
    transport: Transport

    async def run(self, tasks: Tasks) -> None:
        """Work until told to stop."""
        await follow_broadcasts(self.transport, tasks)
