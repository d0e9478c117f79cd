"""The tutorial works: its files are written, its lines typed, and what it says about them is true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.documents import FENCE, ROOT
from tests.witness.reader import (
    DOWN_SECONDS_MAX,
    PAGE_SECONDS_MAX,
    expect_as_announced,
    follow,
    fresh_home,
    processes_of,
)

PAGE = (ROOT / "docs" / "tutorial" / "first-steps.md").read_text()
# A block that begins with its own path is a file that the reader writes; the other shell blocks are typed.
FILE = re.compile(r"# weather/(\S+)\n")

pytestmark = [pytest.mark.journey, pytest.mark.slow, pytest.mark.timeout(PAGE_SECONDS_MAX + DOWN_SECONDS_MAX)]


def blocks_to_type(pack: Path) -> list[str]:
    """What is typed; the pack lies in the test's own directory instead of beside the clone."""
    typed = [one["body"] for one in FENCE.finditer(PAGE) if one["language"] == "sh" and not FILE.match(one["body"])]
    return [block.replace("../weather", str(pack)) for block in typed]


def write_files(pack: Path) -> None:
    for block in FENCE.finditer(PAGE):
        named = FILE.match(block["body"])
        if named:
            path = pack / named[1]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block["body"])


def test_the_tutorial_works() -> None:
    with fresh_home() as home:
        pack = home / "weather"
        write_files(pack)
        printed = expect_as_announced(follow(blocks_to_type(pack), home))
        left = processes_of(home)

    assert re.search(r"^status: +cancelled$", printed["./attune execution show 2"], re.MULTILINE)
    assert '"umbrella":true' in printed["./attune run weather.forecast town=Delft days=3 --wait"]
    assert "days" in printed["./attune run weather.forecast town=Delft days=many --wait"]
    assert "weather.forecast" in printed["./attune run weather.forcast town=Delft --wait"]
    assert re.search(r"weather\.forecast +failed +3 ", printed["./attune execution list --action weather.forecast"])
    assert left == []
