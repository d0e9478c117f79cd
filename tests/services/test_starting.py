"""What a service says when its database vanishes while it starts: one sentence, and it may be started again."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE
from pathlib import Path

END_SECONDS = 60


async def test_a_worker_whose_database_vanishes_while_it_starts_says_so_in_a_sentence(
    database_url: str, tmp_path: Path
) -> None:
    # Its registration is committed, and the connection is lost before the answer.
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "attune.cli.main", "serve", "worker", "--name", "worker-1"),
        env={
            "PATH": os.environ["PATH"],
            "ATTUNE_HOME": str(tmp_path),
            "ATTUNE__DATABASE__URL": database_url,
            "ATTUNE__WORKER__ISOLATION": "none",
            "ATTUNE__LOG__FORMAT": "json",
            "ATTUNE_FAILPOINTS": "storage.commit.before_answer=unknown",
        },
        stdin=DEVNULL,
        stdout=DEVNULL,
        stderr=PIPE,
    )
    try:
        async with asyncio.timeout(END_SECONDS):
            _, said = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()

    lines = [json.loads(line) for line in said.decode().splitlines()]
    worst = [line for line in lines if line["level"] in {"error", "critical"}]
    assert process.returncode == 1
    assert [line["event"] for line in worst] == ["service.cannot_start"]
    assert worst[0]["reason"].startswith("the database or the network failed: ConnectionDoesNotExistError: ")
    assert "exception" not in worst[0]
