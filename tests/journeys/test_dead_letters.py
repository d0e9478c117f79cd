"""Work for a worker that does not exist, on a whole platform; and the pages for those who see something wrong."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import aio_pika
import pytest

from tests.documents import ROOT, name_of, shell_blocks, shell_lines, split_exit_code
from tests.witness.platform import Platform, running_platform
from tests.witness.waiting import until

TTL_SECONDS = 3.0
LATE_SECONDS_MAX = 2.0
PAGES = sorted((ROOT / "docs/how-to/troubleshoot").glob("*.md"))
LINE_SECONDS_MAX = 60

pytestmark = [pytest.mark.journey, pytest.mark.timeout(300), pytest.mark.xdist_group("dead letters")]


@pytest.fixture(scope="module")
async def platform() -> AsyncIterator[Platform]:
    settings = {"ATTUNE__MESSAGE_QUEUE__RABBITMQ__WORKER_QUEUE_TTL_MS": str(int(TTL_SECONDS * 1000))}
    async with running_platform(settings=settings) as running:
        # For the pages, which look at some execution.
        await running.run("run", "core.echo", "message=hi", "--wait")
        yield running


async def fail_by_ttl(platform: Platform) -> int:
    """The specification's own test: pinned to worker 999, it fails with its text as soon as its TTL is over."""
    async with platform.client() as client:
        body = {"action_ref": "core.echo", "parameters": {"message": "test"}, "worker_id": 999}
        answer = await client.post("/api/v1/executions", json=body)
        assert answer.status_code == 202, answer.text
        execution = int(answer.json()["id"])

        async def ended() -> bool:
            return bool((await client.get(f"/api/v1/executions/{execution}")).json()["ended_at"])

        await until(ended, seconds=60)
        shown = (await client.get(f"/api/v1/executions/{execution}")).json()
        letters = (await client.get("/api/v1/dead-letters", params={"execution_id": execution})).json()["items"]

        async def nothing_is_left() -> bool:
            # A moment later: what carried it to its handler is cleared away after the handler has run.
            return bool((await client.get("/api/v1/dead-letters/stats")).json()["depth"] == 0)

        await until(nothing_is_left)
    assert shown["status"] == "failed"
    assert shown["result"]["error"] == "Worker queue TTL expired"
    assert [letter["outcome"] for letter in letters] == ["failed_execution"]
    assert "worker.999" in letters[0]["deaths"][0]
    seconds = (await platform.run("db", "psql", "-c", AGE.format(execution))).out
    # Measured by the database, which is not slowed down by whatever else the machine does.
    assert TTL_SECONDS <= float(seconds.split()[2]) <= TTL_SECONDS + LATE_SECONDS_MAX, seconds
    return execution


AGE = "SELECT extract(epoch FROM ended_at - scheduled_at) AS seconds FROM execution WHERE id = {}"


async def test_work_for_a_worker_that_does_not_exist_fails_when_its_ttl_is_over(platform: Platform) -> None:
    execution = await fail_by_ttl(platform)

    assert "Worker queue TTL expired" in (await platform.run("execution", "show", str(execution))).out
    shown = (await platform.run("dead-letter", "list", "--execution", str(execution), "-o", "json")).document
    assert isinstance(shown, dict)
    again = await platform.run("dead-letter", "replay", str(shown["items"][0]["id"]))
    assert "nothing was done" in again.out
    assert (await platform.run("check", "-o", "json")).code == 0


async def test_the_same_on_rabbitmq_and_the_dead_letter_queue_is_empty(rabbitmq_url: str) -> None:
    settings = {
        "ATTUNE__MESSAGE_QUEUE__RABBITMQ__WORKER_QUEUE_TTL_MS": str(int(TTL_SECONDS * 1000)),
        "ATTUNE__MESSAGE_QUEUE__URL": rabbitmq_url,
    }
    async with running_platform(settings=settings) as running:
        await fail_by_ttl(running)
        async with await aio_pika.connect(rabbitmq_url) as connection:
            channel = await connection.channel()
            queue = await channel.declare_queue("attune.dlx.queue", passive=True)
            assert queue.declaration_result.message_count == 0


def test_there_is_a_page_for_every_symptom() -> None:
    assert len(PAGES) == 12


@pytest.mark.parametrize("page", PAGES, ids=name_of)
async def test_every_command_for_somebody_in_trouble_works(platform: Platform, page: Path) -> None:
    for block in shell_blocks(page.read_text()):
        lines = [split_exit_code(line)[0] for line in shell_lines(block)]
        script = "\n".join(["set -e", *lines])
        done = await asyncio.to_thread(
            subprocess.run,
            ["/bin/sh", "-c", script],
            cwd=ROOT,
            env=dict(platform.environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=LINE_SECONDS_MAX * len(lines),
        )
        assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
