"""A real podman with one image, made from nothing but busybox."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from attune.worker.containers.engine import Engine
from attune.worker.containers.probe import NoEngine, find_engine
from attune.worker.machine import watch_children_by_descriptor
from attune.worker.processes import Children, Marking, become_subreaper
from attune.worker.runners.container import ContainerPlan, ContainerRunner
from tests.plugins.report import not_run
from tests.witness.podman import CURE, Podman, PodmanFailed, a_podman
from tools.unpack import CannotUnpack


@pytest.fixture(scope="session")
async def podman() -> AsyncIterator[Podman]:
    """The run's podman; nothing of it is left afterwards."""
    try:
        async with a_podman() as made:
            yield made
    except (CannotUnpack, PodmanFailed) as error:
        not_run(str(error), cure=CURE)


@pytest.fixture(scope="session")
async def engine(podman: Podman) -> Engine:
    """What a worker would find."""
    watch_children_by_descriptor()
    become_subreaper()
    try:
        return await find_engine("podman", podman.environment, Children())
    except NoEngine as error:
        not_run(str(error), cure=CURE)


@pytest.fixture
def runner(engine: Engine, marking: Marking, packs: Path, tmp_path: Path) -> ContainerRunner:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    return ContainerRunner(
        ContainerPlan(engine=engine, packs=packs, scratch=scratch, marking=marking, grace_seconds=0.5)
    )
