"""Applying all messages of a run again changes nothing."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path

import asyncpg
import pytest

from tests.chaos.replay import compare, read_rows, record, replay
from tests.witness.platform import Platform, running_platform
from tests.witness.scale import scaled
from tests.witness.waiting import until

SEED = 7
COUNT = 40
# Short enough to wait for, and long enough for a worker that is busy.
TTL_MS = 8000
# No worker has this id.
NOBODY = 4711
END_SECONDS = 120.0
PACK = {
    "pack.yaml": "ref: again\nversion: 1.0.0\n",
    "actions/work.yaml": "ref: again.work\nrunner: shell\ncommand: sleep 0.02\n",
    "actions/fail.yaml": (
        "ref: again.fail\nrunner: shell\ncommand: exit 3\n"
        "retry: {max_attempts: 3, retry_on: [failed], delay_seconds: 0.2}\n"
    ),
    "actions/pinned.yaml": "ref: again.pinned\nrunner: shell\ncommand: exit 0\n",
    "actions/long.yaml": "ref: again.long\nrunner: shell\ncommand: sleep 60\n",
    "policies/work.yaml": (
        "ref: again.limit\nscope: {action: again.work}\nconcurrency: {limit: 3, method: enqueue}\n"
        "rate_limit: {max: 20, window_seconds: 1, method: delay}\n"
    ),
}


# Through a broker every message is also a row; the other transport is for the full form.
TRANSPORTS = [pytest.param("rabbitmq", marks=pytest.mark.rabbitmq), "postgres"][: scaled(short=1, full=2)]


@pytest.fixture(params=TRANSPORTS)
def broker_url(request: pytest.FixtureRequest) -> str | None:
    """The broker of this test, if it has one."""
    return None if request.param == "postgres" else str(request.getfixturevalue("rabbitmq_url"))


@pytest.mark.journey
@pytest.mark.timeout(400)
async def test_applying_every_message_again_twice_and_shuffled_changes_nothing(broker_url: str | None) -> None:
    settings = {"ATTUNE__WORKER__CAPACITY": "4", "ATTUNE__MESSAGE_QUEUE__RABBITMQ__WORKER_QUEUE_TTL_MS": str(TTL_MS)}
    if broker_url is not None:
        settings["ATTUNE__MESSAGE_QUEUE__URL"] = broker_url
    async with running_platform(settings=settings) as platform:
        url = (await platform.run("db", "url")).out.strip()
        async with asyncpg.create_pool(url, min_size=1, max_size=4) as database:
            await record(database)
            await work(platform, database)

            replayed = await replay(database, random.Random(SEED), broker_url=broker_url)

            assert replayed.messages > COUNT
            assert replayed.changed == {}
            topics = {row["topic"] for row in await database.fetch("SELECT DISTINCT topic FROM witness.message")}
            assert {"execution.requested", "execution.completed", "line.changed", "dead"} <= topics
            before = await read_rows(database)
            await database.execute("UPDATE attune.pack SET updated = now() WHERE ref = 'again'")
            assert compare(before, await read_rows(database)) == {"pack": 1}


async def work(platform: Platform, database: asyncpg.Pool) -> None:
    """Something of everything: lines, retries, a cancel, and a dispatch that nobody takes."""
    folder = platform.home / "again"
    write_pack(folder)
    await platform.run("pack", "install", str(folder))
    async with platform.client() as client:
        wanted: list[Mapping[str, object]] = [{"action_ref": "again.work"}] * COUNT
        wanted += [{"action_ref": "again.fail"}] * 3
        wanted += [{"action_ref": "again.pinned", "worker_id": NOBODY}, {"action_ref": "again.long"}]
        answer = await client.post("/api/v1/executions:batch", json={"executions": wanted})
        answer.raise_for_status()
        long = answer.json()["executions"][-1]["id"]

        async def runs() -> bool:
            return bool((await client.get(f"/api/v1/executions/{long}")).json()["status"] == "running")

        await until(runs, seconds=END_SECONDS)
        (await client.post(f"/api/v1/executions/{long}/cancel")).raise_for_status()

        async def is_over() -> bool:
            return not await database.fetchval("SELECT count(*) FROM attune.execution WHERE ended_at IS NULL")

        await until(is_over, seconds=END_SECONDS)


def write_pack(folder: Path) -> None:
    for name, text in PACK.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
