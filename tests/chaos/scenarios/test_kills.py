"""Whatever process dies, nothing accepted is lost or doubled. The long form is `make chaos`."""

from __future__ import annotations

import pytest

from tests.chaos.scenarios.command import violations
from tests.chaos.scenarios.kills import KillPlan, run_kills
from tests.witness.platform import running_platform
from tests.witness.scale import scaled

CAPACITY = 8
RABBITMQ = pytest.mark.rabbitmq
# A whole platform is harmed in more ways by another test; all of these together are for the full form.
CASES = [
    pytest.param(("rabbitmq", False), id="rabbitmq-once", marks=RABBITMQ),
    pytest.param(("postgres", True), id="postgres-repeatable"),
    pytest.param(("rabbitmq", True), id="rabbitmq-repeatable", marks=RABBITMQ),
    pytest.param(("postgres", False), id="postgres-once"),
][: scaled(short=1, full=4)]


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> tuple[dict[str, str], bool]:
    """What the platform of a test runs with, and whether its actions may be repeated."""
    name, idempotent = request.param
    settings = {"ATTUNE__WORKER__CAPACITY": str(CAPACITY)}
    if name == "rabbitmq":
        settings["ATTUNE__MESSAGE_QUEUE__URL"] = request.getfixturevalue("rabbitmq_url")
    return settings, idempotent


@pytest.mark.journey
@pytest.mark.timeout(400)
async def test_killing_every_process_once_loses_and_doubles_nothing(case: tuple[dict[str, str], bool]) -> None:
    settings, idempotent = case
    plan = KillPlan(rounds=1, count=100, idempotent=idempotent, seed=7)
    async with running_platform(settings=settings) as platform:
        outcome = await run_kills(platform, plan)
        check = await platform.run("check", "-o", "json", check=False)

    assert violations(plan, outcome) == []
    # A worker that is cut off from the database for long ends its own work, as if it had been killed.
    assert outcome.statuses["failed"] <= (outcome.kills["worker-1"] + outcome.kills["postgres"]) * CAPACITY
    assert check.code == 0, check.out
