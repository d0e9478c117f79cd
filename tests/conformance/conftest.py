"""A runner for each runtime, on a machine of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass

import pytest

from attune.domain.retry import Ending
from attune.worker.runners.protocol import Attempt, Runner, Stop
from tests.conformance.subjects import CASES, SUBJECTS, Subject, Work
from tests.conformance.surroundings import Surroundings
from tests.plugins.report import not_run
from tests.witness.machine import Machine, a_machine
from tests.witness.podman import PodmanFailed
from tests.worker.attempts import NO_DIGEST, Printed, make_attempt
from tools.unpack import CannotUnpack


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One runtime, ready to run."""

    subject: Subject
    machine: Machine
    runner: Runner
    around: Surroundings

    def attempt(self, work: Work | None, stop: Stop | None = None) -> Attempt:
        assert work is not None
        request = work.get("http")
        if isinstance(request, dict):
            work = {**work, "http": {**request, "url": f"{self.around.origin}{request['url']}"}}
        return make_attempt(stop, runner=self.subject.runner, **work)

    async def run(self, work: Work | None, printed: Printed | None = None, stop: Stop | None = None) -> Ending:
        return await self.runner.run(self.attempt(work, stop), printed or Printed())


@pytest.fixture(scope="session", params=SUBJECTS, ids=lambda subject: subject.name)
def subject(request: pytest.FixtureRequest) -> Subject:
    chosen: Subject = request.param
    return chosen


@pytest.fixture(scope="session")
async def stage(subject: Subject) -> AsyncIterator[Stage]:
    """Made once for all cases: looking at a machine takes longer than most of them."""
    cure = subject.cure or f"install {subject.runner}"
    async with AsyncExitStack() as opened:
        try:
            around = await opened.enter_async_context(subject.around())
        except (CannotUnpack, PodmanFailed) as error:
            not_run(str(error), cure=cure)
        machine = await opened.enter_async_context(a_machine(around.variables, **subject.settings, **around.settings))
        for name, content in subject.files.items():
            machine.write(f"actions/{name}", content, digest=NO_DIGEST)
        runner = machine.runners.get(subject.runner)
        if runner is None:
            not_run(machine.details[subject.runner], cure=cure)
        yield Stage(subject=subject, machine=machine, runner=runner, around=around)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A case says in its report which runtime and case it is, and why it need not run."""
    for item in items:
        mark = item.get_closest_marker("case")
        subject = getattr(getattr(item, "callspec", None), "params", {}).get("subject")
        if mark is None or not isinstance(subject, Subject):
            continue
        (case,) = mark.args
        assert case in CASES
        item.user_properties.append(("conformance", (subject.name, case, subject.absent.get(case, ""))))
