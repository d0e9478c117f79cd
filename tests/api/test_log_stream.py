"""Output is followed as it comes: without gaps, without doubles, to the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import replace

import httpx2
import msgspec
import pytest

from attune.api import following
from attune.domain.errors import Unavailable
from attune.domain.retry import Ending, Outcome
from attune.operations.finish_executions import Report, finish_executions
from attune.runtime.passwords import mint_attempt_token
from attune.storage import notices
from attune.storage.assignments import Held
from attune.storage.database import Database
from attune.storage.output import execution_logs
from attune.storage.output.execution_logs import CHANNEL, Chunk
from tests.api.running import Api, client
from tests.witness.arrange import TestWorker, always_half, make_worker, place, start

EXECUTIONS = "/api/v1/executions"
SECONDS = 20.0


@pytest.fixture
async def worker(database: Database) -> TestWorker:
    return await make_worker(database)


async def begin(api: Api, worker: TestWorker) -> Held:
    number = (await api.admin.post(EXECUTIONS, json={"action_ref": "demo.anything"})).json()["id"]
    await place(api.database, [number])
    (started,) = await start(api.database, worker, [(number, 1)])
    return Held(execution_id=number, attempt=1, lease=started.lease)


async def write(database: Database, held: Held, *texts: str, first: int = 1, stream: str = "stdout") -> None:
    chunks = [Chunk(held=held, stream=stream, seq=seq, content=text) for seq, text in enumerate(texts, start=first)]
    async with database.transaction() as tx:
        await execution_logs.insert_many(tx, chunks)


async def call(database: Database, held: Held) -> None:
    async with database.reading() as tx:
        await notices.notify(tx, CHANNEL, [str(held.execution_id)])


async def end(database: Database, worker: TestWorker, held: Held) -> None:
    report = Report(held=held, worker_id=worker.worker_id, ending=Ending(outcome=Outcome.SUCCEEDED))
    async with database.transaction() as tx:
        await finish_executions(tx, [report], actor="worker-1", draw=always_half)


class Reader:
    """Reads events one by one."""

    def __init__(self, response: httpx2.Response) -> None:
        self.response = response
        self._lines = response.aiter_lines()

    async def next(self) -> dict[str, str]:
        """The next event that says something; empty if the stream is over."""
        fields: dict[str, str] = {}
        async with asyncio.timeout(SECONDS):
            async for line in self._lines:
                if line:
                    name, _, value = line.partition(": ")
                    fields[name] = value
                elif "event" in fields:
                    return fields
                else:
                    fields = {}
        return {}

    async def text(self) -> str:
        event = await self.next()
        assert event["event"] == "log", event
        return str(msgspec.json.decode(event["data"])["text"])


@asynccontextmanager
async def reading(
    http: httpx2.AsyncClient, held: Held, after: str | None = None, **query: str
) -> AsyncIterator[Reader]:
    headers = {"Accept": "text/event-stream", **({"Last-Event-ID": after} if after else {})}
    path = f"{EXECUTIONS}/{held.execution_id}/logs/stream"
    async with http.stream("GET", path, headers=headers, params=query) as response:
        yield Reader(response)


async def test_output_is_followed_from_its_beginning_to_the_end(api: Api, worker: TestWorker) -> None:
    held = await begin(api, worker)
    await write(api.database, held, "one\n")

    async with reading(api.admin, held) as reader:
        assert reader.response.headers["content-type"].startswith("text/event-stream")
        assert await reader.text() == "one\n"
        await write(api.database, held, "two\n", first=2, stream="stderr")
        await call(api.database, held)
        assert await reader.text() == "two\n"
        await write(api.database, held, "three\n", first=3)
        await end(api.database, worker, held)
        assert await reader.text() == "three\n"
        event = await reader.next()
        assert (event["event"], msgspec.json.decode(event["data"])) == ("end", {"status": "succeeded"})
        assert await reader.next() == {}


async def test_whoever_comes_back_goes_on_behind_what_was_seen(api: Api, worker: TestWorker) -> None:
    held = await begin(api, worker)
    await write(api.database, held, "a", "b", "c", "d")
    async with reading(api.admin, held) as reader:
        await reader.next()
        seen = (await reader.next())["id"]
    await end(api.database, worker, held)

    async with reading(api.admin, held, after=seen) as reader:
        assert [await reader.text(), await reader.text()] == ["c", "d"]
        assert (await reader.next())["event"] == "end"


async def test_nothing_is_missed_and_nothing_comes_twice_however_often_the_stream_breaks(
    api: Api, worker: TestWorker
) -> None:
    held = await begin(api, worker)
    count = 60
    seen: list[str] = []

    async def follow() -> None:
        place: str | None = None
        while True:
            async with reading(api.admin, held, after=place) as reader:
                for _ in range(7):
                    event = await reader.next()
                    if event["event"] == "end":
                        return
                    seen.append(msgspec.json.decode(event["data"])["text"])
                    place = event["id"]

    following_it = asyncio.create_task(follow())
    for n in range(1, count + 1):
        await write(api.database, held, f"{n}", first=n)
        await call(api.database, held)
    await end(api.database, worker, held)
    async with asyncio.timeout(SECONDS):
        await following_it

    assert seen == [str(n) for n in range(1, count + 1)]


async def test_one_stream_can_be_followed_alone(api: Api, worker: TestWorker) -> None:
    held = await begin(api, worker)
    await write(api.database, held, "out")
    await write(api.database, held, "err", first=2, stream="stderr")
    await end(api.database, worker, held)

    async with reading(api.admin, held, stream="stderr") as reader:
        assert await reader.text() == "err"
        assert (await reader.next())["event"] == "end"


async def test_a_text_with_strange_line_ends_stays_one_event(api: Api, worker: TestWorker) -> None:
    held = await begin(api, worker)
    text = "a\nb\r\n\x1b[31mred\x1b[0m"
    await write(api.database, held, text)
    await end(api.database, worker, held)

    async with reading(api.admin, held) as reader:
        assert await reader.text() == text


async def test_a_stopping_api_lets_followers_go(api: Api, worker: TestWorker) -> None:
    held = await begin(api, worker)

    async with reading(api.admin, held) as reader:
        waiting = asyncio.create_task(reader.next())
        await asyncio.sleep(0.05)
        api.stop.set()
        assert await waiting == {}


async def test_followers_are_counted_and_bounded(api: Api, worker: TestWorker, database: Database) -> None:
    held = await begin(api, worker)
    follow = following.Following(database)
    with ExitStack() as followers:
        for _ in range(following.FOLLOWERS_MAX):
            followers.enter_context(follow.follow(held.execution_id))

        with pytest.raises(Unavailable), follow.follow(held.execution_id):
            pass
    with follow.follow(held.execution_id):
        pass


async def test_calls_are_heard_again_each_time_the_database_comes_back(database: Database) -> None:
    follow = following.Following(database)
    listening = asyncio.create_task(follow.listen())
    try:
        with follow.follow(1) as called:
            for _ in range(3):
                await asyncio.wait_for(called.wait(), SECONDS)
                called.clear()
                async with database.transaction() as tx:
                    await tx.execute(
                        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                        " WHERE application_name = 'attune api calls' AND datname = current_database()"
                    )
    finally:
        listening.cancel()


async def test_attempts_follow_one_another(api: Api, worker: TestWorker) -> None:
    held = await begin(api, worker)
    await write(api.database, held, "first 1", "first 2")
    async with api.database.transaction() as tx:
        await tx.execute("UPDATE assignment SET attempt = 2")
    await write(api.database, replace(held, attempt=2), "second 1")
    async with api.database.transaction() as tx:
        await tx.execute("UPDATE assignment SET attempt = 1")
    await end(api.database, worker, held)

    async with reading(api.admin, held, after="1-1") as reader:
        assert [await reader.text(), await reader.text()] == ["first 2", "second 1"]
        assert (await reader.next())["event"] == "end"


@pytest.mark.parametrize("place", ["x", "1", "1-2-3", "-1--1"])
async def test_a_place_that_is_none_is_refused(api: Api, worker: TestWorker, place: str) -> None:
    held = await begin(api, worker)
    path = f"{EXECUTIONS}/{held.execution_id}/logs/stream"

    answer = await api.admin.get(path, headers={"Last-Event-ID": place})

    assert (answer.status_code, answer.json()["code"]) == (400, "bad_header")


async def test_an_unknown_execution_has_no_stream(api: Api) -> None:
    assert (await api.admin.get(f"{EXECUTIONS}/4711/logs/stream")).status_code == 404


async def test_an_attempt_follows_itself(api: Api, worker: TestWorker) -> None:
    held = await begin(api, worker)
    await write(api.database, held, "mine")
    token = mint_attempt_token(held.execution_id, held.attempt, held.lease)

    async with client(api.url, token) as http, reading(http, held) as reader:
        assert await reader.text() == "mine"
