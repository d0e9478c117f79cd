"""Keeps one RabbitMQ node alive for a test run, and ends it when the run ends, however that happens.

`python -m tests.witness.keep_rabbitmq PID FILE`: starts a node, writes its particulars to FILE, and stops it on SIGTERM
or when process PID is gone. A process of its own, because the node belongs to all the run's processes alike.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.witness.servers import RabbitMQ, ServerFailed, start_rabbitmq
from tools.unpack import CannotUnpack

WATCH_SECONDS = 0.5


@dataclass(frozen=True, kw_only=True)
class Unavailable:
    """Why there is no node, for the closing table."""

    reason: str


def read_particulars(file: Path) -> RabbitMQ | Unavailable:
    """The node that another process keeps. Commands can be given to it; starting and killing is the keeper's."""
    found = json.loads(file.read_text())
    if "reason" in found:
        return Unavailable(reason=found["reason"])
    return RabbitMQ(
        root=Path(found["root"]),
        directory=Path(found["directory"]),
        node=found["node"],
        user=found["user"],
        password=found["password"],
        ports=found["ports"],
    )


def _write(file: Path, particulars: dict[str, object]) -> None:
    """Whole or not at all: others wait for the file to appear, and then read it at once."""
    draft = file.with_suffix(".draft")
    draft.touch(mode=0o600)
    draft.write_text(json.dumps(particulars))
    draft.rename(file)


def _describe(node: RabbitMQ) -> dict[str, object]:
    return {
        "root": str(node.root),
        "directory": str(node.directory),
        "node": node.node,
        "user": node.user,
        "password": node.password,
        "ports": list(node.ports),
    }


async def _wait_for_end(parent: int) -> None:
    asked = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asked.set)
    while not asked.is_set() and psutil.pid_exists(parent):
        try:
            await asyncio.wait_for(asked.wait(), WATCH_SECONDS)
        except TimeoutError:
            continue


async def keep(parent: int, file: Path) -> None:
    end = asyncio.create_task(_wait_for_end(parent))
    try:
        async with start_rabbitmq() as node:
            _write(file, _describe(node))
            await end
    except (CannotUnpack, ServerFailed) as error:
        _write(file, {"reason": str(error)})
        end.cancel()
    if not psutil.pid_exists(parent):
        shutil.rmtree(file.parent)  # the run was killed and cannot tidy up after itself


if __name__ == "__main__":
    asyncio.run(keep(int(sys.argv[1]), Path(sys.argv[2])))
