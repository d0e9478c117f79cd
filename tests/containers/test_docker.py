"""The same runner with the other program: docker understands what is said to podman, and leaves nothing either."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from attune.domain.retry import Ending, Outcome
from attune.packs.store import content_folder
from attune.worker.containers.engine import Engine, EngineKind, instance_label
from attune.worker.containers.probe import find_engine
from attune.worker.machine import watch_children_by_descriptor
from attune.worker.processes import Children, Marking, find_marked
from attune.worker.runners.container import ContainerPlan, ContainerRunner
from attune.worker.runners.protocol import Stop, StopReason, Stream
from tests.plugins.report import ONLY_ROOT, not_run
from tests.witness.docker import DockerFailed, a_docker
from tests.witness.podman import IMAGE
from tests.witness.waiting import until
from tests.worker.attempts import NO_DIGEST, Printed, make_attempt
from tools.unpack import CannotUnpack

SECONDS = 60


@pytest.fixture(scope="module")
async def docker() -> AsyncIterator[Engine]:
    """What a worker would find."""
    if os.geteuid() != 0:
        not_run(f"{ONLY_ROOT} can start a docker daemon", cure="run the tests as root")
    watch_children_by_descriptor()
    try:
        async with a_docker() as made:
            yield await find_engine("docker", made.environment, Children())
    except (CannotUnpack, DockerFailed) as error:
        not_run(str(error), cure="install docker.io, or let apt-get reach its sources")


@pytest.fixture
def boxes(docker: Engine, marking: Marking, packs: Path, tmp_path: Path) -> ContainerRunner:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    return ContainerRunner(
        ContainerPlan(engine=docker, packs=packs, scratch=scratch, marking=marking, grace_seconds=0.5)
    )


async def run(
    boxes: ContainerRunner, stop: Stop | None = None, printed: Printed | None = None, **work: object
) -> Ending:
    async with asyncio.timeout(SECONDS):
        attempt = make_attempt(stop, **({"runner": "container", "image": IMAGE} | work))
        return await boxes.run(attempt, printed or Printed())


def code(ending: Ending) -> str | None:
    return ending.failure.code if ending.failure else None


async def test_an_action_runs_and_answers(boxes: ContainerRunner, docker: Engine) -> None:
    assert (docker.kind, docker.init) == (EngineKind.DOCKER, True)
    ending = await run(boxes, command="cat", parameters={"n": 1}, output_format="json")
    assert (ending.outcome, ending.result) == (Outcome.SUCCEEDED, {"n": 1})


async def test_the_walls_stand(boxes: ContainerRunner) -> None:
    command = (
        "id -u; touch /x 2>/dev/null || echo read-only; cat /proc/self/status; cat /proc/net/dev;"
        ' echo "{\\"written\\": true}" > "$ATTUNE_OUTPUT"'
    )
    printed = Printed()
    ending = await run(boxes, None, printed, command=command)
    seen = printed.content[Stream.STDOUT].decode()
    assert ending.result == {"written": True}
    assert seen.startswith("65534\nread-only\n")
    assert "CapEff:\t0000000000000000" in seen
    assert "NoNewPrivs:\t1" in seen
    assert seen.splitlines()[-1].split(":")[0].strip() == "lo"


async def test_failures_are_told_apart(boxes: ContainerRunner, packs: Path) -> None:
    folder = content_folder(packs, "demo", NO_DIGEST) / "actions"
    folder.mkdir(parents=True)
    (folder / "run.py").write_text("#!/no/such/python\n")
    assert (await run(boxes, command="exit 7")).exit_code == 7
    assert code(await run(boxes, command="true", image="localhost/no-such:1")) == "missing_image"
    assert code(await run(boxes, entry_point="run.py")) == "missing_interpreter"
    assert code(await run(boxes)) == "container_failed"  # This image says nothing itself.


@pytest.mark.parametrize("reason", [StopReason.CANCELLED, StopReason.LEASE_LOST])
async def test_one_that_is_stopped_is_gone(
    boxes: ContainerRunner, docker: Engine, marking: Marking, reason: StopReason
) -> None:
    stop, printed = Stop(), Printed()
    command = "trap '' TERM; echo ready; while :; do sleep 0.05; done"
    running = asyncio.create_task(run(boxes, stop, printed, command=command))

    async def ready() -> bool:
        return b"ready" in printed.content[Stream.STDOUT]

    await until(ready, seconds=SECONDS)
    stop.request(reason)
    assert code(await running) == str(reason)
    left = await docker.call("ps", "--all", "--quiet", "--filter", f"label={instance_label(marking)}")
    assert left.stdout == ""
    assert find_marked(marking.prefix) == set()
