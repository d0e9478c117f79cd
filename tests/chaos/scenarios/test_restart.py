"""Thousands wait while everything is killed and comes back together. The full form is `ATTUNE_FULL=1`."""

from __future__ import annotations

import pytest

from tests.chaos.scenarios.restart import OPTIONS, SETTINGS, run_restart
from tests.witness.platform import running_platform
from tests.witness.scale import scaled


@pytest.fixture(params=["postgres", pytest.param("rabbitmq", marks=pytest.mark.rabbitmq)])
def settings(request: pytest.FixtureRequest) -> dict[str, str]:
    """What the platform of a test runs with, on each transport."""
    if request.param == "postgres":
        return {}
    return {"ATTUNE__MESSAGE_QUEUE__URL": request.getfixturevalue("rabbitmq_url")}


@pytest.mark.journey
@pytest.mark.timeout(1200)
async def test_everything_restarted_together_goes_on_without_doing_anything_twice(settings: dict[str, str]) -> None:
    async with running_platform(options=OPTIONS, settings=SETTINGS | settings) as platform:
        outcome = await run_restart(platform, scaled(short=300, full=10_000))
        check = await platform.run("check", "-o", "json", check=False)

    assert outcome.violations == []
    assert check.code == 0, check.out
