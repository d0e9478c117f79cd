"""The admission step on a real database is the one that the specification describes, whatever happens in between."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from attune.storage.database import Database
from tests.simulation.world import KINDS, Step, World
from tests.witness.apart import in_a_thread
from tests.witness.arrange import make_worker
from tests.witness.lines import nothing_is_broken

# The full run sets at least 500 here.
EXAMPLES = int(os.environ.get("ATTUNE_SIMULATION_EXAMPLES", "20"))
# A worker that is never full, and whose silence nobody notices.
ENDLESS = {"capacity": 1_000_000, "heartbeat_interval": 100_000.0}

STEPS = st.lists(
    st.builds(
        Step,
        kind=st.sampled_from(KINDS),
        which=st.integers(0, 11),
        how=st.integers(0, 11),
        held=st.sampled_from(["", "", "late", "early"]),
    ),
    min_size=20,
    max_size=50,
)


@pytest.mark.timeout(3600)
def test_interleaved_transactions_leave_lines_as_the_specification_says(database_url: str) -> None:
    in_a_thread(lambda: compare(database_url))


def compare(database_url: str) -> None:
    """Let random histories happen, one after the other, in one loop."""
    with asyncio.Runner() as runner:
        database = runner.run(Database.connect(database_url, size=2, application="attune-test"))
        worker = runner.run(make_worker(database, **ENDLESS))  # type: ignore[arg-type]  # a mapping of its arguments

        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate, Phase.shrink],
        )
        @given(limit=st.integers(1, 3), steps=STEPS)
        def history(limit: int, steps: Sequence[Step]) -> None:
            async def live() -> None:
                await (await World.begin(database, worker, limit=limit)).live(steps)

            runner.run(live())

        history()
        runner.run(nothing_is_broken(database))
        runner.run(database.close())
