"""What an action in a container can rely on, what it cannot get away with, and that nothing of it stays."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from attune.domain.retry import Ending, Outcome
from attune.packs.store import content_folder
from attune.worker.containers.engine import Engine, instance_label
from attune.worker.processes import Marking, find_marked
from attune.worker.runners.container import ContainerRunner
from attune.worker.runners.protocol import Attempt, Stop, StopReason, Stream, TooLate
from tests.containers.test_probe import program
from tests.plugins.report import ONLY_ROOT, not_run
from tests.witness.podman import IMAGE, Podman, busybox_image
from tests.witness.waiting import until
from tests.worker.attempts import NO_DIGEST, Printed, make_attempt

MEBIBYTE = 1024 * 1024
# More than is kept of a stream.
HUGE_BYTES = 11 * MEBIBYTE
SECONDS = 60


def attempt(stop: Stop | None = None, **work: object) -> Attempt:
    return make_attempt(stop, **({"runner": "container", "image": IMAGE} | work))


async def run(runner: ContainerRunner, printed: Printed | None = None, /, **work: object) -> Ending:
    async with asyncio.timeout(SECONDS):
        return await runner.run(attempt(None, **work), printed or Printed())


async def stdout_of(runner: ContainerRunner, command: str, **work: object) -> str:
    ending = await run(runner, None, command=command, **work)
    assert ending.outcome is Outcome.SUCCEEDED, ending
    assert isinstance(ending.result, dict)
    return str(ending.result["stdout"])


def code(ending: Ending) -> str | None:
    return ending.failure.code if ending.failure else None


async def listed(engine: Engine, marking: Marking) -> list[str]:
    said = await engine.call("ps", "--all", "--quiet", "--filter", f"label={instance_label(marking)}")
    return said.stdout.split()


async def test_a_result_can_be_written_to_the_shared_folder(runner: ContainerRunner) -> None:
    ending = await run(runner, command='echo hi; echo "{\\"won\\": true}" > "$ATTUNE_OUTPUT"')
    assert ending.result == {"won": True}


async def test_parameters_in_a_file_can_be_sourced(runner: ContainerRunner) -> None:
    hostile = "$(touch hacked); `id`\n'; exit 9 #"
    seen = await stdout_of(
        runner,
        '. "$ATTUNE_PARAMETER_FILE"; printf %s "$text"',
        parameters={"text": hostile},
        parameter_delivery="file",
        parameter_format="dotenv",
    )
    assert seen == hostile


async def test_a_script_of_the_pack_runs_with_its_interpreter(runner: ContainerRunner, packs: Path) -> None:
    folder = content_folder(packs, "demo", NO_DIGEST) / "actions"
    folder.mkdir(parents=True)
    (folder / "lib.sh").write_text("word=shared\n")
    (folder / "run.sh").write_text(
        "#!/bin/sh\n. /pack/actions/lib.sh\necho $word; touch /pack/x 2>/dev/null || echo closed\n"
    )
    ending = await run(runner, entry_point="run.sh")
    assert isinstance(ending.result, dict)
    assert ending.result["stdout"] == "shared\nclosed\n"


async def test_a_parameter_can_be_the_command_and_is_in_nobodys_words(runner: ContainerRunner) -> None:
    seen = await stdout_of(runner, "", command_from="cmd", parameters={"cmd": "ps -o args; echo canary-1"})
    assert seen.count("canary-1") == 1


async def test_a_container_holds_nothing_of_the_machine(runner: ContainerRunner) -> None:
    seen = await stdout_of(
        runner, "id -u; touch /x 2>/dev/null || echo read-only; pwd; cat /proc/self/status; cat /proc/net/dev"
    )
    uid, read_only, here, *_ = seen.splitlines()
    if os.geteuid() == 0:
        assert uid == "65534"
    assert (read_only, here) == ("read-only", "/tmp")  # noqa: S108  inside the container
    assert seen.splitlines()[-1].split(":")[0].strip() == "lo"
    assert "CapEff:\t0000000000000000" in seen
    assert "NoNewPrivs:\t1" in seen


async def test_the_environment_holds_only_what_is_promised(runner: ContainerRunner) -> None:
    names = {line.split("=")[0] for line in (await stdout_of(runner, "env", traceparent="00-a-b-01")).splitlines()}
    own = {"PATH", "HOSTNAME", "PWD", "SHLVL", "TERM", "container", "_"}
    assert names - own == {
        "HOME",
        "TMPDIR",
        "LANG",
        "ATTUNE_EXECUTION_ID",
        "ATTUNE_ACTION",
        "ATTUNE_PACK",
        "ATTUNE_ATTEMPT",
        "ATTUNE_IDEMPOTENCY_KEY",
        "ATTUNE_OUTPUT",
        "ATTUNE_EXECUTION_MARKER",
        "TRACEPARENT",
    }


async def test_only_a_container_with_a_network_is_given_the_way_to_the_api(
    runner: ContainerRunner, engine: Engine, tmp_path: Path
) -> None:
    """Seen in what podman is told: not every machine that runs these tests can make a network."""
    seen = program(tmp_path / "bin", "podman", f'cp "$(dirname "$0")/../scratch"/*/environment {tmp_path}/seen')
    watched = replace(engine, program=f"{seen['PATH'].partition(':')[0]}/podman")
    knowing = ContainerRunner(replace(runner._plan, engine=watched, api_url="http://api.example:8080"))
    for network, names in (("bridge", {"ATTUNE_API_URL", "ATTUNE_API_TOKEN"}), ("none", set[str]())):
        await knowing.run(replace(attempt(command="env", container={"network": network}), token="t-1"), Printed())
        told = {line.split("=")[0] for line in (tmp_path / "seen").read_text().splitlines()}
        assert {name for name in told if "_API_" in name} == names


async def test_a_failure_keeps_the_exit_code(runner: ContainerRunner) -> None:
    ending = await run(runner, command="echo why >&2; exit 7")
    assert (ending.outcome, code(ending), ending.exit_code) == (Outcome.FAILED, "exit_code", 7)
    assert isinstance(ending.result, dict)
    assert "why" in str(ending.result["stderr"])


async def test_an_image_that_is_not_there_is_named_and_not_fetched(runner: ContainerRunner) -> None:
    ending = await run(runner, image="localhost/no-such:1", command="true")
    assert code(ending) == "missing_image"
    assert ending.failure is not None
    assert "podman pull localhost/no-such:1" in ending.failure.message


async def test_an_output_file_that_is_a_link_is_not_followed(runner: ContainerRunner) -> None:
    ending = await run(runner, command='busybox ln -s /etc/passwd "$ATTUNE_OUTPUT"', output_format="json")
    assert (ending.outcome, code(ending)) == (Outcome.FAILED, "bad_output")


async def test_a_container_may_end_in_order_when_it_is_asked_to(runner: ContainerRunner) -> None:
    patient = ContainerRunner(replace(runner._plan, grace_seconds=30))
    stop, printed = Stop(), Printed()
    endless = attempt(stop, command="trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.05; done")
    running = asyncio.create_task(patient.run(endless, printed))

    async def ready() -> bool:
        return b"ready" in printed.content[Stream.STDOUT]

    await until(ready, seconds=SECONDS)
    stop.request(StopReason.CANCELLED)
    async with asyncio.timeout(SECONDS):
        ending = await running
    assert ending.outcome is Outcome.CANCELLED
    assert printed.content[Stream.STDOUT] == b"ready\nbye\n"


async def test_one_that_is_stopped_while_it_is_being_made_is_gone_too(
    runner: ContainerRunner, engine: Engine, marking: Marking
) -> None:
    stop = Stop()
    running = asyncio.create_task(runner.run(attempt(stop, command="sleep 300"), Printed()))
    await asyncio.sleep(0)
    stop.request(StopReason.LEASE_LOST)
    async with asyncio.timeout(SECONDS):
        ending = await running
    assert code(ending) == "lease_lost"
    assert await listed(engine, marking) == []
    assert find_marked(marking.prefix) == set()


async def test_one_that_was_stopped_or_is_too_late_never_begins(
    runner: ContainerRunner, engine: Engine, marking: Marking
) -> None:
    stop = Stop()
    stop.request(StopReason.CANCELLED)
    assert (await runner.run(attempt(stop, command="sleep 300"), Printed())).outcome is Outcome.CANCELLED

    def too_late() -> None:
        raise TooLate

    with pytest.raises(TooLate):
        await runner.run(replace(attempt(command="sleep 300"), check_clock=too_late), Printed())
    assert await listed(engine, marking) == []


async def test_a_runner_that_is_cancelled_leaves_nothing(
    runner: ContainerRunner, engine: Engine, marking: Marking
) -> None:
    printed = Printed()
    running = asyncio.create_task(runner.run(attempt(command="echo ready; sleep 300"), printed))

    async def ready() -> bool:
        return b"ready" in printed.content[Stream.STDOUT]

    await until(ready, seconds=SECONDS)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await listed(engine, marking) == []
    assert find_marked(marking.prefix) == set()


async def test_the_shared_folder_is_gone_afterwards(runner: ContainerRunner, tmp_path: Path) -> None:
    await run(runner, command="echo x > /attune/left; touch /attune/more")
    assert list((tmp_path / "scratch").iterdir()) == []


def need_limits() -> None:
    if os.geteuid() != 0 and not Path("/sys/fs/cgroup/cgroup.controllers").exists():
        not_run(f"{ONLY_ROOT} can bound containers with control groups of the first version", cure="run as root")


async def test_memory_is_bounded(runner: ContainerRunner) -> None:
    need_limits()
    ending = await run(runner, command="tail /dev/zero", container={"memory_mb": 16})
    assert ending.outcome is Outcome.FAILED


async def test_a_fork_bomb_is_bounded(runner: ContainerRunner, marking: Marking) -> None:
    need_limits()
    bomb = "n=0; while [ $n -lt 60 ]; do sleep 30 & n=$((n + 1)); done; echo never; kill -9 -1"
    ending = await run(runner, command=bomb, container={"processes": 20})
    assert ending.outcome is Outcome.FAILED
    assert find_marked(marking.prefix) == set()


async def test_an_image_can_say_itself_what_runs(runner: ContainerRunner, podman: Podman) -> None:
    said = 'CMD ["echo", "from the image"]'
    podman.call("import", "--change", said, "-", "localhost/said:1", stdin=busybox_image())
    ending = await run(runner, image="localhost/said:1")
    assert msgspec.json.decode(msgspec.json.encode(ending.result))["stdout"] == "from the image\n"
