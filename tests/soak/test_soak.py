"""The long form is `make soak`; here, that it sees everybody and that a short while leaves nothing behind."""

from __future__ import annotations

import json

import pytest

from tests.soak.run import describe, soak
from tests.witness.platform import running_platform

SECONDS = 8.0
RATE = 20.0


@pytest.mark.journey
@pytest.mark.timeout(300)
async def test_a_short_soak_sees_every_process_and_leaves_nothing_behind() -> None:
    async with running_platform() as platform:
        seen = await soak(platform, seconds=SECONDS, rate=RATE, look_seconds=1.0)

    assert seen.faults() == []
    assert seen.accepted > SECONDS * RATE / 2
    names = {"api-1", "executor-1", "worker-1", "sensor-1", "notifier-1", "postgres"}
    assert names <= seen.series.memory.keys()
    assert all(points[-1][1] > 0 for name in names for points in [seen.series.memory[name]])
    told = describe(seen, transport="postgres")
    assert json.loads(json.dumps(told))["ok"] is True
    assert len(seen.quarters) == 4
