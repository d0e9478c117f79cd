"""What a script may rely on, and what it cannot get away with."""

from __future__ import annotations

import asyncio
import os
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from attune.domain.json_values import Json
from attune.domain.retry import Ending, Outcome
from attune.packs.store import content_folder
from attune.worker.processes import Marking, find_marked
from attune.worker.runners.protocol import Stop, StopReason, Stream
from attune.worker.runners.script import ScriptRunner
from tests.witness.waiting import until
from tests.worker.attempts import NO_DIGEST, Printed, make_attempt


async def run(shell: ScriptRunner, printed: Printed | None = None, /, **work: object) -> Ending:
    async with asyncio.timeout(30):
        return await shell.run(make_attempt(None, **work), printed or Printed())


async def stdout_of(shell: ScriptRunner, command: str, **work: object) -> str:
    ending = await run(shell, None, command=command, **work)
    assert ending.outcome is Outcome.SUCCEEDED, ending
    assert isinstance(ending.result, dict)
    return str(ending.result["stdout"])


def script(packs: Path, name: str, content: str) -> None:
    folder = content_folder(packs, "demo", NO_DIGEST) / "actions"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(content)


async def test_parameters_arrive_on_stdin_as_json(shell: ScriptRunner) -> None:
    seen = await stdout_of(shell, "cat", parameters={"n": 1, "text": "ä 'quoted'"})
    assert msgspec.json.decode(seen) == {"n": 1, "text": "ä 'quoted'"}


async def test_parameters_in_a_file_of_shell_variables_are_data_only(shell: ScriptRunner) -> None:
    hostile = "$(touch hacked); `id`\n'; exit 9 #"
    seen = await stdout_of(
        shell,
        '. "$ATTUNE_PARAMETER_FILE"; printf %s "$text"; ls | grep hacked; true',
        parameters={"text": hostile, "n": 1},
        parameter_delivery="file",
        parameter_format="dotenv",
    )
    assert seen == hostile


async def test_a_parameter_can_be_the_command(shell: ScriptRunner) -> None:
    assert await stdout_of(shell, "", command_from="cmd", parameters={"cmd": "echo $((6 * 7))"}) == "42\n"


async def test_the_environment_holds_only_what_is_promised(shell: ScriptRunner) -> None:
    names = {line.split("=")[0] for line in (await stdout_of(shell, "env", traceparent="00-a-b-01")).splitlines()}
    assert names - {"PWD", "SHLVL", "_"} == {
        "PATH",
        "HOME",
        "LANG",
        "TMPDIR",
        "ATTUNE_EXECUTION_ID",
        "ATTUNE_ACTION",
        "ATTUNE_PACK",
        "ATTUNE_ATTEMPT",
        "ATTUNE_IDEMPOTENCY_KEY",
        "ATTUNE_OUTPUT",
        "ATTUNE_EXECUTION_MARKER",
        "TRACEPARENT",
    }


async def test_the_directory_is_private_and_gone_afterwards(shell: ScriptRunner, tmp_path: Path) -> None:
    seen = await stdout_of(shell, 'stat -c %a .; mkdir -p deep/er; touch deep/er/file; echo "$HOME"; pwd')
    mode, home, here = seen.split()
    assert (mode, home) == ("700", here)
    assert not Path(home).exists()
    assert list((tmp_path / "scratch").iterdir()) == []


async def test_what_an_attempt_finds_is_empty_and_closed_to_others_whatever_the_one_before_did(
    shell: ScriptRunner,
) -> None:
    look = "stat -c %a .; ls -A | wc -l; pwd"
    places = [
        (await stdout_of(shell, f"{look}; {deed}")).split()
        for deed in ("true", "touch file", "mkdir .hidden", "chmod 755 .", "rmdir $PWD", "mkfifo pipe", "true", "true")
    ]
    assert {(mode, files) for mode, files, _ in places} == {("700", "0")}
    # Only what left its directory as it was lets the next have it.
    assert [one[2] == two[2] for one, two in pairwise(places)] == [True, False, False, False, False, False, True]


async def test_no_descriptor_of_the_worker_is_inherited(shell: ScriptRunner, tmp_path: Path) -> None:
    held = os.open(tmp_path, os.O_RDONLY)
    os.set_inheritable(held, True)  # noqa: FBT003  the standard library's signature
    try:
        seen = await stdout_of(shell, "ls /proc/self/fd")
    finally:
        os.close(held)
    # 3 is the directory that `ls` itself reads.
    assert seen.split() == ["0", "1", "2", "3"]


async def test_a_script_can_gain_no_privileges_and_dies_with_its_worker(shell: ScriptRunner) -> None:
    assert "NoNewPrivs:\t1" in await stdout_of(shell, "cat /proc/self/status")


