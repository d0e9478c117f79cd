"""Environments on disk, one folder for each lock and interpreter: `<root>/<kind>/<key>/`.

A folder appears complete or not at all and never changes afterwards. Whoever builds one holds the lock of its key, so
that two workers of a machine build it once; the kernel lets go of the lock of a worker that was killed, and the next
one clears what it left and builds afresh. A folder that executions may be using is never removed: each use is noted
in the time of its marker, and nothing runs longer than an action may take.
"""

import asyncio
import contextlib
import fcntl
import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from attune.runtime.clock import monotonic, new_uuid, utc_now
from attune.runtime.failpoints import afailpoint
from attune.worker.environments.build import BuildFailed
from attune.worker.runners.protocol import Stop

MARKER: Final = ".attune-environment"
LOCKS: Final = "locks"
KINDS: Final = ("python", "node")
STAGING: Final = ".staging-"
FOLDER_MODE: Final = 0o755
DAY_SECONDS: Final = 86_400
# How often whoever waits for another worker's build looks whether it is over.
_LOOK_SECONDS: Final = 0.05

Say = Callable[[str], Awaitable[None]]


class StoppedEarly(Exception):
    """The attempt was asked to end while its environment was being built; the building goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How one environment is made; `build` fills a folder that does not exist yet."""

    kind: str
    key: str
    label: str
    build: Callable[[Path], Awaitable[None]]


class Environments:
    """The environments of one machine, as one worker builds and uses them."""

    def __init__(self, root: Path, *, build_seconds_max: float, unused_days_max: float) -> None:
        self._root = root
        self._build_seconds_max = build_seconds_max
        self._unused_seconds_max = unused_days_max * DAY_SECONDS
        self._building: dict[Path, asyncio.Task[None]] = {}
        self._log = structlog.get_logger()

    async def ensure(self, recipe: Recipe, *, stop: Stop, say: Say) -> Path:
        """The folder of an environment, built first if it has to be; raises BuildFailed and StoppedEarly."""
        place = self._root / recipe.kind / recipe.key
        if self._note_use(place):
            return place
        building = self._building.get(place)
        if building is None:
            building = self._building[place] = asyncio.create_task(self._build(recipe, place), name="environment")
            building.add_done_callback(lambda task: self._forget(place, task))
        await say(f"building environment: {recipe.label}")
        started = monotonic()
        await _wait_for(building, stop)
        building.result()
        await say(f"environment ready after {monotonic() - started:.1f} s")
        return place

    async def close(self) -> None:
        """End what is being built; the next worker begins again."""
        tasks = tuple(self._building.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def remove_unused(self) -> int:
        """Remove what nobody has used for long, and what killed builders left; returns how many environments went."""
        removed = 0
        for kind in KINDS:
            for folder in (self._root / kind).glob("*"):
                removed += self._remove_if_unused(folder)
        return removed

    def _remove_if_unused(self, folder: Path) -> bool:
        key = folder.name.removeprefix(STAGING).partition(".")[0]
        with _try_lock(self._lock_file(folder.parent / key), fcntl.LOCK_EX) as locked:
            if not locked:
                return False
            staging = folder.name.startswith(STAGING)
            if not staging and utc_now().timestamp() - _used_at(folder) < self._unused_seconds_max:
                return False
            # Aside in one step: a half-removed folder must not look like an environment.
            aside = folder if staging else folder.with_name(f"{STAGING}{key}.removed")
            with contextlib.suppress(OSError):
                folder.rename(aside)
            shutil.rmtree(aside, ignore_errors=True)
        return not staging

    def _note_use(self, place: Path) -> bool:
        """Whether it is there; if so it counts as used now."""
        with _try_lock(self._lock_file(place), fcntl.LOCK_SH) as locked:
            if not locked:
                return False
            try:
                os.utime(place / MARKER)
            except FileNotFoundError:
                return False
            return True

    async def _build(self, recipe: Recipe, place: Path) -> None:
        try:
            async with asyncio.timeout(self._build_seconds_max), _locked(self._lock_file(place)):
                # Another worker may have built it meanwhile.
                if not (place / MARKER).exists():
                    await self._build_locked(recipe, place)
        except TimeoutError:
            raise BuildFailed(f"it was not ready within {self._build_seconds_max:g} s") from None
        except OSError as error:
            raise BuildFailed(f"{error.filename or place}: {error.strerror}") from None

    async def _build_locked(self, recipe: Recipe, place: Path) -> None:
        place.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        # Set outright: with a private umask the account of actions could not come in.
        for folder in (self._root, place.parent):
            folder.chmod(FOLDER_MODE)
        for left in place.parent.glob(f"{STAGING}{recipe.key}.*"):
            await asyncio.to_thread(shutil.rmtree, left, ignore_errors=True)
        staging = place.with_name(f"{STAGING}{recipe.key}.{new_uuid().hex}")
        try:
            await recipe.build(staging)
            (staging / MARKER).write_text(f"{recipe.label}\n", encoding="utf-8")
            # A power cut must not leave a complete-looking environment of empty files.
            await asyncio.to_thread(os.sync)
            await afailpoint("environment.built.before_rename")
            staging.rename(place)
        finally:
            await asyncio.shield(asyncio.to_thread(shutil.rmtree, staging, ignore_errors=True))
        self._log.info("environment.built", kind=recipe.kind, key=recipe.key, what=recipe.label)

    def _forget(self, place: Path, task: asyncio.Task[None]) -> None:
        del self._building[place]
        if not task.cancelled() and (error := task.exception()):
            # Retrieved here, because everybody who waited for it may have been stopped.
            self._log.warning("environment.failed", key=place.name, reason=str(error))

    def _lock_file(self, place: Path) -> Path:
        return self._root / LOCKS / f"{place.parent.name}-{place.name}"


async def _wait_for(building: "asyncio.Task[None]", stop: Stop) -> None:
    asked: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    stop.listen(lambda _reason: None if asked.done() else asked.set_result(None))
    try:
        await asyncio.wait({building, asked}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stop.forget_listener()
    if not building.done():
        raise StoppedEarly


def _used_at(folder: Path) -> float:
    try:
        return (folder / MARKER).stat().st_mtime
    except OSError:
        return 0.0


def _open_lock(path: Path) -> int:
    path.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


@contextmanager
def _try_lock(path: Path, kind: int) -> Iterator[bool]:
    descriptor = _open_lock(path)
    try:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)


@asynccontextmanager
async def _locked(path: Path) -> AsyncIterator[None]:
    descriptor = _open_lock(path)
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                # Not in a thread: one that waits in the kernel cannot be cancelled.
                await asyncio.sleep(_LOOK_SECONDS)
        yield
    finally:
        os.close(descriptor)
