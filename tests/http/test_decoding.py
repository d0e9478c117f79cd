"""A small answer cannot fill the worker's memory."""

from __future__ import annotations

import tracemalloc
import zlib
from collections.abc import AsyncIterator

import pytest

from attune.worker.http.decoding import AnswerTooLarge, read_content

MEBIBYTE = 1024 * 1024
# zlib's word for gzip's frame.
GZIP = 31


async def test_a_bomb_is_noticed_before_it_unfolds() -> None:
    # In pieces, so that the test itself does not need the memory either.
    packer = zlib.compressobj(9, wbits=GZIP)
    bomb = b"".join([*(packer.compress(bytes(MEBIBYTE)) for _ in range(200)), packer.flush()])
    assert len(bomb) < MEBIBYTE

    async def at_once() -> AsyncIterator[bytes]:
        yield bomb

    tracemalloc.start()
    try:
        with pytest.raises(AnswerTooLarge):
            await read_content(at_once(), "gzip")
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 40 * MEBIBYTE
