"""Lines on a whole platform: several executors, a real client's own order as witness."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from tests.witness.platform import Platform, running_platform
from tests.witness.scale import scaled
from tests.witness.waiting import until

pytestmark = [pytest.mark.journey, pytest.mark.timeout(300)]

LIMIT = 3
REQUESTS = scaled(short=300, full=2000)


@pytest.fixture(params=["postgres", pytest.param("rabbitmq", marks=pytest.mark.rabbitmq)])
def settings(request: pytest.FixtureRequest) -> dict[str, str]:
    if request.param == "postgres":
        return {}
    return {"ATTUNE__MESSAGE_QUEUE__URL": request.getfixturevalue("rabbitmq_url")}


@pytest.fixture
async def platform(settings: dict[str, str]) -> AsyncIterator[Platform]:
    async with running_platform(options=["--scale", "executor=3"], settings=settings) as running:
        write_pack(running.home / "pack")
        await running.run("pack", "install", str(running.home / "pack"))
        yield running


def write_pack(folder: Path) -> None:
    (folder / "actions").mkdir(parents=True)
    (folder / "policies").mkdir()
    (folder / "pack.yaml").write_text("ref: demo\nversion: 1.0.0\n")
    (folder / "actions" / "quick.yaml").write_text("ref: demo.quick\nrunner: native\nentry_point: noop\n")
    (folder / "policies" / "quick.yaml").write_text(
        f"ref: demo.quick_limit\nscope: {{action: demo.quick}}\nconcurrency: {{limit: {LIMIT}}}\n"
    )


async def test_a_sequential_client_sees_its_own_order_kept_by_three_executors(platform: Platform) -> None:
    async with platform.client() as client:
        accepted = [await accept(client) for _ in range(REQUESTS)]
        await until(lambda: all_ended(client, accepted), seconds=120)
        (line,) = (await client.get("/api/v1/lines", params={"action_ref": "demo.quick"})).json()["items"]
        log = await admissions(client, line["id"])

    admitted = [row["execution_id"] for row in log if row["op"] == "admit"]
    assert admitted == accepted
    assert max(int(str(row["active"])) for row in log if row["op"] == "admit") <= LIMIT
    assert (line["active"], line["waiting"], line["total_enqueued"]) == (0, 0, REQUESTS)
    assert (await platform.run("check", "-o", "json")).code == 0


async def test_executors_that_are_killed_keep_the_order_and_the_limit(platform: Platform) -> None:
    async with platform.client() as client:
        async with asyncio.TaskGroup() as tasks:
            flowing = tasks.create_task(accept_many(client))
            for name in ("executor-1", "executor-3", "executor-2"):
                await platform.kill(name)
        accepted = flowing.result()
        await until(lambda: all_ended(client, accepted), seconds=120)
        (line,) = (await client.get("/api/v1/lines", params={"action_ref": "demo.quick"})).json()["items"]
        log = await admissions(client, line["id"])

    assert [row["execution_id"] for row in log if row["op"] == "admit"] == accepted
    assert (await platform.run("check", "-o", "json")).code == 0


async def accept(client: httpx2.AsyncClient) -> int:
    answer = await client.post("/api/v1/executions", json={"action_ref": "demo.quick", "parameters": {}})
    assert answer.status_code == 202, answer.text
    return int(answer.json()["id"])


async def accept_many(client: httpx2.AsyncClient) -> list[int]:
    return [await accept(client) for _ in range(REQUESTS)]


async def all_ended(client: httpx2.AsyncClient, ids: list[int]) -> bool:
    answers = await asyncio.gather(*(client.get(f"/api/v1/executions/{each}") for each in ids[-5:]))
    if not all(answer.json()["ended_at"] for answer in answers):
        return False
    lines = (await client.get("/api/v1/lines", params={"action_ref": "demo.quick"})).json()["items"]
    return all(line["active"] == 0 and line["waiting"] == 0 for line in lines)


async def admissions(client: httpx2.AsyncClient, line_id: int) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    after = 0
    while True:
        query = {"after": str(after), "limit": "1000"}
        page = (await client.get(f"/api/v1/lines/{line_id}/admissions", params=query)).json()
        items = page["items"]
        if not items:
            return rows
        rows += items
        after = items[-1]["n"]
