"""What an attempt prints is stored in order, whole up to the limits, and says where it was cut."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import pytest

from attune.domain.definitions import Runner
from attune.storage.assignments import Held
from attune.storage.database import Database
from attune.storage.output.execution_logs import Chunk, list_after
from attune.worker.output import CHUNK_CHARACTERS_MAX, LINE_CHARACTERS_MAX, STREAM_BYTES_MAX, AttemptOutput
from attune.worker.runners.protocol import Stream
from tests.witness.arrange import make_action, place, request, statuses
from tests.witness.waiting import until
from tests.worker.conftest import StartWorker
from tests.worker.test_worker import ended

HELD = Held(execution_id=1, attempt=1, lease=UUID(int=1))


class Stored:
    """Chunks in the order in which they were handed over."""

    def __init__(self) -> None:
        self.chunks: list[Chunk] = []

    async def write(self, chunks: Sequence[Chunk]) -> None:
        self.chunks += chunks

    def text(self, stream: Stream = Stream.STDOUT) -> str:
        return "".join(chunk.content for chunk in self.chunks if chunk.stream == stream)


async def collect(*pieces: tuple[Stream, bytes]) -> Stored:
    stored = Stored()
    output = AttemptOutput(HELD, stored.write)
    for stream, content in pieces:
        await output.write(stream, content)
    stored.chunks += await output.close()
    assert [chunk.seq for chunk in stored.chunks] == list(range(1, len(stored.chunks) + 1))
    assert all(len(chunk.content) <= CHUNK_CHARACTERS_MAX for chunk in stored.chunks)
    return stored


async def test_the_order_of_both_streams_is_kept() -> None:
    stored = await collect((Stream.STDOUT, b"a\n"), (Stream.STDERR, b"b\n"), (Stream.STDOUT, b"c\n"))
    assert [(chunk.stream, chunk.content) for chunk in stored.chunks] == [
        ("stdout", "a\n"),
        ("stderr", "b\n"),
        ("stdout", "c\n"),
    ]


async def test_a_character_may_arrive_in_pieces() -> None:
    whole = "grün ✓".encode()
    stored = await collect(*((Stream.STDOUT, whole[place : place + 1]) for place in range(len(whole))))
    assert stored.text() == "grün ✓"


async def test_bytes_that_are_no_text_are_replaced() -> None:
    assert (await collect((Stream.STDOUT, b"a\0b\xffc"))).text() == "a�b�c"


@pytest.mark.parametrize("size", [1000, 65_536])
async def test_a_long_line_is_cut_and_the_next_one_is_whole(size: int) -> None:
    content = b"x" * (3 * LINE_CHARACTERS_MAX) + b"\nnext\n"
    pieces = [(Stream.STDOUT, content[start : start + size]) for start in range(0, len(content), size)]
    first, second, rest = (await collect(*pieces)).text().split("\n")
    assert first == "x" * LINE_CHARACTERS_MAX + " [line cut]"
    assert (second, rest) == ("next", "")


async def test_beyond_the_limit_output_is_counted_and_the_end_says_so() -> None:
    line = b"y" * 1023 + b"\n"
    surplus = 5
    count = STREAM_BYTES_MAX // len(line) + surplus
    stored = await collect(
        *((Stream.STDOUT, line * 64) for _ in range(count // 64)), (Stream.STDOUT, line * (count % 64))
    )
    text = stored.text()
    assert len(text) < STREAM_BYTES_MAX + 100
    assert text.endswith(f"[truncated: {surplus * len(line)} more bytes]\n")


async def test_output_is_stored_while_the_action_runs_and_all_of_it_before_its_end(
    database: Database, start_worker_here: StartWorker
) -> None:
    command = "echo early; sleep 1; head -c 300000 /dev/zero | tr '\\0' '\\n'; echo late >&2"
    await make_action(database, "demo.shell", runner=Runner.SHELL, entry_point=None, command=command)
    await start_worker_here()
    [execution] = await request(database, "demo.shell")
    await place(database, [execution])

    async def early() -> bool:
        async with database.reading() as tx:
            return [row.content for row in await list_after(tx, execution, stream=None, after=(0, 0), limit=10)] == [
                "early\n"
            ]

    await until(early)
    assert await statuses(database, [execution]) == ["running"]
    await until(lambda: ended(database, [execution]))

    async with database.reading() as tx:
        rows = await list_after(tx, execution, stream="stdout", after=(0, 0), limit=1000)
        errors = await list_after(tx, execution, stream="stderr", after=(0, 0), limit=10)
    assert "".join(row.content for row in rows) == "early\n" + "\n" * 300_000
    assert [row.content for row in errors] == ["late\n"]
