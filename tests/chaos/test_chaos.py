"""A small plan through the same code as `make chaos`: whatever is harmed, no promise is broken."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.chaos.full import run_plan
from tests.chaos.kinds import BROKER, Kind
from tests.chaos.plan import Fault, make_plan
from tests.chaos.stage import MARK, Refused, Stage
from tests.plugins.rabbitmq import need_rabbitmq
from tests.witness.platform import Platform

FAULTS = (
    Fault(kind=Kind.KILL, target="worker-1", at=0.2),
    Fault(kind=Kind.ANSWERS_LOST, target="api", at=0.5, seconds=0.5),
    Fault(kind=Kind.CLOCK_SKEW, target="executor-1", at=1.0, seconds=5.0, amount=-3600),
    Fault(kind=Kind.CUT, target="postgres", at=1.5),
    Fault(kind=Kind.KILL, target="executor-2", at=2.0),
    Fault(kind=Kind.PAUSE, target="worker-2", at=2.5, seconds=2.0),
    Fault(kind=Kind.POSTGRES_BACKEND, target="postgres", at=4.0),
    Fault(kind=Kind.DISK_FULL, target="worker-3", at=5.0, seconds=1.0, amount=1),
)
WITH_BROKER = (*FAULTS, Fault(kind=Kind.CUT, target="rabbitmq", at=3.0))


@pytest.mark.journey
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("transport", "faults"),
    [("postgres", FAULTS), pytest.param("rabbitmq", WITH_BROKER, marks=pytest.mark.rabbitmq)],
)
async def test_a_harmed_platform_breaks_no_promise(transport: str, faults: tuple[Fault, ...]) -> None:
    if transport == BROKER:
        need_rabbitmq()
    plan = replace(make_plan(11, transport, chaos_seconds=7, clean_seconds=1), faults=faults, replayed=False)

    outcome = await run_plan(plan)

    assert outcome.verdict.broken == []
    assert outcome.summary.executions > 0
    assert outcome.summary.statuses["succeeded"] > 0
    assert set(outcome.summary.faults) | set(outcome.summary.unavailable) >= {fault.kind for fault in faults}
    assert outcome.folder is None


def test_a_platform_that_the_run_did_not_start_is_left_alone(tmp_path: Path) -> None:
    foreign = Stage(
        folder=tmp_path,
        mark="ours",
        platform=Platform(home=tmp_path, port=1, environment={}),
        postgres=None,  # type: ignore[arg-type]  # nothing gets that far
        broker=None,
        ways={},
        shim="none",
        fired=tmp_path,
    )

    with pytest.raises(Refused, match="was not started by this run"):
        foreign.processes()

    (tmp_path / MARK).write_text("ours")
    assert foreign.processes() == {}
