"""A full disk: the attempt says so, the worker takes itself out, and comes back when there is room."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from attune.domain.definitions import Runner
from attune.operations.workers.cordon_itself import cordon_itself, uncordon_itself
from attune.storage.availability import steering
from attune.storage.database import Database
from attune.worker.disk import Disk
from attune.worker.plan import Bounds
from tests.plugins.report import ONLY_ROOT, not_run
from tests.witness.arrange import make_action, make_worker, place, request
from tests.witness.waiting import until
from tests.worker.conftest import StartWorker

SIZE_MB = 4
INODES = 100
MORE_THAN_ANY_MB = 2**50


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        not_run(f"{ONLY_ROOT} can make a small disk", cure="run as root")
    place_ = tmp_path / "disk"
    place_.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE_MB}m,nr_inodes={INODES},mode=755", "tmpfs", str(place_)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        not_run(f"{ONLY_ROOT} with CAP_SYS_ADMIN can make a small disk: {done.stderr}", cure="run in a virtual machine")
    yield place_
    subprocess.run([shutil.which("umount") or "umount", "--lazy", str(place_)], check=True)


def use_up(disk: Path) -> None:
    """Leave no room for another file; a disk can be full without being used up."""
    with contextlib.suppress(OSError):
        for number in range(INODES):
            (disk / f"file-{number}").touch()


async def cordoned(database: Database) -> tuple[bool, str | None]:
    async with database.reading() as tx:
        row = await tx.fetch_row("SELECT cordoned, cordon_reason FROM worker")
    assert row is not None
    return bool(row["cordoned"]), row["cordon_reason"]


async def test_a_full_disk_fails_the_attempt_and_cordons_the_worker_until_there_is_room(
    database: Database, small_disk: Path, start_worker_here: StartWorker
) -> None:
    await start_worker_here(scratch=small_disk / "scratch", bounds=Bounds(disk_free_mb=1))
    await make_action(database, "demo.shell", runner=Runner.SHELL, entry_point=None, command="echo ran")
    assert await cordoned(database) == (False, None)
    use_up(small_disk)
    [execution] = await request(database, "demo.shell")
    await place(database, [execution])

    async def failed() -> bool:
        async with database.reading() as tx:
            error = await tx.fetch_value("SELECT error FROM execution WHERE id = $1", execution)
        return error is not None and error["code"] == "no_space"

    await until(failed)

    async def taken_out() -> bool:
        taken, reason = await cordoned(database)
        return taken and reason is not None and str(small_disk) in reason

    await until(taken_out)
    for each in small_disk.glob("file-*"):
        each.unlink()

    async def let_in() -> bool:
        return await cordoned(database) == (False, None)

    await until(let_in, seconds=30)


async def test_whom_people_cordoned_does_not_come_back_by_itself(database: Database, tmp_path: Path) -> None:
    worker = await make_worker(database)
    handed_back: list[bool] = []

    async def look(disk: Disk) -> tuple[bool, str | None]:
        await disk.look(lambda: handed_back.append(True))
        return await cordoned(database)

    full = Disk(database, worker.instance, place=tmp_path, free_mb_min=MORE_THAN_ANY_MB, doubted=asyncio.Event())
    taken, reason = await look(full)
    assert taken
    assert reason is not None
    assert handed_back == [True]
    async with database.transaction() as tx:
        await steering.save(tx, worker.worker_id, status="active", cordoned=True)
        assert not await uncordon_itself(tx, instance=worker.instance)
    assert await cordoned(database) == (True, None)


async def test_a_new_start_forgets_why_the_last_one_cordoned_itself(database: Database) -> None:
    worker = await make_worker(database)
    async with database.transaction() as tx:
        assert await cordon_itself(tx, instance=worker.instance, reason="no room")
    await make_worker(database)
    assert await cordoned(database) == (False, None)
