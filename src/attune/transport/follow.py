"""Follows what changes, for services that keep a copy of it."""

import structlog

from attune.runtime.failpoints import afailpoint
from attune.runtime.supervise import Restart, Tasks
from attune.transport.protocol import Transport


async def follow_broadcasts(transport: Transport, tasks: Tasks) -> None:
    """Run a transport and note every broadcast, until the service is told to stop."""
    tasks.start("transport", transport.run, restart=Restart())
    await transport.declare(())
    tasks.start("broadcasts", lambda: _note(transport), restart=Restart())
    await tasks.stop.wait()


async def _note(transport: Transport) -> None:
    log = structlog.get_logger()
    async for broadcast in transport.broadcasts():
        await afailpoint("broadcast.received")
        log.info("broadcast.received", entity=broadcast.entity, revision=broadcast.revision)
