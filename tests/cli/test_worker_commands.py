"""What `attune worker` and `attune action release` send, print and leave with."""

from pathlib import Path

import pytest

from tests.cli.commands import attune
from tests.cli.stand_in_api import StandInApi

WORKER = {"id": 7, "name": "worker-1", "status": "active", "cordoned": False, "capacity": 8, "load": 2}
WORKERS = "/api/v1/workers"


@pytest.mark.parametrize("which", ["7", "worker-1"])
@pytest.mark.parametrize("verb", ["cordon", "uncordon"])
def test_a_worker_is_found_by_id_or_name(home: Path, api: StandInApi, verb: str, which: str) -> None:
    api.answer("GET", WORKERS, {"items": [WORKER], "next_cursor": None})
    api.answer("POST", f"{WORKERS}/7/{verb}", {**WORKER, "cordoned": verb == "cordon"})
    done = attune("worker", verb, which, home=home, more=api.environment)
    assert done.returncode == 0, done.stderr
    assert (api.seen[-1].method, api.seen[-1].path) == ("POST", f"{WORKERS}/7/{verb}")


def test_a_name_that_no_worker_has_is_not_found(home: Path, api: StandInApi) -> None:
    api.answer("GET", WORKERS, {"items": [WORKER], "next_cursor": None})
    done = attune("worker", "show", "worker-9", home=home, more=api.environment)
    assert done.returncode == 4
    assert "worker-9" in done.stderr


def test_a_drain_tells_how_far_it_is_until_nothing_is_left(home: Path, api: StandInApi) -> None:
    api.answer("POST", f"{WORKERS}/7/drain", {"worker": {**WORKER, "status": "draining"}, "handed_back": 3})
    api.answer("GET", f"{WORKERS}/7", {**WORKER, "load": 2}, {**WORKER, "load": 1}, {**WORKER, "load": 0})
    done = attune("worker", "drain", "7", "--wait", home=home, more=api.environment)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines() == [
        "worker-1: 3 handed back, 2 still there",
        "2 still there",
        "1 still there",
    ]


def test_a_drain_that_takes_too_long_says_so(home: Path, api: StandInApi) -> None:
    api.answer("POST", f"{WORKERS}/7/drain", {"worker": WORKER, "handed_back": 0})
    api.answer("GET", f"{WORKERS}/7", WORKER)
    done = attune("worker", "drain", "7", "--wait", "--timeout", "0", home=home, more=api.environment)
    assert done.returncode == 6
    assert "still has 2 executions" in done.stderr


def test_scaling_is_shown_by_pool(home: Path, api: StandInApi) -> None:
    pool = {"pool": "-5", "runner": "shell", "running": 2, "backlog": 5, "workers": 1, "wanted": 4}
    api.answer("GET", f"{WORKERS}/scaling", {"workers": 1, "capacity": 2, "wanted": 4, "pools": [pool]})
    done = attune("worker", "scaling", home=home, more=api.environment)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines() == ["1 workers, 4 wanted"]
    assert "shell" in done.stdout


def test_a_quarantined_action_says_so_and_is_released(home: Path, api: StandInApi) -> None:
    held = {"ref": "demo.crash", "runner": "shell", "workers_lost": 3, "quarantined_at": "2026-05-04T12:00:00Z"}
    api.answer("GET", "/api/v1/actions/demo.crash", held)
    api.answer("POST", "/api/v1/actions/demo.crash/release", {**held, "quarantined_at": None})
    shown = attune("action", "show", "demo.crash", home=home, more=api.environment)
    assert "Quarantined since 2026-05-04 12:00:00: 3 workers" in shown.stdout
    done = attune("action", "release", "demo.crash", home=home, more=api.environment)
    assert done.returncode == 0, done.stderr
    assert (api.seen[-1].method, api.seen[-1].path) == ("POST", "/api/v1/actions/demo.crash/release")
