"""The tour of the README works: its lines are run as they stand, on a fresh home, and exit as it says."""

from __future__ import annotations

import re

import pytest

from tests.documents import ROOT, sections, shell_blocks
from tests.witness.reader import (
    DOWN_SECONDS_MAX,
    PAGE_SECONDS_MAX,
    expect_as_announced,
    follow,
    fresh_home,
    processes_of,
)

TOUR = shell_blocks(sections((ROOT / "README.md").read_text())["A tour in five minutes"])

pytestmark = [pytest.mark.journey, pytest.mark.slow, pytest.mark.timeout(PAGE_SECONDS_MAX + DOWN_SECONDS_MAX)]


def test_the_tour_has_all_its_stations() -> None:
    typed = "\n".join(TOUR)
    for station in ("make up", "core.echo", "core.shell", "execution logs", "pack install", "kill -9", "check", "down"):
        assert station in typed


def test_the_tour_of_the_readme_works() -> None:
    with fresh_home() as home:
        printed = expect_as_announced(follow(TOUR, home))
        left = processes_of(home)

    assert '{"message":"hi"}' in printed["./attune run core.echo message=hi --wait"]
    assert {"out", "err"} <= set(printed["./attune execution logs 2"].splitlines())
    assert "Hello, Ada!" in printed["./attune run hello.greet name=Ada --wait"]
    assert "name: " in printed["./attune run hello.greet name=R2D2 --wait"]
    after_the_kill = printed["./attune execution show $execution"]
    assert re.search(r"^status: +succeeded$", after_the_kill, re.MULTILINE)
    assert re.search(r"^attempt: +[2-9]$", after_the_kill, re.MULTILINE)
    assert re.search(r"^worker-1 +worker +\d+ +running +1$", printed["./attune status"], re.MULTILINE)
    assert left == []
