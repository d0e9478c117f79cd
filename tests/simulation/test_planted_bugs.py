"""The simulation can fail: mistakes that are easily made about lines are each noticed within a few histories."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import asyncpg
import pytest

from attune.storage.database import Database
from tests.simulation.planted import MISTAKES, Mistake
from tests.simulation.world import KINDS, Step, World
from tests.witness.arrange import make_worker

# Enough for the rarest of them, several times over.
HISTORIES_MAX = 40
STEPS = 50
# A history without a mistake is judged this often.
RIGHT_HISTORIES = 5


@pytest.fixture(scope="module")
def score(request: pytest.FixtureRequest) -> Iterator[dict[str, int]]:
    """After how many histories each mistake was noticed; told at the end."""
    caught: dict[str, int] = {}
    yield caught
    found = ", ".join(f"{name} ({histories})" for name, histories in sorted(caught.items()))
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        print(f"\nplanted bugs caught: {len(caught)} of {len(MISTAKES) - 1}, after histories: {found}")  # noqa: T201 — the score


def draw_steps(seed: int, mistake: Mistake) -> list[Step]:
    random = Random(seed)
    kinds = [kind for kind in KINDS if kind not in mistake.without]
    return [
        Step(
            kind=random.choice(kinds),
            which=random.randrange(12),
            how=random.randrange(12),
            held=random.choice(["", "", "late", "early"]),
        )
        for _ in range(STEPS)
    ]


async def notice(database: Database, mistake: Mistake, *, histories: int) -> tuple[int, str] | None:
    """After how many histories a mistake was noticed, and how."""
    worker = await make_worker(database, capacity=1_000_000, heartbeat_interval=100_000.0)
    for seed in range(histories):
        await mistake.begin_again(database)
        world = await World.begin(database, worker, limit=1 + seed % 3, ask=mistake.ask)
        try:
            await world.live(draw_steps(seed, mistake))
        except (AssertionError, asyncpg.PostgresError) as error:
            return seed + 1, str(error)
    return None


@pytest.mark.parametrize("name", [name for name in MISTAKES if name != "none"])
async def test_a_planted_mistake_is_noticed(database: Database, score: dict[str, int], name: str) -> None:
    await MISTAKES[name].plant(database)

    noticed = await notice(database, MISTAKES[name], histories=HISTORIES_MAX)

    assert noticed is not None
    score[name] = noticed[0]


async def test_planting_nothing_is_not_noticed(database: Database) -> None:
    await MISTAKES["none"].plant(database)

    assert await notice(database, MISTAKES["none"], histories=RIGHT_HISTORIES) is None
