"""An upgrade under way: both versions, what they stand on, and what was seen."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from functools import partial

import asyncpg

from tests.soak.load import Load
from tests.upgrade.versions import Version
from tests.witness.ledger import Ledger
from tests.witness.waiting import until

TAG = "upgrade"
NEW = (("executor", "executor-new-1"), ("executor", "executor-new-2"), ("worker", "worker-new-1"), ("api", "api-new"))
# Beyond the time that a phase should take.
PATIENCE_SECONDS = 120.0


@dataclass(kw_only=True)
class Upgrade:
    """Both versions, the load, and what they stand on."""

    old: Version
    new: Version
    old_port: int
    new_port: int
    load: Load
    database: asyncpg.Pool
    ledger: Ledger
    # How long each of the three phases lasts.
    phase_seconds: float
    seen: dict[str, object] = field(default_factory=dict)

    def say(self, what: str) -> None:
        sys.stdout.write(f"{len(self.load.accepted):6,} accepted  {what}\n")
        sys.stdout.flush()

    async def let_flow(self) -> None:
        """Until so much more work was accepted as the phase has time for."""
        wanted = len(self.load.accepted) + self.phase_seconds * self.load.rate
        await until(partial(self._has, wanted), seconds=self.phase_seconds + PATIENCE_SECONDS)

    async def _has(self, wanted: float) -> bool:
        return len(self.load.accepted) >= wanted
