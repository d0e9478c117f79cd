"""Starting and killing the processes of these tests."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from attune.runtime.failpoints.firing import VARIABLE

ROOT = Path(__file__).parents[2]
SAY_SECONDS = 20.0


@asynccontextmanager
async def child(role: str, database_url: str, broker_url: str, *, failpoints: str = "") -> AsyncIterator[Process]:
    """A process in this role, killed at the end of the block if it still lives."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.transport.child", role, database_url, broker_url),
        cwd=ROOT,
        env={**os.environ, VARIABLE: failpoints},
        stdout=PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        # Read to the end, or its pipe would be left open.
        await process.communicate()


async def wait_until_it_says(process: Process, text: str) -> None:
    """Read what the process says until it says this; its log lines are passed over."""
    assert process.stdout is not None
    async with asyncio.timeout(SAY_SECONDS):
        while line := await process.stdout.readline():
            if line.decode().startswith(text):
                return
    raise AssertionError(f"the process ended without saying {text!r}")
