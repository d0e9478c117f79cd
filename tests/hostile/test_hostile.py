"""What a hostile action does stays its own trouble: not the worker's, not its neighbours', not the machine's."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from uuid import uuid4

import psutil
import pytest

from tests.hostile.conftest import Ground, StartStand
from tests.witness.scale import scaled
from tests.witness.waiting import until

BOUND = 48


async def test_a_fork_bomb_meets_its_bound_and_is_cleared_away(start_stand: StartStand) -> None:
    stand = await start_stand(
        "bomb() { bomb | bomb & bomb; }; bomb", "echo next", bounds={"processes": BOUND}, stop_after_seconds=1.5
    )
    bomb, after = await stand.ended()
    assert bomb["outcome"] in {"cancelled", "failed"}
    assert "fork" in bomb["stderr"].lower()
    assert bomb["left"] == 0
    assert (after["outcome"], after["stdout"]) == ("succeeded", "next\n")


async def test_what_hides_in_another_session_is_found(start_stand: StartStand) -> None:
    stand = await start_stand(
        "(setsid sh -c 'setsid sleep 300 & sleep 300' >/dev/null 2>&1 </dev/null &); sleep 0.1; echo done"
    )
    [ended] = await stand.ended()
    assert (ended["outcome"], ended["stdout"], ended["left"]) == ("succeeded", "done\n", 0)


async def test_what_ignores_requests_to_end_is_ended(start_stand: StartStand) -> None:
    stand = await start_stand("trap '' TERM HUP INT; while :; do sleep 0.05; done", stop_after_seconds=0.5)
    [ended] = await stand.ended()
    assert (ended["outcome"], ended["left"]) == ("cancelled", 0)


@pytest.mark.timeout(1200)
async def test_endless_output_without_a_line_break_costs_the_worker_no_memory(start_stand: StartStand) -> None:
    size = scaled(short=2**28, full=10 * 2**30)
    stand = await start_stand(f"head -c {size} /dev/zero | tr '\\0' x", "true")
    ended, quiet = await stand.ended()
    assert (ended["outcome"], ended["printed"]) == ("succeeded", size)
    assert quiet["memory_mb"] < 160


async def test_a_greedy_process_gets_no_more_memory_than_its_bound(start_stand: StartStand) -> None:
    stand = await start_stand("head -c 2200000000 /dev/zero | tail -c 2147483648 | wc -c", bounds={"memory_mb": 256})
    [ended] = await stand.ended()
    assert int(ended["stdout"]) < 2147483648
    assert "memory" in ended["stderr"].lower()
    assert ended["memory_mb"] < 160


async def test_killing_the_parent_harms_at_most_what_runs_beside(ground: Ground, start_stand: StartStand) -> None:
    stand = await start_stand(
        "sleep 0.3; kill -9 $PPID; sleep 0.5; echo unharmed", "sleep 1; echo unharmed", at_once=True
    )
    ended = await stand.ended()
    expected = (
        ("succeeded", None, "unharmed\n", True) if ground.separate else ("worker_lost", "launcher_lost", "", False)
    )
    assert [(each["outcome"], each["code"], each["stdout"], each["launcher_kept"]) for each in ended] == [
        expected,
        expected,
    ]
    assert ended[-1]["left"] == 0


async def test_after_the_launcher_was_killed_the_next_action_runs(start_stand: StartStand) -> None:
    stand = await start_stand("kill -9 $PPID; sleep 0.2", "echo next")
    _, after = await stand.ended()
    assert (after["outcome"], after["stdout"]) == ("succeeded", "next\n")


async def test_a_file_grows_no_larger_than_its_bound_and_is_removed(start_stand: StartStand) -> None:
    stand = await start_stand(
        "head -c 100000000 /dev/zero > big; stat -c %s big; mkdir -p deep/er; touch deep/er/file; chmod 000 deep",
        bounds={"file_size_mb": 8},
    )
    [ended] = await stand.ended()
    assert int(ended["stdout"]) == 8 * 2**20
    assert ended["directories"] == 0


async def test_no_secret_of_the_worker_is_found_in_the_process_table(start_stand: StartStand) -> None:
    canary = uuid4().hex
    # In two pieces, so that the search does not find itself.
    search = (
        f"pattern=$(printf {canary[:16]}; printf {canary[16:]}); seen=0; "
        "for file in /proc/[0-9]*/environ /proc/[0-9]*/cmdline; do "
        'content=$(tr "\\0" " " < "$file" 2>/dev/null) && seen=$((seen + 1)); '
        'case "$content" in *"$pattern"*) echo "found in $file: $(cat ${file%/*}/comm)";; esac; '
        "done; [ $seen -gt 1 ] && echo searched"
    )
    stand = await start_stand(search, canary=canary)
    if os.geteuid() == 0:  # Otherwise not even the test may look.
        assert canary.encode() in Path(f"/proc/{stand.ready['pid']}/environ").read_bytes()
    [ended] = await stand.ended()
    assert ended["stdout"] == "searched\n"


async def test_an_action_cannot_look_into_what_started_it(start_stand: StartStand) -> None:
    stand = await start_stand(
        "for file in environ maps mem; do head -c 1 /proc/$PPID/$file > /dev/null 2>&1 && echo $file; done; echo looked"
    )
    [ended] = await stand.ended()
    assert ended["stdout"] == "looked\n"


async def test_a_killed_worker_leaves_no_process(home: Path, start_stand: StartStand) -> None:
    stand = await start_stand(
        "setsid sleep 300 & (setsid sh -c 'sleep 300; true' &) ; trap '' TERM; touch ready; sleep 300; true"
    )
    worker = psutil.Process(stand.ready["pid"])

    async def all_run() -> bool:
        return bool(list((home / "run" / "work").glob("*/ready"))) and count(worker, "sleep") == 3

    await until(all_run, seconds=20)
    tree = worker.children(recursive=True)
    os.kill(worker.pid, signal.SIGKILL)
    await stand.process.wait()

    async def all_gone() -> bool:
        return not any(each.is_running() and each.status() != psutil.STATUS_ZOMBIE for each in tree)

    await until(all_gone, seconds=15)


def count(worker: psutil.Process, name: str) -> int:
    return sum(1 for each in worker.children(recursive=True) if each.name() == name)
