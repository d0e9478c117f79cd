"""A small process that outlives a killed worker just long enough to end what the worker's scripts left running.

The kernel ends a script's first process together with the worker, but not that one's children. The guardian holds
the other end of a pipe: when the worker is gone, however it went, the pipe ends and everything marked is killed.
Containers are children of somebody else, so whoever made them is asked to remove them.
"""

import asyncio
import contextlib
import os
from typing import Final

from attune.worker.containers.engine import Engine, instance_label
from attune.worker.processes import MARKER_VARIABLE, Children, Marking

# Until a look finds nothing, because a process may be forking while it is being looked for; at most 10 seconds.
_SCRIPT: Final = r"""
trap '' TERM INT HUP
read -r _
round=0
while [ $round -lt 100 ]; do
  files=$(grep -l -s -F -- "$1" /proc/[0-9]*/environ)
  [ -n "$files" ] || break
  for file in $files; do
    pid=${file#/proc/}
    kill -KILL "${pid%/environ}" 2>/dev/null
  done
  round=$((round + 1))
  sleep 0.1
done
[ -n "$2" ] || exit 0
round=0
while [ $round -lt 10 ]; do
  containers=$("$2" ps --all --quiet --no-trunc --filter "label=$3") && [ -z "$containers" ] && break
  for container in $containers; do
    "$2" kill --signal KILL "$container"
    "$2" rm --force "$container"
  done
  round=$((round + 1))
  sleep 0.1
done
"""


class Guardian:
    """The guardian of one worker process."""

    def __init__(self, marking: Marking, children: Children, *, engine: Engine | None = None) -> None:
        self._marking = marking
        self._children = children
        self._engine = engine
        self._process: asyncio.subprocess.Process | None = None
        self._pipe = -1

    async def start(self) -> None:
        # Python's pipes are not inherited by other children, so only the worker's end keeps it open.
        reading, self._pipe = os.pipe()
        self._children.starting += 1
        try:
            self._process = await asyncio.create_subprocess_exec(
                "/bin/sh",
                "-c",
                _SCRIPT,
                "attune-guardian",
                f"{MARKER_VARIABLE}={self._marking.prefix}",
                self._engine.program if self._engine else "",
                instance_label(self._marking),
                stdin=reading,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
                start_new_session=True,
                cwd="/",
                # Like every process of an installation it says whose it is.
                env={
                    "PATH": "/usr/bin:/bin",
                    **(self._engine.environment if self._engine else {}),
                    "LANG": "C",
                    "ATTUNE_HOME": os.environ.get("ATTUNE_HOME", ""),
                },
            )
            self._children.own.add(self._process.pid)
        finally:
            self._children.starting -= 1
            os.close(reading)

    async def stop(self) -> None:
        """The worker ends in good order and has nothing running."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()
        self._children.own.discard(self._process.pid)
        os.close(self._pipe)
        self._process = None