async def test_the_first_line_names_the_interpreter(shell: ScriptRunner, packs: Path) -> None:
    script(packs, "run.sh", '#!/bin/bash\n[[ -n "$BASH_VERSION" ]] && echo bash\n')
    ending = await run(shell, entry_point="run.sh")
    assert isinstance(ending.result, dict)
    assert ending.result["stdout"] == "bash\n"


async def test_a_missing_interpreter_is_named(shell: ScriptRunner, packs: Path) -> None:
    script(packs, "run.sh", "#!/no/such/interpreter\n")
    ending = await run(shell, entry_point="run.sh")
    assert ending.failure is not None
    assert ending.failure.code == "missing_interpreter"
    assert "/no/such/interpreter" in ending.failure.message


@pytest.mark.parametrize(
    ("format_", "command", "result"),
    [
        ("json", 'echo "{\\"n\\": 1}"', {"n": 1}),
        ("json", 'echo working; echo "{\\"n\\": 1}"', {"n": 1}),
        ("jsonl", "echo 1; echo; echo [2]", [1, [2]]),
        ("yaml", "echo 'n: 1'", {"n": 1}),
        ("text", "echo hi", {"exit_code": 0, "stdout": "hi\n", "stderr": ""}),
        ("text", 'echo hi; echo "{\\"won\\": true}" > "$ATTUNE_OUTPUT"', {"won": True}),
    ],
)
async def test_the_output_becomes_the_result_in_its_format(
    shell: ScriptRunner, format_: str, command: str, result: Json
) -> None:
    ending = await run(shell, command=command, output_format=format_)
    assert (ending.outcome, ending.result) == (Outcome.SUCCEEDED, result)


@pytest.mark.parametrize(
    "command",
    [
        "echo not json",
        "true",
        'echo "\\"\\\\u0000\\""',
        'ln -s /etc/passwd "$ATTUNE_OUTPUT"',
        'mkdir "$ATTUNE_OUTPUT"',
    ],
)
async def test_output_that_is_no_result_fails(shell: ScriptRunner, command: str) -> None:
    ending = await run(shell, command=command, output_format="json")
    assert ending.failure is not None
    assert (ending.outcome, ending.failure.code) == (Outcome.FAILED, "bad_output")


async def test_both_streams_are_drained_however_much_is_printed(shell: ScriptRunner) -> None:
    printed = Printed()
    ending = await run(shell, printed, command="head -c 3000000 /dev/zero; head -c 3000000 /dev/zero >&2; echo end")
    assert ending.outcome is Outcome.SUCCEEDED
    assert len(printed.content[Stream.STDOUT]) == 3_000_004
    assert len(printed.content[Stream.STDERR]) == 3_000_000
    assert isinstance(ending.result, dict)
    stdout = ending.result["stdout"]
    assert isinstance(stdout, str)
    assert stdout.endswith("end\n")
    assert "\0" not in stdout
    assert len(stdout) <= 64 * 1024


async def test_a_script_killed_by_a_signal_says_which(shell: ScriptRunner) -> None:
    ending = await run(shell, command="kill -KILL $$")
    assert ending.failure is not None
    assert ending.failure.message == "was killed by SIGKILL"


@pytest.mark.parametrize(
    "left", ["sleep 300 &", "setsid sleep 300 &", "(setsid sleep 300 >/dev/null 2>&1 </dev/null &)"]
)
async def test_nothing_a_script_leaves_behind_lives_on(shell: ScriptRunner, marking: Marking, left: str) -> None:
    ending = await run(shell, command=f"{left}\necho done")
    assert ending.outcome is Outcome.SUCCEEDED
    assert find_marked(marking.prefix) == set()


async def test_a_script_may_end_in_order_when_it_is_asked_to(shell: ScriptRunner) -> None:
    stop = Stop()
    printed = Printed()
    attempt = make_attempt(stop, command="trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.02; done")
    running = asyncio.create_task(shell.run(attempt, printed))

    async def ready() -> bool:
        return b"ready" in printed.content[Stream.STDOUT]

    await until(ready)
    stop.request(StopReason.CANCELLED)
    ending = await running
    assert ending.outcome is Outcome.CANCELLED
    assert printed.content[Stream.STDOUT] == b"ready\nbye\n"


async def test_a_script_that_will_not_end_is_killed(shell: ScriptRunner, marking: Marking) -> None:
    stop = Stop()
    printed = Printed()
    attempt = make_attempt(stop, command="trap '' TERM; echo ready; while :; do sleep 0.02; done")
    running = asyncio.create_task(shell.run(attempt, printed))

    async def ready() -> bool:
        return b"ready" in printed.content[Stream.STDOUT]

    await until(ready)
    stop.request(StopReason.TIMEOUT)
    ending = await running
    assert ending.outcome is Outcome.TIMEOUT
    assert find_marked(marking.prefix) == set()
