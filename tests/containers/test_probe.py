"""Containers are offered only after one was seen to run; else the reason is said."""

from __future__ import annotations

import platform
import subprocess
import sys
import tarfile
from io import BytesIO
from pathlib import Path

import pytest

from attune.domain.definitions import ContainerLimits, ContainerNetwork
from attune.worker.containers.engine import Engine, EngineKind, needed_environment
from attune.worker.containers.offer import offer_containers
from attune.worker.containers.options import Container, Mounts, run_words
from attune.worker.containers.probe import PROBE_IMAGE, NoEngine, find_engine, image_of_nothing
from attune.worker.processes import Children, Marking
from attune.worker.runtimes.ask import NotOffered
from tests.witness.podman import Podman


def program(folder: Path, name: str, script: str) -> dict[str, str]:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)
    return {"PATH": f"{folder}:/nowhere"}


async def test_the_probe_leaves_an_image_and_no_container(engine: Engine, podman: Podman) -> None:
    assert engine.kind is EngineKind.PODMAN
    assert await engine.has_image(PROBE_IMAGE)
    assert podman.call("ps", "--all", "--quiet", "--filter", "label=attune.probe=1") == ""


async def test_nothing_installed_is_said(tmp_path: Path) -> None:
    with pytest.raises(NoEngine, match="podman is not installed; docker is not installed"):
        await find_engine("auto", {"PATH": str(tmp_path)}, Children())


async def test_a_program_that_does_not_answer_is_not_offered(tmp_path: Path) -> None:
    own = program(tmp_path / "bin", "docker", "echo Cannot connect to the daemon >&2; exit 1")
    with pytest.raises(NoEngine, match="docker does not answer: Cannot connect to the daemon"):
        await find_engine("auto", own, Children())


async def test_a_program_that_answers_and_runs_nothing_is_not_offered(tmp_path: Path) -> None:
    own = program(
        tmp_path / "bin", "podman", 'case $1 in run) echo "setting rlimit: not permitted" >&2; exit 126;; esac'
    )
    with pytest.raises(NoEngine, match="podman cannot run a container: setting rlimit: not permitted"):
        await find_engine("podman", own, Children())


async def test_without_its_first_process_it_is_offered_all_the_same(tmp_path: Path) -> None:
    own = program(tmp_path / "bin", "podman", 'case " $* " in *" --init "*) echo no catatonit >&2; exit 125;; esac')
    engine = await find_engine("auto", own, Children())
    assert not engine.init


async def test_off_looks_for_nothing(marking: Marking) -> None:
    found = await offer_containers("off", marking, Children(), variables={})
    assert isinstance(found, NotOffered)


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_image_of_nothing_holds_one_program(machine: str, tmp_path: Path) -> None:
    with tarfile.open(fileobj=BytesIO(image_of_nothing(machine))) as tar:
        tar.extract("probe", tmp_path, filter="data")
    if machine == platform.machine() and sys.platform == "linux":
        assert subprocess.run([tmp_path / "probe"], check=False).returncode == 0


def test_only_what_the_program_needs_reaches_it() -> None:
    own = {"HOME": "/h", "PATH": "/bin", "DOCKER_HOST": "d", "CONTAINERS_CONF": "c", "ATTUNE_TOKEN": "secret", "X": "y"}
    assert needed_environment(own) == {
        "HOME": "/h",
        "PATH": "/bin",
        "DOCKER_HOST": "d",
        "CONTAINERS_CONF": "c",
        "LANG": "C.UTF-8",
    }


@pytest.mark.parametrize("kind", list(EngineKind))
def test_the_walls_are_the_same_with_either_program(kind: EngineKind, tmp_path: Path) -> None:
    engine = Engine(kind=kind, program="/x", environment={}, children=Children())
    limits = ContainerLimits(network=ContainerNetwork.BRIDGE, memory_mb=64, cpus=0.5)
    mounts = Mounts(shared=tmp_path / "s", pack=tmp_path / "p")
    words = run_words(engine, Container(image="a/b:1", limits=limits, labels=["k=v"], words=["sh", "x"], mounts=mounts))
    line = " ".join(words)
    for wall in (
        *("run --rm --interactive --init --pull never --log-driver none", "--read-only", "--cap-drop ALL"),
        *("--security-opt no-new-privileges", "--network bridge", "--memory 64m", "--cpus 0.5", "--label k=v"),
        *(f"{tmp_path}/s:/attune:rw,Z", f"{tmp_path}/p:/pack:ro,z"),
    ):
        assert wall in line
    assert words[-4:] == ["--entrypoint", "sh", "a/b:1", "x"]
    assert "--privileged" not in line
