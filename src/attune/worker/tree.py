"""One running process tree: asked to end, made to end, and seen to have ended."""

import asyncio
import os
import signal
from typing import Final

from attune.runtime.failpoints import failpoint
from attune.worker.launcher.child import Child
from attune.worker.processes import Children, end_all, find_tree, marker_of, signal_all
from attune.worker.runners.protocol import AT_ONCE, StopReason

# How long the streams of an ended script may stay open before somebody it left behind is looked for.
STREAMS_SECONDS: Final = 0.25
_LOOK_SECONDS: Final = 0.02


class Tree:
    """The processes of one attempt, from its first one to the last that carries its marker."""

    def __init__(self, child: Child, children: Children, *, marker: str, grace_seconds: float) -> None:
        self._child = child
        self._children = children
        self._root = child.pid
        self._marker = marker
        self._grace_seconds = grace_seconds
        self._killing: asyncio.TimerHandle | None = None
        self._stopped = False
        self.gone = True

    def stop(self, reason: StopReason) -> None:
        """End it: at once where the attempt may no longer be ours, else with a warning and some time."""
        self._stopped = True
        if reason in AT_ONCE:
            self.kill()
        elif self._killing is None:
            signal_all(self._find(), signal.SIGTERM, first=self._root)
            self._killing = asyncio.get_running_loop().call_later(self._grace_seconds, self.kill)
            failpoint("worker.stop.before_kill")

    def kill(self) -> None:
        signal_all(self._find(), signal.SIGKILL, first=self._root)

    async def see_off(self, readers: "asyncio.Future[tuple[None, None]]") -> None:
        """The first process has ended: end whatever it left behind, so that the streams end too."""
        if self._stopped and self._killing is not None and self._others():
            # Some of it may still be using its time to end in order.
            await self._wait_for_grace()
        if self._killing is not None:
            self._killing.cancel()
        if self._stopped or self._child.lost or self._left_something():
            self.gone = await end_all(self._find)
            self._children.reap()
            return
        await asyncio.wait([readers], timeout=STREAMS_SECONDS)
        if not readers.done():
            # Somebody holds them open, out of the sight of a cheap look.
            self.gone = await end_all(self._find)

    async def _wait_for_grace(self) -> None:
        assert self._killing is not None  # noqa: S101  the caller has looked
        loop = asyncio.get_running_loop()
        while loop.time() < self._killing.when() and self._others():  # noqa: ASYNC110 - nothing tells of their end
            await asyncio.sleep(_LOOK_SECONDS)

    def _find(self) -> set[int]:
        return find_tree(self._root, self._marker, root_ended=self._child.exit_code is not None)

    def _others(self) -> set[int]:
        return self._find() - {self._root}

    def _left_something(self) -> bool:
        """Whether the group lives on, or an orphan of this attempt has become our child; cheap, for every ending."""
        try:
            os.killpg(self._root, 0)
        except (ProcessLookupError, PermissionError):
            return any(marker_of(pid) == self._marker for pid in self._children.inherited())
        return True
