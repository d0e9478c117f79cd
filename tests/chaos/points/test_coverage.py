"""Every declared failpoint has killed a process in the full run, and one that nobody can reach is named."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import pytest

from attune.runtime.failpoints import DECLARED, Declared
from tests.chaos.kinds import BROKER, POSTGRES
from tests.chaos.points.coverage import RECORD, TRANSPORTS, Coverage, transports_of
from tests.chaos.points.ways import way_to
from tests.chaos.run import close
from tests.chaos.summary import Summary

NOWHERE = Declared(
    name="nobody.comes_by", places=("api/app.py",), services=frozenset({"api"}), meaning="nothing leads to this place"
)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_every_declared_failpoint_was_hit_and_killed_in_the_full_run(transport: str) -> None:
    """Whoever declares a new one lets `make chaos ARGS=--until-covered` reach it."""
    assert Coverage.read(RECORD).missing(transport) == []


def test_only_what_a_broker_needs_is_left_out_without_one() -> None:
    without = {name for name, point in DECLARED.items() if POSTGRES not in transports_of(point)}

    assert without == {name for name in DECLARED if name.startswith(("publish.", "relay."))}
    assert all(BROKER in transports_of(point) for point in DECLARED.values())


def test_what_a_run_reached_is_remembered_with_what_earlier_runs_did(tmp_path: Path) -> None:
    file = tmp_path / "coverage.json"
    for action in ("sleep", "kill"):
        covered = Coverage.read(file)
        covered.note(POSTGRES, {"lease.renew": action})
        covered.write(file)

    assert Coverage.read(file).points == {"lease.renew": {POSTGRES: {"hit": 2, "killed": 1}}}
    assert "lease.renew" not in Coverage.read(file).missing(POSTGRES)
    assert "lease.renew" not in Coverage.read(file).missing(BROKER)


def test_a_failpoint_at_which_something_else_happened_was_not_killed() -> None:
    covered = Coverage()
    covered.note(POSTGRES, {"lease.renew": "sleep"})

    assert "lease.renew" in covered.missing(POSTGRES)


def test_a_failpoint_that_nobody_comes_by_makes_the_full_run_fail_by_its_name(
    capsys: pytest.CaptureFixture[str],
) -> None:
    covered = Coverage(declared={**DECLARED, NOWHERE.name: NOWHERE})
    covered.note(POSTGRES, dict.fromkeys(DECLARED, "kill"))
    arguments = Namespace(transport=POSTGRES, coverage=Path("unused"), until_covered=True)
    good = Summary(seed=1, transport=POSTGRES)

    assert close(good, covered, arguments) == 1
    said = capsys.readouterr().out.splitlines()
    assert f"  not killed: {NOWHERE.name}" in said
    assert said[-1] == good.line()

    assert close(good, Coverage(covered.points), arguments) == 0


def test_every_way_leads_to_a_point_that_is_declared() -> None:
    assert all(way_to(name, POSTGRES) is None for name in (NOWHERE.name, ""))
    led = [name for name in DECLARED if way_to(name, BROKER)]

    assert "executor.leave" in led
    assert "api.accept.before_tx" not in led
