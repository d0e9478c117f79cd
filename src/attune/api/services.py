"""The living parts of one API process, shared by all requests."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Self

from attune.api.acceptance import Door, Preparer, Pressure
from attune.api.auth import Authenticator, LoginThrottle
from attune.api.following import Following
from attune.api.parts import ApiParts
from attune.api.readiness import Readiness
from attune.api.scrape import Scrape
from attune.api.waiting import Completions
from attune.runtime.clock import monotonic
from attune.runtime.passwords import Passwords
from attune.runtime.supervise import Restart, Tasks


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """What routes work with."""

    parts: ApiParts
    authenticator: Authenticator
    throttle: LoginThrottle
    passwords: Passwords
    preparer: Preparer
    door: Door
    pressure: Pressure
    completions: Completions
    following: Following
    readiness: Readiness
    scrape: Scrape

    @classmethod
    def build(cls, parts: ApiParts) -> Self:
        """Make them; nothing runs yet."""
        return cls(
            parts=parts,
            authenticator=Authenticator(parts.database),
            throttle=LoginThrottle(monotonic),
            passwords=Passwords(),
            preparer=Preparer(parts.database, parts.vault),
            door=Door(parts.database, parts.limits),
            pressure=Pressure(parts.database, parts.limits),
            completions=Completions(parts.database),
            following=Following(parts.database),
            readiness=Readiness(parts.checks),
            scrape=Scrape(parts.database, parts.metrics, lines=parts.limits.line_metrics),
        )

    def send_home(self) -> None:
        """Keep nobody waiting: the service is about to stop."""
        self.completions.close()
        self.following.close()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run what goes on between requests, and end it in good order."""
        async with Tasks() as tasks:
            tasks.start("completions", self.completions.watch, restart=Restart())
            tasks.start("following", self.following.watch, restart=Restart())
            tasks.start("calls", self.following.listen, restart=Restart())
            tasks.start("pressure", self.pressure.watch, restart=Restart())
            try:
                yield
            finally:
                self.send_home()
                await asyncio.shield(self.door.close())
                self.passwords.close()
