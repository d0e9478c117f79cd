"""Whatever process dies, nothing accepted is lost or doubled. The long form is `make chaos`."""

from __future__ import annotations

import pytest

from tests.chaos.kills import KillPlan, run_kills
from tests.chaos.run import violations
from tests.witness.platform import running_platform

CAPACITY = 8


@pytest.fixture(params=["postgres", pytest.param("rabbitmq", marks=pytest.mark.rabbitmq)])
def settings(request: pytest.FixtureRequest) -> dict[str, str]:
    """What the platform of a test runs with, on each transport."""
    chosen = {"ATTUNE__WORKER__CAPACITY": str(CAPACITY)}
    if request.param == "rabbitmq":
        chosen["ATTUNE__MESSAGE_QUEUE__URL"] = request.getfixturevalue("rabbitmq_url")
    return chosen


@pytest.mark.journey
@pytest.mark.timeout(400)
@pytest.mark.parametrize("idempotent", [True, False])
async def test_killing_every_process_once_loses_and_doubles_nothing(
    settings: dict[str, str], *, idempotent: bool
) -> None:
    plan = KillPlan(rounds=1, count=100, idempotent=idempotent, seed=7)
    async with running_platform(settings=settings) as platform:
        outcome = await run_kills(platform, plan)
        check = await platform.run("check", "-o", "json", check=False)

    assert violations(plan, outcome) == []
    # A worker that is cut off from the database for long ends its own work, as if it had been killed.
    assert outcome.statuses["failed"] <= (outcome.kills["worker-1"] + outcome.kills["postgres"]) * CAPACITY
    assert check.code == 0, check.out
